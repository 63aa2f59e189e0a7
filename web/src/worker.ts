// The worker of one pipeline: engine, tokenizer and generation loop. The page's thread only ever waits for messages from here.

import { InputError } from "./errors.ts";
import { generate } from "./generation/generate.ts";
import { TextStreamer } from "./generation/streamers.ts";
import { loadModel, type Model } from "./load.ts";
import { plainError, type Call, type FromWorker, type Generated, type GenerateRequest, type Methods, type ToWorker } from "./protocol.ts";
import { throwIfAborted } from "./source.ts";
import type { Message } from "./text.ts";

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

async function run(request: GenerateRequest, id: number, signal: AbortSignal): Promise<Generated> {
  throwIfAborted(signal);
  const { decoder, tokenizer, engine, info } = model(request.model);
  const { input } = request;
  const isChat = (value: unknown): value is Message[] => Array.isArray(value) && value.length > 0 && value.every((m) => typeof m === "object" && m !== null && "role" in m && "content" in m);
  const batch = Array.isArray(input) && !isChat(input);
  const inputs = batch ? (input as (string | Message[])[]) : [input as string | Message[]];
  if (!inputs.length) throw new InputError("there is nothing to continue", "input", "Give a text, a list of messages ({role, content}), or a list of those.");
  const { return_full_text: full } = request;
  const results: unknown[] = [];
  const stats = { prompt_tokens: 0, new_tokens: 0, prefill_ms: 0, decode_ms: 0 };
  for (const one of inputs) {
    const chat = isChat(one);
    if (!chat && typeof one !== "string") throw new InputError("an input is neither a text nor a list of messages", "input", "Messages are objects with role and content.");
    const prompt = chat ? tokenizer.applyChatTemplate(one) : one;
    const ids = tokenizer.encode(prompt, request.add_special_tokens ?? !chat);
    if (!ids.length) throw new InputError("the prompt has no tokens", "input", "This model's tokenizer adds no start token: give at least a character.");
    const started = performance.now();
    let first = 0;
    let last = started;
    const text = request.stream && new TextStreamer(tokenizer, {
      skip_prompt: request.stream.skip_prompt,
      callback_function: (piece: string) => piece && post({ id, text: piece, end: false }),
      ...request.stream.decode,
    });
    let prompted = false;
    let made = 0;
    const watch = {
      put(value: ArrayLike<number>) {
        const list = Array.from(value);
        if (prompted) made += list.length;
        last = performance.now();
        if (prompted && !first) first = last;
        prompted = true;
        if (request.tokens) post({ id, tokens: list });
        text?.put(list);
      },
      end() {
        text?.end();
        post({ id, text: "", end: true });
      },
    };
    const single = !(Number(request.fields.num_beams ?? decoder.generation_config.num_beams ?? 1) > 1) && !(Number(request.fields.num_return_sequences ?? 1) > 1);
    if ((request.stream || request.tokens) && (!single || inputs.length > 1))
      throw new InputError("a streamer can follow one text only", "streamer", "Leave num_beams and num_return_sequences at 1 and give one input, or generate without a streamer.");
    const { return_dict_in_generate: _, ...fields } = request.fields;
    const output = await generate(decoder, ids, { ...fields, return_dict_in_generate: true }, { streamer: single ? watch : undefined, signal, tokenizer });
    const sequences = (output as { sequences: number[][] }).sequences;
    stats.prompt_tokens += ids.length;
    stats.new_tokens += single ? made : sequences.reduce((sum, s) => sum + s.length - ids.length, 0);
    stats.prefill_ms += (first || performance.now()) - started;
    stats.decode_ms += first ? last - first : 0;
    const skip = { skip_special_tokens: true };
    results.push(sequences.map((sequence) => {
      const fresh = tokenizer.decode(sequence.slice(ids.length), skip);
      if (chat) return { generated_text: full === false ? fresh : [...one, { role: "assistant", content: fresh }] };
      if (full === false) return { generated_text: fresh };
      // The prompt as it was given, and what came after it as the tokenizer writes it there.
      const whole = tokenizer.decode(sequence, skip);
      const head = tokenizer.decode(ids, skip);
      return { generated_text: prompt + (whole.startsWith(head) ? whole.slice(head.length) : fresh) };
    }));
  }
  const output = batch ? results : results[0];
  info.memory.engine = engine.memoryBytes;
  return { output, info, stats };
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
