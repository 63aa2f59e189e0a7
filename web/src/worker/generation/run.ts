// Generation for one prompt: sampling and beam search.

import type { Host } from "../../device/device.ts";
import { Beams, Candidate, FINISH_REASONS, Finished, Sampling } from "../../gen/sampling.ts";
import { caches_of } from "../../logic/generation/beams.ts";
import { type Configuration, error_for } from "../../logic/generation/config.ts";
import type { StopStrings } from "../../logic/generation/stop_strings.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import type {
  Choosing,
  Decoder,
  FinishReason,
  GenerateOutput,
  GenerationOptions,
  Logits,
  LogitsProcessor,
  StoppingCriterion,
} from "./types.ts";

const listed = <T>(value: T | T[] | undefined): T[] =>
  value === undefined ? [] : Array.isArray(value) ? value : [value];

interface Step {
  scores: Float32Array | undefined;
  logits: Float32Array | undefined;
}

/** Generation for one prompt: its memory and loops. */
export class GenerationRun<S> {
  private readonly engine: Host;
  private readonly addresses: number[] = [];
  private readonly sequences: S[] = [];
  private readonly processors: LogitsProcessor[];
  private readonly criteria: StoppingCriterion[];
  protected params = 0;
  private lists = 0;
  protected work = 0;
  private rng = 0;
  /** Chooses tokens where the decoder computes; undefined where all logits are needed here. */
  private choosing: Choosing | undefined;
  protected ids = 0;
  private state = 0;

  constructor(
    private readonly decoder: Decoder<S>,
    private readonly prompt: number[],
    private readonly config: Configuration,
    private readonly limit: number,
    private readonly seed: bigint,
    private readonly stream: number,
    private readonly options: GenerationOptions,
    private readonly output: GenerateOutput,
    private readonly stop: StopStrings | null,
    private readonly deadline: number,
  ) {
    this.engine = decoder.engine;
    this.processors = listed(options.logits_processor);
    this.criteria = listed(options.stopping_criteria);
  }

