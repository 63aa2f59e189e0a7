// The generation loop: a decoder makes logits, core/sampling chooses, this keeps the order of
// things. The same loop as python/edgewise/text/generate.py, step by step, so that a seed gives the
// same tokens in both.

import { Aborted, InputError } from "../../shared/errors.ts";
import {
  BEAMS_ONLY,
  Beams,
  Candidate,
  FINISH_REASONS,
  Finished,
  Sampling,
  SAMPLING_ONLY,
} from "../../gen/sampling.ts";
import { errorFor, GenerationConfig } from "./config.ts";
import type { GenerationFields } from "../../protocol/generation.ts";

/** Memory of the engine and its functions. Views are copies: the engine's memory may grow. */
export interface EngineMemory {
  /** Address of so many bytes, zeroed. Throws OutOfMemory. */
  alloc(bytes: number): number;
  /** Gives back what `alloc` gave. */
  free(address: number): void;
  /** Copies bytes to an address. */
  write(address: number, bytes: Uint8Array): void;
  /** A copy of so many bytes. */
  read(address: number, bytes: number): Uint8Array<ArrayBuffer>;
  /** Calls a function of core/sampling/sampling.h. */
  call(name: string, ...args: number[]): number;
}

/** What makes logits. S: whatever stands for a sequence and its cache. */
export interface Decoder<S = unknown> {
  /** Number of logits. */
  readonly vocab_size: number;
  /** How many tokens a sequence can have. */
  readonly max_length: number;
  /**
   * Prompts are given to `forward` in pieces of so many ids, so that an abort is heard between
   * them.
   */
  readonly prefill_chunk?: number;
  /** Contents of config.json; of use where there is no generation_config.json. */
  readonly config?: Record<string, unknown>;
  /** Contents of generation_config.json. */
  readonly generation_config?: Record<string, unknown>;
  /** Whose memory the logits lie in. */
  readonly engine: EngineMemory;
  /** A new empty sequence. Throws OutOfMemory. */
  open(): S;
  /** Frees a sequence's cache. */
  close(sequence: S): void;
  /** target's cache := source's */
  copy(source: S, target: S): void;
  /** Forgets all but the first n tokens. */
  truncate(sequence: S, n: number): void;
  /**
   * Appends ids; the address of float32[vocab_size], the logits after the last one, valid until the
   * next forward.
   */
  forward(sequence: S, ids: number[]): number;
}

/** Follows a generation; transformers' protocol. */
export interface Streamer {
  /** First the prompt's ids, then each token. */
  put(ids: number[]): void;
  /** Behind the last token, and where the generation failed. */
  end(): void;
}

/** What stop strings and streamers want of a tokenizer. */
export interface StopTokenizer {
  /** The text of token ids. */
  decode(ids: number[], options?: { skip_special_tokens?: boolean }): string;
}

/** Gets all ids so far and float32 [vocab_size] scores; gives others, or changes them in place. */
export type LogitsProcessor = (ids: number[], scores: Float32Array) => Float32Array | void;
/** Gets all ids so far, and the step's scores with `output_scores`; true ends the sequence. */
export type StoppingCriterion = (ids: number[], scores: Float32Array | undefined) => boolean;

/** What a generation gets besides its config. */
export interface GenerateOptions {
  /** The call's own fields, which win over the config: transformers' keyword arguments. */
  fields?: GenerationFields;
  /** Only for one sequence without beams. */
  streamer?: Streamer;
  /** Ends it: Aborted, with the ids so far. */
  signal?: AbortSignal;
  /** Needed for stop_strings. */
  tokenizer?: StopTokenizer;
  /**
   * Runs where transformers runs it: after its own processors, before temperature and the filters.
   */
  logits_processor?: LogitsProcessor | LogitsProcessor[];
  /** Asked after each token; any of them ends the sequence. */
  stopping_criteria?: StoppingCriterion | StoppingCriterion[];
  /** Gets what a caller should know and that is no error; by default console.warn. */
  warn?: (message: string) => void;
}

