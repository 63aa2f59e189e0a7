// Text generation: prompts and chats to token ids, and token ids to results. Mirrors
// python/edgewise/host/pipelines/text_generation.py.

import {
  type Generated,
  type GenerateRequest,
  INTERRUPTED,
  type Message,
  type Prompt,
  type TextOptions,
} from "../../protocol/generation.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import {
  Configuration,
  DecodingStreamer,
  type GenerateOutput,
  type GenerationFields,
  generate,
  modelDefaults,
  type Streamer,
} from "../generation/index.ts";
import type { Model } from "./model.ts";

/**
 * transformers' defaults for this task. The model's generation_config.json takes precedence over
 * them, and the call's fields over both.
 */
const DEFAULTS: GenerationFields = { max_new_tokens: 256, do_sample: true, temperature: 0.7 };

/** What a call generates from. */
type Input = string | Message[] | Prompt;

/** Receives text and token ids as they are generated. */
export interface Sink {
  text(piece: string, end: boolean): void;
  tokens(ids: number[]): void;
}

/**
 * Executes a call of a pipeline.
 * @throws as the call of TextGenerationPipeline
 */
export async function generateText(
  model: Model,
  request: GenerateRequest,
  sink: Sink,
  signal: AbortSignal,
): Promise<Generated> {
  const { decoder, tokenizer, info } = model;
  const fields = request.fields as GenerationFields;
  const [inputs, several] = inputsOf(request.input);
  const base = inputs.every(isPrompt) ? {} : DEFAULTS;
  const config = defaults(model, request.fields, base);
  const set = new Configuration(fields, "generate");
  const merged = modelDefaults(decoder).merged(config).merged(set);
  const single =
    inputs.length === 1 &&
    merged.get("num_beams") === 1 &&
    merged.get("num_return_sequences") === 1;
  if ((request.stream || request.tokens) && !single)
    throw new InputError(
      "a streamer can follow one text only",
      "streamer",
      "Leave num_beams and num_return_sequences at 1 and give one input, or generate without " +
        "a streamer.",
    );
  const results: unknown[] = [];
  const stats = { prompt_tokens: 0, new_tokens: 0, prefill_ms: 0, decode_ms: 0 };
  for (const input of inputs) {
    const { prompt, goingOn } = await promptOf(model, input, request.options);
    const started = performance.now();
    const watch = new Watch(model, request, sink, started);
    const made = await generate(decoder, prompt, config, {
      fields: { ...fields, return_dict_in_generate: true },
      streamer: single ? watch : undefined,
      signal,
      tokenizer,
    }).then(
      (output) => output as GenerateOutput,
      (e: unknown) => soFar(e, signal, prompt),
    );
    stats.prompt_tokens += prompt.length;
    stats.new_tokens += made.sequences.reduce((sum, s) => sum + s.length - prompt.length, 0);
    stats.prefill_ms += (watch.first || performance.now()) - started;
    stats.decode_ms += watch.first ? watch.last - watch.first : 0;
    results.push(
      made.sequences.map((_, i) =>
        generatedRecord(model, request, input, prompt, made, i, goingOn),
      ),
    );
  }
  info.memory.engine = model.device.memoryBytes; // it may be another one by now
  return { output: several ? results : results[0], info, stats };
}

/** What was generated before the page's stopping criteria interrupted it; else throws. */
function soFar(e: unknown, signal: AbortSignal, prompt: number[]): GenerateOutput {
  if (!(e instanceof Aborted) || (signal.reason as Error | undefined)?.message !== INTERRUPTED)
    throw e;
  const sequences = e.sequences.length ? e.sequences : [prompt];
  return {
    sequences,
    finish_reasons: sequences.map(() => "stopping_criteria"),
    scores: null,
    logits: null,
    sequences_scores: null,
  };
}

/** Token ids of an input. `goingOn`: whether the last message of a chat is continued. */
async function promptOf(
  { tokenizer }: Model,
  input: Input,
  options: TextOptions,
): Promise<{ prompt: number[]; goingOn: boolean }> {
  if (isPrompt(input)) return { prompt: input.input_ids, goingOn: false };
  if (typeof input === "string")
    return {
      prompt: tokenizer.encode(input, options.add_special_tokens ?? true),
      goingOn: false,
    };
  const goingOn = options.continue_final_message ?? input.at(-1)!.role === "assistant";
  const text = await tokenizer.applyChatTemplate(input, {
    add_generation_prompt: !goingOn,
    continue_final_message: goingOn,
  });
  return { prompt: tokenizer.encode(text, false), goingOn };
}

