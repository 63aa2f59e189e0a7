// The worker of one pipeline: engine, tokenizer and generation loop. The page's thread only ever waits for messages from here.

import { InputError } from "./errors.ts";
import { loadModel, type Model } from "./load.ts";
import { plainError, type Call, type FromWorker, type Generated, type GenerateRequest, type Methods, type ToWorker } from "./protocol.ts";
import { throwIfAborted } from "./source.ts";
import { generateText } from "./text-generation.ts";

const post = postMessage as (message: FromWorker, transfer?: Transferable[]) => void;
const running = new Map<number, AbortController>();
const models = new Map<number, Model>();
let nextModel = 1;
/** Generations of a model take turns: they share its plans' arena. A failed one only ends its own turn. */
const turns = new Map<number, Promise<unknown>>();

function model(id: number): Model {
  const found = models.get(id);
  if (!found) throw new InputError("this pipeline has been disposed of", "", "Make a new one.");
  return found;
}

const methods: { [M in keyof Methods]: (request: Parameters<Methods[M]>[0], id: number, signal: AbortSignal) => ReturnType<Methods[M]> | Promise<ReturnType<Methods[M]>> } = {
  async load(request, id, signal) {
    const loaded = await loadModel(request, signal, (progress) => post({ id, progress }));
    models.set(nextModel, loaded);
    return { model: nextModel++, info: loaded.info };
  },
  async generate(request, id, signal) {
    const before = turns.get(request.model) ?? Promise.resolve();
    const mine = before.then(() => run(request, id, signal));
    turns.set(request.model, mine.catch(() => undefined));
    return mine;
  },
  encode: ({ model: id, text, add_special_tokens }) => model(id).tokenizer.encode(text, add_special_tokens),
  decode: ({ model: id, ids, options }) => model(id).tokenizer.decode(ids, options),
  chat: ({ model: id, messages, options }) => model(id).tokenizer.applyChatTemplate(messages, options),
  unload({ model: id }) {
    models.get(id)?.engine.close();
    models.delete(id);
  },
};

function run(request: GenerateRequest, id: number, signal: AbortSignal): Promise<Generated> {
  throwIfAborted(signal);
  const sink = {
    text: (text: string, end: boolean) => (text || end) && post({ id, text, end }),
    tokens: (tokens: number[]) => post({ id, tokens }),
  };
  return generateText(model(request.model), request, sink, signal);
}

async function answer(call: Call): Promise<void> {
  const { id } = call;
  const controller = new AbortController();
  running.set(id, controller);
  try {
    const method = methods[call.method] as (request: unknown, id: number, signal: AbortSignal) => unknown;
    post({ id, value: await method(call.request, id, controller.signal) });
  } catch (e) {
    post({ id, error: plainError(e) });
  } finally {
    running.delete(id);
  }
}

addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
  if ("abort" in data) running.get(data.id)?.abort(data.reason === undefined ? undefined : new Error(data.reason));
  else void answer(data);
});