/** Why a sequence ended. */
export type FinishReason = Exclude<(typeof FINISH_REASONS)[number], "running">;

/** What `return_dict_in_generate` gives. */
export interface GenerateOutput {
  /** One list of ids per result, prompt included, prompt by prompt, never padded. */
  sequences: number[][];
  /** One for each sequence. */
  finish_reasons: FinishReason[];
  /**
   * With output_scores, output_logits: per step one array [vocab_size] per sequence (undefined once
   * it has ended; with beams, per running beam).
   */
  scores?: (Float32Array | undefined)[][];
  /** As `scores`, before they were processed. */
  logits?: (Float32Array | undefined)[][];
  /** With num_beams > 1. */
  sequences_scores?: number[];
}

/**
 * Continues token ids; resolves to the sequences, or with return_dict_in_generate to a
 * GenerateOutput. Gives the event loop a turn between tokens, so that an abort is heard. Throws
 * UnsupportedField, InputError, EngineError, Aborted.
 * @param input_ids the prompt's ids, or a list of prompts (each is generated by itself)
 * @param config what is not set in it comes from decoder.generation_config
 * /
 */
export async function generate<S>(
  decoder: Decoder<S>,
  input_ids: ArrayLike<number> | ArrayLike<number>[],
  config: GenerationConfig | GenerationFields = {},
  options: GenerateOptions = {},
): Promise<number[][] | GenerateOutput> {
  const running = steps(decoder, input_ids, config, options);
  let last = performance.now();
  try {
    for (;;) {
      const step = running.next();
      if (step.done)
        return step.value.config.get("return_dict_in_generate")
          ? step.value.output
          : step.value.output.sequences;
      if (performance.now() - last > 8) {
        await turn();
        last = performance.now();
      }
    }
  } finally {
    running.return(undefined as never);
  }
}

/**
 * generate as a generator, for hosts that have other things to do between tokens. Returning early
 * frees everything.
 */
export function* steps<S>(
  decoder: Decoder<S>,
  input_ids: ArrayLike<number> | ArrayLike<number>[],
  config: GenerationConfig | GenerationFields = {},
  options: GenerateOptions = {},
): Generator<number | undefined, { output: GenerateOutput; config: GenerationConfig }> {
  const fields = new GenerationConfig(options.fields, "generate");
  const given = (
    config instanceof GenerationConfig ? config : new GenerationConfig(config, "generate")
  ).merged(fields);
  const warn = options.warn ?? ((message: string) => console.warn(`edgewise: ${message}`));
  const resolved = resolve(decoder, given, fields, warn);
  const prompts = promptsOf(input_ids, resolved, decoder.vocab_size);
  const several = resolved.get("num_return_sequences")!;
  if (options.streamer && (resolved.get("num_beams")! > 1 || several > 1 || prompts.length > 1))
    throw new InputError(
      "a streamer can follow one sequence only",
      "generate",
      "Leave num_beams and num_return_sequences at 1 and give one prompt, or generate " +
        "without a streamer.",
    );
  const time = resolved.get("max_time");
  const deadline = time === null ? Infinity : performance.now() + time * 1000;
  const strings = resolved.get("stop_strings");
  const stop =
    strings !== null && (strings as unknown[]).length !== 0
      ? new StopStrings(options.tokenizer, strings)
      : undefined;
  const output: GenerateOutput = { sequences: [], finish_reasons: [] };
  const seed = BigInt.asUintN(
    64,
    BigInt(resolved.get("seed") ?? crypto.getRandomValues(new BigUint64Array(1))[0]!),
  );
  for (const [number, prompt] of prompts.entries()) {
    const limit = lengthLimit(resolved, fields, prompt.length, decoder.max_length, warn);
    const run = new Run(
      decoder,
      prompt,
      resolved,
      limit,
      seed,
      number * several,
      options,
      output,
      stop,
      deadline,
    );
    let over = false;
    try {
      run.allocate();
      yield* resolved.get("num_beams")! > 1 ? run.search() : run.sample();
      over = true;
    } finally {
      try {
        if (!over) options.streamer?.end(); // whoever reads from it waits for that
      } finally {
        run.free();
      }
    }
  }
  return { output, config: resolved };
}

