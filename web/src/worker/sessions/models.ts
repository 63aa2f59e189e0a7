// Language models: loading, text generation and the tokenizer.

import type { Generated, GenerateRequest } from "../../protocol/generation.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import type { Call, Handlers, Scope } from "../calls.ts";
import { loadModel } from "../model/load.ts";
import { generateText } from "../model/text-generation.ts";

type Names = "load" | "find" | "generate" | "encode" | "decode" | "chat" | "unload";

/** The methods of text-generation pipelines. */
export function modelMethods(scope: Scope): Pick<Handlers, Names> {
  let next = 1;

  function generate(request: GenerateRequest, { signal, send }: Call): Promise<Generated> {
    throwIfAborted(signal);
    const sink = {
      text: (text: string, end: boolean) => (text || end) && send({ text, end }),
      tokens: (tokens: number[]) => send({ tokens }),
    };
    const model = scope.model(request.model);
    model.adapters?.refresh();
    model.decoder.signal = signal;
    return generateText(model, request, sink, signal).finally(() => {
      model.decoder.signal = undefined;
    });
  }

  return {
    async load(request, { signal, send }) {
      // The page will train: it needs no network for that later. A failure is reported then.
      const trains = request.programs && import("../training/index.ts").catch(() => undefined);
      const loaded = await loadModel(request, signal, (progress) => send({ progress }));
      await trains;
      scope.models.set(next, loaded);
      return { model: next++, info: loaded.info };
    },
    async find(request, { signal, send }) {
      const { modelFiles } = await import("../model/onnx/index.ts");
      return modelFiles(request, signal, (progress) => send({ progress }));
    },
    generate: (request, call) => scope.turn(request.model, () => generate(request, call)),
    encode: ({ model, text, add_special_tokens }) =>
      scope.model(model).tokenizer.encode(text, add_special_tokens),
    decode: ({ model, ids, options }) => scope.model(model).tokenizer.decode(ids, options),
    chat: ({ model, messages, options }) =>
      scope.model(model).tokenizer.applyChatTemplate(messages, options),
    unload({ model }) {
      scope.models.get(model)?.device.close();
      scope.models.delete(model);
    },
  };
}
