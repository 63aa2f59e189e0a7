// Language models: loading, text generation and the tokenizer.

import { check_tokenizers } from "../../logic/generation/draft.ts";
import type { TokenScore } from "../../logic/openai/answers.ts";
import type { Generated, GenerateRequest } from "../../protocol/generation.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { LAST } from "../../shared/turns.ts";
import type { Call, Handlers, Scope } from "../calls.ts";
import { loadModel } from "../model/load.ts";
import type { Model } from "../model/model.ts";
import { chatWithTools, generateText } from "../model/text-generation.ts";

type Names =
  | ("load" | "find" | "generate" | "clear" | "save_prefix" | "load_prefix")
  | ("encode" | "decode" | "chat" | "unload");

/** Milliseconds without a call, after which the last answer is read ahead. */
const IDLE = 200;

/** The methods of prefixes in files. */
function prefixMethods(scope: Scope): Pick<Handlers, "save_prefix" | "load_prefix"> {
  return {
    async save_prefix(request, { signal }) {
      const { savePrefix } = await import("../prefix/index.ts");
      return scope.turn(request.model, () => {
        const model = scope.model(request.model);
        model.adapters?.refresh();
        return savePrefix(model, request, signal);
      });
    },
    async load_prefix({ model, file }) {
      const { loadPrefix } = await import("../prefix/index.ts");
      return scope.turn(model, () => loadPrefix(scope.model(model), file));
    },
  };
}

/** Lets a model guess the tokens of another one. @throws InputError: the vocabularies differ */
function assist(model: Model, small: Model): void {
  try {
    check_tokenizers(
      (id) => model.tokenizer.tokenOf(id),
      (id) => small.tokenizer.tokenOf(id),
      model.decoder.vocab_size,
      small.decoder.vocab_size,
    );
  } catch (e) {
    small.device.close();
    throw e;
  }
  model.assistant = small;
}

/** The methods of text-generation pipelines. */
export function modelMethods(scope: Scope): Pick<Handlers, Names> {
  let next = 1;
  let idle: ReturnType<typeof setTimeout> | undefined;

  /** Reads the last answer while there is nothing else to do, a piece at a time. */
  function readAhead(id: number): void {
    clearTimeout(idle);
    idle = setTimeout(() => {
      const read = async () => {
        const model = scope.models.get(id);
        const read = (await model?.decoder.readAhead()) || model?.assistant?.decoder.readAhead();
        if (await read) readAhead(id);
      };
      void scope.turn(id, read, LAST).catch(() => undefined); // nobody waits for it
    }, IDLE);
  }

  function generate(request: GenerateRequest, { signal, send }: Call): Promise<Generated> {
    throwIfAborted(signal);
    const sink = {
      text: (text: string, end: boolean) => (text || end) && send({ text, end }),
      tokens: (tokens: number[]) => send({ tokens }),
      parsed: (parsed: unknown) => send({ event: { name: "parsed", value: parsed } }),
      delta: (delta: unknown) => send({ event: { name: "delta", value: delta } }),
      scores: (scores: TokenScore[]) => send({ event: { name: "scores", value: scores } }),
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
      if (request.assists !== undefined) assist(scope.model(request.assists), loaded);
      scope.models.set(next, loaded);
      return { model: next++, info: loaded.info };
    },
    async find(request, { signal, send }) {
      const { modelFiles } = await import("../model/onnx/index.ts");
      return modelFiles(request, signal, (progress) => send({ progress }));
    },
    generate(request, call) {
      clearTimeout(idle);
      return scope
        .turn(request.model, () => generate(request, call), call.order, call.signal)
        .finally(() => readAhead(request.model));
    },
    clear: ({ model }) => scope.turn(model, () => scope.model(model).decoder.clearCache()),
    ...prefixMethods(scope),
    encode: ({ model, text, add_special_tokens }) =>
      scope.model(model).tokenizer.encode(text, add_special_tokens),
    decode: ({ model, ids, options }) => scope.model(model).tokenizer.decode(ids, options),
    chat: ({ model, messages, options: { tokenize = false, ...variables } }) => {
      const { tokenizer } = scope.model(model);
      return tokenize
        ? chatWithTools(tokenizer, messages, variables)
        : tokenizer.applyChatTemplate(messages, variables);
    },
    unload({ model }) {
      const { device, assistant } = scope.models.get(model) ?? {};
      device?.close();
      assistant?.device.close();
      scope.models.delete(model);
    },
  };
}