type Layout = {
  readonly bytes: number;
  readonly at: Readonly<Record<string, number>>;
  readonly kind: Readonly<Record<string, string>>;
};
type Record_<L extends Layout> = { [K in keyof L["at"]]: number };

function packRecord(layout: Layout, values: Record<string, number>): Uint8Array {
  const view = new DataView(new ArrayBuffer(layout.bytes));
  for (const [name, at] of Object.entries(layout.at)) {
    const value = values[name]!;
    if (layout.kind[name] === "f32") view.setFloat32(at, value, true);
    else if (layout.kind[name] === "i32") view.setInt32(at, value, true);
    else view.setUint32(at, value, true);
  }
  return new Uint8Array(view.buffer);
}

function unpackRecord<L extends Layout>(layout: L, bytes: Uint8Array, offset = 0): Record_<L> {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, layout.bytes);
  const read = (name: string, at: number) =>
    layout.kind[name] === "f32"
      ? view.getFloat32(at, true)
      : layout.kind[name] === "i32"
        ? view.getInt32(at, true)
        : view.getUint32(at, true);
  return Object.fromEntries(
    Object.entries(layout.at).map(([name, at]) => [name, read(name, at)]),
  ) as Record_<L>;
}

const bytesOf = (array: Int32Array | Uint32Array | Float32Array) =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const listed = <T>(value: T | T[] | undefined): T[] =>
  value === undefined ? [] : Array.isArray(value) ? value : [value];

interface Step {
  scores: Float32Array | undefined;
  logits: Float32Array | undefined;
}

/** One prompt's generation: the engine memory it uses and the loops. */
class Run<S> {
  private readonly engine: EngineMemory;
  private readonly addresses: number[] = [];
  private readonly sequences: S[] = [];
  private readonly processors: LogitsProcessor[];
  private readonly criteria: StoppingCriterion[];
  private params = 0;
  private lists = 0;
  private work = 0;
  private rng = 0;
  private ids = 0;
  private state = 0;

  constructor(
    private readonly decoder: Decoder<S>,
    private readonly prompt: number[],
    private readonly config: GenerationConfig,
    private readonly limit: number,
    private readonly seed: bigint,
    private readonly stream: number,
    private readonly options: GenerateOptions,
    private readonly output: GenerateOutput,
    private readonly stop: StopStrings | undefined,
    private readonly deadline: number,
  ) {
    this.engine = decoder.engine;
    this.processors = listed(options.logits_processor);
    this.criteria = listed(options.stopping_criteria);
  }

  allocate(): void {
    const { members, lists } = this.config.pack(
      this.decoder.vocab_size,
      this.prompt.length,
      this.limit,
    );
    this.params = this.alloc(Sampling.bytes, packRecord(Sampling, members));
    this.lists = this.alloc(Math.max(4, lists.byteLength), bytesOf(lists));
    this.checked("ew_sampling_check", this.params, this.lists);
    this.work = this.alloc(this.checked("ew_sampling_work_bytes", this.decoder.vocab_size));
    this.rng = this.alloc(16);
    this.ids = this.alloc(4 * this.limit);
    this.writeIds(0, this.prompt);
  }

  free(): void {
    for (const sequence of this.sequences.splice(0)) this.decoder.close(sequence);
    for (const address of this.addresses.splice(0)) this.engine.free(address);
  }