  allocate(): void {
    const [members, ids] = this.config.pack(
      this.decoder.vocab_size,
      this.prompt.length,
      this.limit,
      this.decoder.encoder_input_ids,
    );
    const lists = Int32Array.from(ids);
    this.params = this.alloc(sizeOf(Sampling), packRecord(Sampling, members));
    this.lists = this.alloc(Math.max(4, lists.byteLength), viewBytes(lists));
    this.checked("ew_sampling_check", this.params, this.lists);
    this.work = this.alloc(this.checked("ew_sampling_work_bytes", this.decoder.vocab_size));
    const { config, decoder } = this;
    if (!decoder.scored && !this.processors.length)
      if (!config.get("output_scores") && !config.get("output_logits"))
        this.choosing = decoder.choosing?.(members, this.work);
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

  protected checked(name: string, ...args: number[]): number {
    const code = this.engine.call(name, ...args) | 0;
    if (code < 0) throw error_for(code, Sampling.members);
    return code;
  }

  protected writeIds(at: number, ids: number[]): void {
    this.engine.write(this.ids + 4 * at, viewBytes(Int32Array.from(ids)));
  }

  private floats(address: number): Float32Array {
    return new Float32Array(this.engine.read(address, 4 * this.decoder.vocab_size).slice().buffer);
  }

  private integers(address: number, n: number): number[] {
    return Array.from(new Int32Array(this.engine.read(address, 4 * n).slice().buffer));
  }

  protected open(): S {
    const sequence = this.decoder.open();
    this.sequences.push(sequence);
    return sequence;
  }

  /** Runs the prompt, yielding between chunks. Returns the logits after it. */
  private async *prefill(sequence: S): AsyncGenerator<undefined, Logits> {
    const piece = this.decoder.prefill_chunk || this.prompt.length;
    let logits: Logits = 0;
    for (let at = 0; at < this.prompt.length; at += piece) {
      if (at) yield undefined;
      this.checkAbort([]);
      logits = await this.compute(sequence, this.prompt.slice(at, at + piece));
    }
    return logits;
  }

  /** Runs the last of `ids`, the only one not in the cache. */
  protected forward(sequence: S, ids: number[]): Promise<Logits> {
    if (this.config.get("use_cache") !== false)
      return this.compute(sequence, ids.slice(-1), this.limit - ids.length);
    this.decoder.truncate(sequence, 0);
    return this.compute(sequence, ids);
  }

  private compute(sequence: S, ids: number[], room = 1): Promise<Logits> {
    const { choosing, decoder } = this;
    return choosing
      ? decoder.forwardBest!(sequence, ids, choosing, room)
      : decoder.forward(sequence, ids);
  }

  private checkAbort(sequences: number[][]): void {
    if (!this.options.signal?.aborted) return;
    const error = new Aborted("generation was aborted", "generate");
    error.sequences = [...this.output.sequences, ...sequences];
    throw error;
  }

  /** Processes logits; the scores are at `this.work`. */
  protected process(idsAt: number, length: number, ids: () => number[], logits: number): void {
    this.checked("ew_sampling_process", this.params, this.lists, idsAt, length, logits, this.work);
    if (!this.processors.length) return;
    let scores = this.floats(this.work);
    for (const processor of this.processors) scores = processor(ids(), scores) ?? scores;
    if (scores.length !== this.decoder.vocab_size)
      throw new InputError(
        `a logits_processor returned ${scores.length} scores instead of ${this.decoder.vocab_size}`,
        "generate",
      );
    this.engine.write(this.work, viewBytes(scores));
  }

  /** Whether `ids`, after its last token, ends by a criterion that is not implemented in C. */
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

  private step(logits: Logits): Step {
    return {
      scores: undefined,
      logits: this.config.get("output_logits") ? this.floats(logits as number) : undefined,
    };
  }

  // Greedy and multinomial sampling: transformers' _sample, for one returned sequence at a time.

  async *sample(): AsyncGenerator<number | undefined, void> {
    const { decoder, config, output } = this;
    const streamer = this.options.streamer;
    const several: number = config.get("num_return_sequences");
    const promptCache = this.open();
    let firstLogits = yield* this.prefill(promptCache);
    // all first tokens are drawn from these logits, which the next forward would overwrite
    if (several > 1 && typeof firstLogits === "number")
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
      const { ids, reason, record } = yield* this.sampleOne(sequence, firstLogits);
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

  /** Samples one sequence to its end, yielding each token. */
  private async *sampleOne(
    sequence: S,
    firstLogits: Logits,
  ): AsyncGenerator<number, { ids: number[]; reason: FinishReason; record: Step[] }> {
    const eos = new Set(this.config.eos_token_ids);
    const ids = [...this.prompt];
    const record: Step[] = [];
    let logits = firstLogits;
    for (;;) {
      this.checkAbort([ids]);
      const step = this.step(logits);
      const token = this.nextToken(ids, logits);
      this.decoder.scored?.(this.work, token);
      if (this.config.get("output_scores")) step.scores = this.floats(this.work);
      record.push(step);
      this.writeIds(ids.length, [token]);
      ids.push(token);
      this.options.streamer?.put([token]);
      yield token;
      const reason = eos.has(token)
        ? "eos"
        : ids.length >= this.limit
          ? "length"
          : this.endedByHost(ids);
      if (reason) return { ids, reason, record };
      try {
        logits = await this.forward(sequence, ids);
      } catch (e) {
        this.checkAbort([ids]); // while weights were loaded again
        throw e;
      }
    }
  }

  /** Chooses the token after `ids`. */
  private nextToken(ids: number[], logits: Logits): number {
    const { params, lists, work, rng } = this;
    const draw = () => this.checked("ew_sampling_pick", params, work, rng);
    if (typeof logits !== "number") return logits(draw);
    if (!this.processors.length)
      return this.checked(
        "ew_sampling_next",
        params,
        lists,
        this.ids,
        ids.length,
        logits,
        work,
        rng,
      );
    this.process(this.ids, ids.length, () => [...ids], logits);
    return draw();
  }

  // Beam search: transformers' _beam_search.

  async *search(): AsyncGenerator<undefined, void> {
    const { config, output } = this;
    this.state = this.alloc(this.checked("ew_beams_bytes", this.params));
    this.checked("ew_beams_start", this.params, this.state, this.ids, this.prompt.length);
    this.startRandom(this.stream);
    let caches = [this.open()];
    let logits = (yield* this.prefill(caches[0]!)) as number; // beams need them all
    let head = this.head();
    const recorded: Step[][] = [];
    for (;;) {
      const steps: Step[] = [];
      for (let beam = 0; beam < head.n_running; beam++) {
        this.checkAbort([]);
        const at = head;
        if (head.length > this.prompt.length)
          logits = (await this.forward(caches[beam]!, this.row(head, beam))) as number;
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
      config.get("num_return_sequences"),
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
    return unpackRecord(Beams, this.engine.read(this.state, sizeOf(Beams)));
  }

  private records<L extends Layout>(layout: L, address: number, n: number): Record_<L>[] {
    const bytes = this.engine.read(address, n * sizeOf(layout));
    return Array.from({ length: n }, (_, i) => unpackRecord(layout, bytes, i * sizeOf(layout)));
  }

  private rowAt(head: Record_<typeof Beams>, beam: number): number {
    return this.state + head.rows_at + 4 * head.max_length * beam;
  }

  private row(head: Record_<typeof Beams>, beam: number): number[] {
    return this.integers(this.rowAt(head, beam), head.length);
  }

  /** Marks candidates that end by the caller's criteria as done. */
  private markEnded(head: Record_<typeof Beams>, found: number): void {
    const at = this.state + head.candidates_at;
    for (const [i, candidate] of this.records(Candidate, at, found).entries()) {
      if (candidate.done) continue;
      const reason = this.endedByHost([...this.row(head, candidate.beam), candidate.token]);
      if (reason)
        this.engine.write(
          at + i * sizeOf(Candidate) + 4 * Candidate.members.indexOf("done"),
          viewBytes(Uint32Array.of(FINISH_REASONS.indexOf(reason))),
        );
    }
  }

  /** The caches of the new beams; beam i continues parents[i]. */
  private reorder(caches: S[], parents: number[]): S[] {
    const { of_beams, copies, unused } = caches_of(parents, caches.length);
    const all = [...caches];
    for (const [source, target] of copies) {
      if (target === all.length) all.push(this.open());
      this.decoder.copy(all[source]!, all[target]!);
    }
    for (const number of unused) {
      // fewer beams than before, which is rare
      this.sequences.splice(this.sequences.indexOf(all[number]!), 1);
      this.decoder.close(all[number]!);
    }
    return of_beams.map((number) => all[number]!);
  }

  private record(steps: Step[][]): void {
    for (const name of ["scores", "logits"] as const)
      if (this.config.get(`output_${name}`))
        (this.output[name] ??= []).push(...steps.map((step) => step.map((entry) => entry[name])));
  }
}

export type Layout = { readonly members: readonly string[]; readonly kinds: string };
export type Record_<L extends Layout> = { [K in L["members"][number]]: number };

/** Bytes of a struct: all members take four. */
export const sizeOf = ({ members }: Layout): number => 4 * members.length;

const METHODS: Readonly<Record<string, "Uint32" | "Int32" | "Float32">> = {
  u: "Uint32",
  i: "Int32",
  f: "Float32",
};

export function packRecord(layout: Layout, values: Record<string, number>): Uint8Array {
  const view = new DataView(new ArrayBuffer(sizeOf(layout)));
  layout.members.forEach((name, i) => {
    view[`set${METHODS[layout.kinds[i]!]!}`](4 * i, values[name]!, true);
  });
  return new Uint8Array(view.buffer);
}

export function unpackRecord<L extends Layout>(
  layout: L,
  bytes: Uint8Array,
  offset = 0,
): Record_<L> {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, sizeOf(layout));
  return Object.fromEntries(
    layout.members.map((name, i) => [name, view[`get${METHODS[layout.kinds[i]!]!}`](4 * i, true)]),
  ) as Record_<L>;
}

export const viewBytes = (array: Int32Array | Uint32Array | Float32Array) =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
