// Text generation: prompts and chats to token ids, and token ids to results, by the rules of
// logic/generation/text.py.

import {
  continues,
  DEFAULTS,
  defaults_of_call,
  inputs_of,
  is_ids,
  records_of,
  task_defaults,
} from "../../logic/generation/text.ts";
import {
  cut,
  fitting_chat,
  type Truncation,
  truncation_of,
} from "../../logic/generation/window.ts";
import type { TokenScore } from "../../logic/openai/answers.ts";
import { score_of } from "../../logic/openai/scores.ts";
import {
  type Generated,
  type GenerateRequest,
  INTERRUPTED,
  type Message,
  type Prompt,
  type TextOptions,
} from "../../protocol/generation.ts";
import { drive } from "../../shared/drive.ts";
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
import type { TemplateOptions, Tokenizer } from "../text/tokenizer.ts";
import type { Model } from "./model.ts";

/** What a call generates from. */
export type Input = string | Message[] | Prompt;

/** Receives text and token ids as they are generated. */
export interface Sink {
  text(piece: string, end: boolean): void;
  tokens(ids: number[]): void;
  parsed(value: unknown): void;
  delta(value: unknown): void;
  scores(scores: TokenScore[]): void;
}

type GrammarPart = typeof import("../grammar/index.ts");
type ToolsPart = typeof import("../tools/index.ts");
type Chosen = ReturnType<ToolsPart["chosen_tools"]>;
type Tools = ToolsPart & { tools: NonNullable<Chosen[0]>; wanted: string };
type Answers = ReturnType<ToolsPart["answersTo"]>;
type Grammar = Omit<GrammarPart, "is_json"> & { isJson: boolean };

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
  const { response_format: form, ...fields } = request.fields as GenerationFields;
  const [inputs, several]: [Input[], boolean] = inputs_of(request.input);
  const own = modelDefaults(decoder);
  const base = inputs.every(is_ids) ? {} : DEFAULTS;
  const usual = task_defaults(own, base, tokenizer.id("eos_token") ?? null);
  const config = defaults_of_call(usual, fields);
  const set = new Configuration(fields, "generate");
  const merged = own.merged(config).merged(set);
  const single =
    inputs.length === 1 &&
    merged.get("num_beams") === 1 &&
    merged.get("num_return_sequences") === 1;
  if (!single) checkFollowed(request);
  const { skip_special_tokens = true, clean_up_tokenization_spaces: clean } = request.options;
  const decoding = {
    skip_special_tokens,
    ...(clean === undefined ? {} : { clean_up_tokenization_spaces: clean }),
  };
  const shortening = truncation_of({ ...request.options }, config, fields, decoder.max_length);
  const tools = await toolsOf(request);
  const grammar = await grammarOf(request);
  const results: unknown[] = [];
  const stats = { prompt_tokens: 0, new_tokens: 0, cached_tokens: 0, prefill_ms: 0, decode_ms: 0 };
  for (const input of inputs) {
    const { prompt, goingOn } = await promptOf(model, input, request.options, tools, shortening);
    const answers = tools?.answersTo(tokenizer, tools.tools, input as Message[], prompt);
    const { parallel_tool_calls: parallel = true } = request.options;
    const shape = answers ? answers.format(tools!.wanted, parallel, form) : form;
    const format =
      shape == null ? null : (await import("../grammar/index.ts")).formatOf(model, shape);
    const started = performance.now();
    const watch = new Watch(model, request, sink, started, grammar, answers);
    const made = await generate(decoder, prompt, config, {
      fields: { ...fields, return_dict_in_generate: true },
      streamer: single ? watch : undefined,
      signal,
      tokenizer,
      cache: request.options.cache ?? true,
      format,
      logits_processor: watch.processor,
      assistant_model: model.assistant?.decoder,
    }).then(
      (output) => output as GenerateOutput,
      (e: unknown) => soFar(e, signal, prompt),
    );
    stats.prompt_tokens += prompt.length;
    stats.cached_tokens += made.cached_tokens ?? 0;
    stats.new_tokens += made.sequences.reduce((sum, s) => sum + s.length - prompt.length, 0);
    stats.prefill_ms += (watch.first || performance.now()) - started;
    stats.decode_ms += watch.first ? watch.last - watch.first : 0;
    const decode = (ids: number[]) => tokenizer.decode(ids, decoding);
    const details = !!fields.return_dict_in_generate;
    const shown = { ...request.options };
    const read = grammar?.isJson ? grammar.parsed : null;
    const message = answers ? (ids: number[]) => answers.message(ids) : null;
    results.push(records_of(input, prompt, made, goingOn, shown, details, decode, read, message));
  }
  info.memory.kept = decoder.kept?.bytes() ?? 0;
  info.memory.engine = model.device.memoryBytes; // it may be another one by now
  return { output: several ? results : results[0], info, stats };
}