  private alloc(bytes: number, data?: Uint8Array): number {
    const address = this.engine.alloc(bytes);
    this.addresses.push(address);
    if (data?.length) this.engine.write(address, data);
    return address;
  }

  private checked(name: string, ...args: number[]): number {
    const code = this.engine.call(name, ...args) | 0;
    if (code < 0) throw errorFor(code);
    return code;
  }

  private writeIds(at: number, ids: number[]): void {
    this.engine.write(this.ids + 4 * at, bytesOf(Int32Array.from(ids)));
  }

  private floats(address: number): Float32Array {
    return new Float32Array(this.engine.read(address, 4 * this.decoder.vocab_size).slice().buffer);
  }

  private integers(address: number, n: number): number[] {
    return Array.from(new Int32Array(this.engine.read(address, 4 * n).slice().buffer));
  }

  private open(): S {
    const sequence = this.decoder.open();
    this.sequences.push(sequence);
    return sequence;
  }

  /** Yields between pieces of the prompt, returns the address of the logits after it. */
  private *prefill(sequence: S): Generator<undefined, number> {
    const piece = this.decoder.prefill_chunk || this.prompt.length;
    let logits = 0;
    for (let at = 0; at < this.prompt.length; at += piece) {
      if (at) yield undefined;
      this.checkAbort([]);
      logits = this.decoder.forward(sequence, this.prompt.slice(at, at + piece));
    }
    return logits;
  }

  /** The address of the logits after `ids`, of which only the last is new to the cache. */
  private forward(sequence: S, ids: number[]): number {
    if (this.config.get("use_cache") !== false)
      return this.decoder.forward(sequence, ids.slice(-1));
    this.decoder.truncate(sequence, 0);
    return this.decoder.forward(sequence, ids);
  }

  private checkAbort(sequences: number[][]): void {
    if (!this.options.signal?.aborted) return;
    const error = new Aborted("generation was aborted", "generate");
    error.sequences = [...this.output.sequences, ...sequences];
    throw error;
  }

  /** work.scores = processed logits. */
  private process(idsAt: number, length: number, ids: () => number[], logits: number): void {
    this.checked("ew_sampling_process", this.params, this.lists, idsAt, length, logits, this.work);
    if (!this.processors.length) return;
    let scores = this.floats(this.work);
    for (const processor of this.processors) scores = processor(ids(), scores) ?? scores;
    if (scores.length !== this.decoder.vocab_size)
      throw new InputError(
        `a logits_processor returned ${scores.length} scores instead of ${this.decoder.vocab_size}`,
        "generate",
      );
    this.engine.write(this.work, bytesOf(scores));
  }

  /** The reason why `ids`, whose last is new, ends by a criterion that C does not know. */
  private endedByHost(ids: number[]): FinishReason | undefined {
    if (this.stop?.hit(ids)) return "stop_string";
    if (performance.now() > this.deadline) return "max_time";
    if (!this.criteria.length) return undefined;
    const scores = this.config.get("output_scores") ? this.floats(this.work) : undefined;
    return this.criteria.some((criterion) => criterion([...ids], scores))
      ? "stopping_criteria"
      : undefined;
  }

  private startRandom(stream: number): void {
    this.engine.call(
      "ew_sampling_seed",
      this.rng,
      Number(this.seed & 0xffffffffn),
      Number(this.seed >> 32n),
      stream,
    );
  }

  private step(logits: number): Step {
    return {
      scores: undefined,
      logits: this.config.get("output_logits") ? this.floats(logits) : undefined,
    };
  }

  // Greedy and multinomial: transformers' _sample, one returned sequence after the other.