/** Measures a generation, and passes text and token ids on to a sink. */
class Watch implements Streamer {
  /** Time of the first new token; 0 before. */
  first = 0;
  /** Time of the latest token. */
  last: number;
  private steps = 0;
  private readonly text: DecodingStreamer | undefined;

  constructor(
    { tokenizer }: Model,
    private readonly request: GenerateRequest,
    private readonly sink: Sink,
    started: number,
  ) {
    this.last = started;
    const { stream } = request;
    this.text =
      stream &&
      new DecodingStreamer(tokenizer, {
        skip_prompt: stream.skip_prompt,
        callback_function: (piece) => sink.text(piece, false),
        decode_kwargs: stream.decode,
      });
  }

  put(ids: number[]): void {
    this.last = performance.now();
    if (this.steps++ === 1) this.first = this.last; // the first call has the prompt
    if (this.request.tokens) this.sink.tokens(Array.from(ids));
    this.text?.put(ids);
  }

  end(): void {
    this.text?.end();
    this.sink.text("", true);
  }
}

/** The result of a generated sequence. */
function generatedRecord(
  { tokenizer }: Model,
  { options, fields }: GenerateRequest,
  input: Input,
  prompt: number[],
  made: GenerateOutput,
  i: number,
  goingOn: boolean,
): Record<string, unknown> {
  const ids = made.sequences[i]!;
  const record: Record<string, unknown> = {};
  if (options.return_tensors) record.generated_token_ids = ids;
  else {
    const decoding = {
      skip_special_tokens: options.skip_special_tokens ?? true,
      ...given("clean_up_tokenization_spaces", options.clean_up_tokenization_spaces),
    };
    // Decode both and compare lengths, since the text of a token can depend on preceding tokens.
    const fresh = tokenizer.decode(ids, decoding).slice(tokenizer.decode(prompt, decoding).length);
    record.generated_text =
      options.return_full_text === false || isPrompt(input)
        ? fresh
        : typeof input === "string"
          ? input + fresh
          : answered(input, fresh, goingOn);
  }
  if (fields.return_dict_in_generate) {
    record.finish_reasons = made.finish_reasons[i];
    if (made.sequences_scores) record.sequences_scores = made.sequences_scores[i];
  }
  return record;
}

const isPrompt = (input: unknown): input is Prompt =>
  typeof input === "object" && input !== null && "input_ids" in input;

function inputsOf(input: GenerateRequest["input"]): [Input[], boolean] {
  if (typeof input === "string" || isPrompt(input)) return [[input], false];
  const isMessage = (m: unknown): m is Message =>
    typeof m === "object" && m !== null && "role" in m && "content" in m;
  const isChat = (one: unknown) => Array.isArray(one) && one.length && one.every(isMessage);
  const list: unknown[] = Array.isArray(input) ? input : [];
  const chat = isMessage(list[0]);
  const inputs = chat ? [list] : list;
  for (const one of inputs.length ? inputs : [undefined])
    if (!(typeof one === "string" || isPrompt(one) || isChat(one)))
      throw new InputError(
        "the input is neither text nor chat messages",
        "pipeline",
        'Give a string, a list of strings, or messages like [{role: "user", content: "Hello"}].',
      );
  return [inputs as Input[], !chat];
}

/** The config for `generate`, without the call's own fields. */
function defaults(
  { decoder, tokenizer }: Model,
  fields: Record<string, unknown>,
  usual: GenerationFields,
): Configuration {
  const own = modelDefaults(decoder);
  const base: Record<string, unknown> = { ...usual };
  // a max_length set by the model's authors or by the call takes precedence over max_new_tokens
  if (
    (own.get("max_length") !== 20 && own.get("max_new_tokens") === null) ||
    (fields.max_length != null && fields.max_new_tokens == null)
  )
    delete base.max_new_tokens;
  let config = new Configuration(base, "generate").merged(own);
  if (fields.max_length != null && fields.max_new_tokens == null)
    config = config.merged(new Configuration({ max_new_tokens: null }));
  const eos = tokenizer.id("eos_token");
  if (config.get("eos_token_id") === null && eos !== undefined)
    config = config.merged(new Configuration({ eos_token_id: eos }));
  return config;
}

function answered(messages: Message[], text: string, goingOn: boolean): Message[] {
  const last = messages[messages.length - 1]!;
  return goingOn
    ? [...messages.slice(0, -1), { ...last, content: last.content + text }]
    : [...messages, { role: "assistant", content: text }];
}

function given<K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, V>);
}