/** @throws InputError if several texts were to be followed while they are written */
function checkFollowed({ stream, tokens, parsed, deltas, options }: GenerateRequest): void {
  if (stream || tokens || parsed || deltas || options.logprobs !== undefined)
    throw new InputError(
      "a streamer can follow one text only",
      "streamer",
      "Leave num_beams and num_return_sequences at 1 and give one input, or generate without " +
        "a streamer.",
    );
}

/** What tools need, if the call has them. @throws InputError */
export async function toolsOf({
  options,
  deltas,
}: Pick<GenerateRequest, "options" | "deltas">): Promise<Tools | undefined> {
  if (options.tools == null && options.tool_choice == null && !deltas) return undefined;
  const part = await import("../tools/index.ts");
  const { tools: given = null, tool_choice = null } = options;
  const [tools, wanted] = part.chosen_tools(given, tool_choice, deltas);
  return tools ? { ...part, tools, wanted } : undefined;
}

/** What formats need, if the call has one. */
async function grammarOf({ fields, parsed }: GenerateRequest): Promise<Grammar | undefined> {
  const { response_format: format } = fields;
  const { is_json, ...part } =
    format == null ? { is_json: null } : await import("../grammar/index.ts");
  (part as Partial<GrammarPart>).check_given?.(format);
  const isJson = is_json?.(format) ?? false;
  if (parsed && !isJson)
    throw new InputError(
      "on_parsed needs a response_format of JSON",
      "pipeline",
      "Give a schema, or take the text from streamer.",
    );
  return is_json ? { ...(part as GrammarPart), isJson } : undefined;
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
    cached_tokens: null,
  };
}

/**
 * Token ids of an input, shortened if the call says so. `goingOn`: whether the last message of a
 * chat is continued.
 */
export async function promptOf(
  { tokenizer }: Model,
  input: Input,
  options: TextOptions,
  tools: Tools | undefined,
  how: Truncation | null,
): Promise<{ prompt: number[]; goingOn: boolean }> {
  const goingOn = continues(input, options.continue_final_message ?? null);
  tools?.check_chat(input);
  if (Array.isArray(input)) {
    const encode = (messages: Message[], opens: boolean) =>
      chatIds(
        tokenizer,
        messages,
        { add_generation_prompt: opens && !goingOn, continue_final_message: opens && goingOn },
        tools,
      );
    const ids = await encode(input, true);
    const fitting = how && fitting_chat(input, ids, how.room);
    const prompt = await (fitting
      ? drive(fitting, ({ messages, opens }) => encode(messages as Message[], opens))
      : ids);
    return { prompt, goingOn };
  }
  const ids =
    typeof input === "string"
      ? tokenizer.encode(input, options.add_special_tokens ?? true)
      : input.input_ids;
  return { prompt: how ? cut(ids, how, tokenizer.id("bos_token") ?? null) : ids, goingOn };
}