  *sample(): Generator<number | undefined, void> {
    const { decoder, config, output } = this;
    const streamer = this.options.streamer;
    const several = config.get("num_return_sequences")!;
    const eos = new Set(config.eosTokenIds);
    const promptCache = this.open();
    let firstLogits = yield* this.prefill(promptCache);
    // the first tokens are all drawn from these, and the next forward overwrites them
    if (several > 1)
      firstLogits = this.alloc(
        4 * decoder.vocab_size,
        this.engine.read(firstLogits, 4 * decoder.vocab_size),
      );
    const sequence = several === 1 ? promptCache : this.open();
    streamer?.put([...this.prompt]);
    const recorded: Step[][] = [];
    for (let i = 0; i < several; i++) {
      if (several > 1) decoder.copy(promptCache, sequence);
      this.startRandom(this.stream + i);
      const ids = [...this.prompt];
      const record: Step[] = [];
      let logits = firstLogits;
      let reason: FinishReason | undefined;
      for (;;) {
        this.checkAbort([ids]);
        const step = this.step(logits);
        let token: number;
        if (this.processors.length) {
          this.process(this.ids, ids.length, () => [...ids], logits);
          token = this.checked("ew_sampling_pick", this.params, this.work, this.rng);
        } else
          token = this.checked(
            "ew_sampling_next",
            this.params,
            this.lists,
            this.ids,
            ids.length,
            logits,
            this.work,
            this.rng,
          );
        if (config.get("output_scores")) step.scores = this.floats(this.work);
        record.push(step);
        this.writeIds(ids.length, [token]);
        ids.push(token);
        streamer?.put([token]);
        yield token;
        reason = eos.has(token)
          ? "eos"
          : ids.length >= this.limit
            ? "length"
            : this.endedByHost(ids);
        if (reason) break;
        logits = this.forward(sequence, ids);
      }
      output.sequences.push(ids);
      output.finish_reasons.push(reason);
      recorded.push(record);
    }
    const longest = Math.max(...recorded.map((record) => record.length));
    this.record(
      Array.from({ length: longest }, (_, n) =>
        recorded.map((record) => record[n] ?? { scores: undefined, logits: undefined }),
      ),
    );
    streamer?.end();
  }

  // Beam search: transformers' _beam_search.

  *search(): Generator<undefined, void> {
    const { decoder, config, output } = this;
    this.state = this.alloc(this.checked("ew_beams_bytes", this.params));
    this.checked("ew_beams_start", this.params, this.state, this.ids, this.prompt.length);
    this.startRandom(this.stream);
    let caches = [this.open()];
    let logits = yield* this.prefill(caches[0]!);
    let head = this.head();
    const recorded: Step[][] = [];
    for (;;) {
      const steps: Step[] = [];
      for (let beam = 0; beam < head.n_running; beam++) {
        this.checkAbort([]);
        const at = head;
        if (head.length > this.prompt.length)
          logits = this.forward(caches[beam]!, this.row(head, beam));
        const step = this.step(logits);
        this.process(this.rowAt(head, beam), head.length, () => this.row(at, beam), logits);
        this.checked("ew_sampling_warp", this.params, this.work);
        if (config.get("output_scores")) step.scores = this.floats(this.work);
        steps.push(step);
        this.checked("ew_beams_offer", this.params, this.state, beam, this.work, this.rng);
      }
      recorded.push(steps);
      const found = this.checked("ew_beams_rank", this.params, this.lists, this.state);
      if (this.stop || this.deadline < Infinity || this.criteria.length)
        this.markEnded(head, found);
      const goingOn = this.checked("ew_beams_advance", this.params, this.state);
      head = this.head();
      if (!goingOn) break;
      caches = this.reorder(caches, this.integers(this.state + head.parents_at, head.n_running));
      yield undefined;
    }
    output.sequences_scores ??= [];
    for (const one of this.records(Finished, this.state + head.done_at, head.n_done).slice(
      0,
      config.get("num_return_sequences")!,
    )) {
      output.sequences.push(
        this.integers(this.state + head.finished_at + 4 * head.max_length * one.row, one.length),
      );
      output.finish_reasons.push(FINISH_REASONS[one.reason] as FinishReason);
      output.sequences_scores.push(one.score);
    }
    this.record(recorded);
  }

  private head(): Record_<typeof Beams> {
    return unpackRecord(Beams, this.engine.read(this.state, Beams.bytes));
  }

  private records<L extends Layout>(layout: L, address: number, n: number): Record_<L>[] {
    const bytes = this.engine.read(address, n * layout.bytes);
    return Array.from({ length: n }, (_, i) => unpackRecord(layout, bytes, i * layout.bytes));
  }

  private rowAt(head: Record_<typeof Beams>, beam: number): number {
    return this.state + head.rows_at + 4 * head.max_length * beam;
  }

  private row(head: Record_<typeof Beams>, beam: number): number[] {
    return this.integers(this.rowAt(head, beam), head.length);
  }

  /** Sets `done` of the candidates that end by the caller's criteria. */
  private markEnded(head: Record_<typeof Beams>, found: number): void {
    const at = this.state + head.candidates_at;
    for (const [i, candidate] of this.records(Candidate, at, found).entries()) {
      if (candidate.done) continue;
      const reason = this.endedByHost([...this.row(head, candidate.beam), candidate.token]);
      if (reason)
        this.engine.write(
          at + i * Candidate.bytes + Candidate.at.done,
          bytesOf(Uint32Array.of(FINISH_REASONS.indexOf(reason))),
        );
    }
  }

  /**
   * New beam i goes on from the cache of parents[i]. A parent's first child takes its cache over,
   * the others get copies in the caches that nobody needs any more.
   */
  private reorder(caches: S[], parents: number[]): S[] {
    const unused = caches.filter((_, beam) => !parents.includes(beam));
    const taken = new Set<number>();
    const next = parents.map((parent) => {
      const cache = caches[parent]!;
      if (!taken.has(parent)) {
        taken.add(parent);
        return cache;
      }
      const other = unused.pop() ?? this.open();
      this.decoder.copy(cache, other);
      return other;
    });
    for (const cache of unused) {
      // fewer beams run than before, which is rare
      this.sequences.splice(this.sequences.indexOf(cache), 1);
      this.decoder.close(cache);
    }
    return next;
  }

  private record(steps: Step[][]): void {
    for (const name of ["scores", "logits"] as const)
      if (this.config.get(`output_${name}`))
        (this.output[name] ??= []).push(...steps.map((step) => step.map((entry) => entry[name])));
  }
}

/**
 * Has the last token completed one of the strings? One may begin in any token, the prompt's
 * included, and has to end in the last one.
 */
class StopStrings {
  private readonly strings: string[];
  private readonly window: number;

  constructor(
    private readonly tokenizer: StopTokenizer | undefined,
    strings: string | string[],
  ) {
    this.strings = listed(strings);
    if (!tokenizer)
      throw new InputError(
        "stop_strings need a tokenizer",
        "generate",
        "Pass tokenizer, or use eos_token_id or stopping_criteria.",
      );
    if (!this.strings.every((s) => typeof s === "string" && s))
      throw new InputError(
        "stop_strings has to be a string or a list of strings, none empty",
        "GenerationConfig",
      );
    // A token stands for at least a byte, and one more keeps a decoder's treatment of the first
    // token out of the string.
    this.window = Math.max(...this.strings.map((s) => new TextEncoder().encode(s).length)) + 1;
  }

  hit(ids: number[]): boolean {
    const tail = ids.slice(-this.window);
    const text = this.tokenizer!.decode(tail, { skip_special_tokens: false });
    const before =
      tail.length > 1
        ? this.tokenizer!.decode(tail.slice(0, -1), { skip_special_tokens: false })
        : "";
    let same = 0;
    while (same < text.length && same < before.length && text[same] === before[same]) same++;
    return this.strings.some((s) => text.includes(s, Math.max(0, same - s.length + 1)));
  }
}

/**
 * generation_config.json's contents; where there is no such file, the special tokens of
 * config.json, as transformers does.
 */