/**
 * The token ids of a chat, whose variables may have tools.
 * @throws TokenizerError, InputError
 */
export async function chatWithTools(
  tokenizer: Tokenizer,
  messages: Message[],
  { tools, ...variables }: TemplateOptions,
): Promise<number[]> {
  const own = await toolsOf({ options: { tools } as TextOptions, deltas: false });
  return chatIds(tokenizer, messages, variables, own);
}

/**
 * The token ids of a chat, in whose texts special tokens are text.
 * @throws TokenizerError, InputError
 */
async function chatIds(
  tokenizer: Tokenizer,
  messages: Message[],
  variables: TemplateOptions,
  tools?: Tools,
): Promise<number[]> {
  await tokenizer.prepare();
  const part =
    tools ?? (mayHaveTokens(tokenizer, messages) ? await import("../tools/index.ts") : undefined);
  return part
    ? part.chatPrompt(tokenizer, messages, tools?.tools ?? null, variables)
    : tokenizer.encode(tokenizer.render(messages, variables), false);
}

/** Whether the texts of messages may have special tokens, or marks of calls and reasoning. */
function mayHaveTokens(tokenizer: Tokenizer, messages: Message[]): boolean {
  const text = JSON.stringify(messages.map((message) => Object.values(message)));
  return (
    /<|\[[A-Z/]|"tool_calls"|"arguments"/.test(text) ||
    tokenizer.addedTokens.some(({ content }) => content.trim() && text.includes(content))
  );
}

/** Measures a generation, and passes text and token ids on to a sink. */
class Watch implements Streamer {
  /** Time of the first new token; 0 before. */
  first = 0;
  /** Time of the latest token. */
  last: number;
  private steps = 0;
  private readonly text: DecodingStreamer | undefined;
  private readonly value: DecodingStreamer | undefined;
  private readonly parts: ReturnType<Answers["streamer"]> | undefined;
  /** Keeps the logits of each step, where log-probabilities were asked for. */
  readonly processor: ((ids: number[], scores: Float32Array) => null) | undefined;
  private logits = new Float32Array();

  constructor(
    private readonly model: Model,
    private readonly request: GenerateRequest,
    private readonly sink: Sink,
    started: number,
    grammar: Grammar | undefined,
    answers: Answers | undefined,
  ) {
    this.last = started;
    const { tokenizer } = model;
    const { stream } = request;
    if (request.options.logprobs !== undefined)
      this.processor = (_, scores) => {
        this.logits = scores.slice();
        return null;
      };
    this.text =
      stream &&
      new DecodingStreamer(tokenizer, {
        skip_prompt: stream.skip_prompt,
        by_word: request.fields.response_format == null, // JSON has few spaces
        callback_function: (piece) => sink.text(piece, false),
        decode_kwargs: stream.decode,
      });
    if (request.deltas) this.parts = answers?.streamer((delta) => sink.delta(delta));
    if (!grammar || !request.parsed) return;
    const value = new grammar.ParsedText((parsed) => sink.parsed(parsed));
    this.value = new DecodingStreamer(tokenizer, {
      skip_prompt: true,
      by_word: false,
      callback_function: (piece) => value.put(piece),
    });
  }

  put(ids: number[]): void {
    this.last = performance.now();
    if (this.steps++ === 1) this.first = this.last; // the first call has the prompt
    const most = this.request.options.logprobs;
    if (most !== undefined && this.steps > 1) {
      const text = (id: number) => this.model.tokenizer.decode([id], {});
      this.sink.scores(ids.map((id) => score_of(this.logits, id, most, text)));
    }
    if (this.request.tokens) this.sink.tokens(Array.from(ids));
    this.text?.put(ids);
    this.value?.put(ids);
    this.parts?.put(ids);
  }

  end(): void {
    this.text?.end();
    this.value?.end();
    this.parts?.end();
    this.sink.text("", true);
  }
}