export function modelDefaults(
  decoder: Pick<Decoder, "config" | "generation_config">,
): Record<string, unknown> {
  if (decoder.generation_config && Object.keys(decoder.generation_config).length)
    return decoder.generation_config;
  const config = decoder.config ?? {};
  return Object.fromEntries(
    ["bos_token_id", "eos_token_id", "pad_token_id"]
      .filter((n) => config[n] != null)
      .map((n) => [n, config[n]]),
  );
}

function resolve(
  decoder: Pick<Decoder, "config" | "generation_config">,
  given: GenerationConfig,
  fields: GenerationConfig,
  warn: (message: string) => void,
): GenerationConfig {
  const config = GenerationConfig.fromJson(modelDefaults(decoder)).merged(given);
  config.validate();
  const idle = [
    [SAMPLING_ONLY, !config.get("do_sample"), "do_sample: true"],
    [BEAMS_ONLY, config.get("num_beams") === 1, "num_beams > 1"],
  ] as const;
  for (const [names, without, need] of idle)
    for (const name of names)
      if (without && fields.isSet(name) && fields.get(name) !== null)
        warn(`${name} has an effect only with ${need}`);
  return config;
}

function promptsOf(
  input: ArrayLike<number> | ArrayLike<number>[],
  config: GenerationConfig,
  vocab: number,
): number[][] {
  if (typeof input !== "object" || input === null || !("length" in input))
    throw new InputError(
      "input_ids has to be a list of token ids",
      "generate",
      "Encode the text with the model's tokenizer first.",
    );
  const first = input[0];
  const lists = (
    typeof first === "object" ? Array.from(input as ArrayLike<number>[]) : [input]
  ) as ArrayLike<number>[];
  return lists.map((list) => {
    const prompt = Array.from(list, Number);
    if (!prompt.length) {
      const bos = config.get("bos_token_id");
      if (bos === null)
        throw new InputError(
          "the prompt is empty and there is no bos_token_id to begin with",
          "generate",
          "Give at least one token.",
        );
      prompt.push(bos);
    }
    for (const id of prompt)
      if (!(Number.isInteger(id) && id >= 0 && id < vocab))
        throw new InputError(
          `the prompt holds the token id ${id}, and the vocabulary has ${vocab}`,
          "generate",
          "The tokenizer and the model do not belong together.",
        );
    return prompt;
  });
}

/**
 * max_length of this prompt, as transformers: max_new_tokens wins, and the default means 20 new
 * tokens unless it is among the call's own fields. What the model's cache cannot hold is cut off,
 * with a warning when it was asked for.
 */
export function lengthLimit(
  config: GenerationConfig,
  fields: GenerationConfig,
  prompt: number,
  capacity: number,
  warn: (message: string) => void,
): number {
  const [more, whole] = [config.get("max_new_tokens"), config.get("max_length")];
  const asked =
    more !== null ||
    (whole !== null &&
      (whole !== 20 || (fields.isSet("max_length") && fields.get("max_length") !== null)));
  const limit = more !== null ? prompt + more : asked ? whole! : prompt + 20;
  if (prompt >= capacity)
    throw new InputError(
      `the prompt has ${prompt} tokens, and the model's cache holds ${capacity}`,
      "generate",
      "Shorten the prompt, or load the model with a larger max_length.",
    );
  if (prompt >= limit)
    throw new InputError(
      `the prompt has ${prompt} tokens, but max_length is ${limit}`,
      "generate",
      "Raise max_length, or set max_new_tokens.",
    );
  if (limit > capacity && asked)
    warn(
      `generation ends at ${capacity} tokens, which is what the model's cache holds; ` +
        `${limit} were allowed`,
    );
  return Math.min(limit, capacity);
}

/**
 * One turn of the event loop. A message comes sooner than a timer, which browsers hold back for 4
 * ms.
 */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
