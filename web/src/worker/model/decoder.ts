// A language model in the engine: its weights, its plans, and the sequences that are being written.
// What the generation loop sees is the Decoder interface (generation/); the order of things between
// ids and logits is here.

import type { Buffer, Device, Host, Plan } from "../../device/device.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import type { Decoder } from "../generation/index.ts";
import type { DecoderInfo, PlanInfo } from "../package/manifest.ts";
import { NOTES } from "../package/notes.ts";
import type { Weights } from "./weights.ts";

/** The state of one text being written: how many tokens its caches hold. */
export interface Sequence {
  /** Tokens in its caches. */
  past: number;
  /** Of models without a cache: the text so far. */
  ids: number[];
  /** Memory by the cache's name. */
  caches: Map<string, Buffer>;
}

interface Loaded {
  info: PlanInfo;
  plan: Plan;
  /** Slots to bind again when another sequence runs. */
  cacheSlots: { slot: number; name: string }[];
  output: Buffer;
  bound: Sequence | undefined;
}

/**
 * What a run of so many tokens costs, in halves of what each further token of a long one does (as
 * session/decoder.py, where more is said).
 */
const runCost = (tokens: number) => (tokens === 1 ? 9 : 20 + 2 * tokens);

/** A package's language model in an engine. As python/edgewise/session/decoder.py. */
export class EngineDecoder implements Decoder<Sequence> {
  readonly vocab_size: number;
  /** How many tokens a sequence can have. */
  readonly max_length: number;
  /**
   * Prompts are given to `forward` in pieces of so many ids, so that an abort is heard between
   * them.
   */
  readonly prefill_chunk: number | undefined;
  /** Bytes of the caches of one sequence. */
  readonly cacheBytes: number;
  private readonly plans: Loaded[] = [];
  private readonly sequences = new Set<Sequence>();
  /** Caches of closed sequences, to be used again. */
  private spare: Map<string, Buffer>[] = [];

  /** The plans' input: int64 ids. */
  private readonly input: Buffer;
  /** Ids on their way to `input`, two 32-bit words each. */
  private readonly staging: Uint32Array<ArrayBuffer>;
  /** Number of ids in `input`; zeros follow. */
  private filled = 0;

  constructor(
    private readonly device: Device,
    readonly info: DecoderInfo,
    private readonly weights: Weights,
    files: Map<string, Uint8Array>,
    readonly generation_config: Record<string, unknown>,
    readonly config: Record<string, unknown>,
    private readonly where: string,
    release: boolean,
  ) {
    this.vocab_size = info.vocabSize;
    this.max_length = info.capacity;
    this.cacheBytes = info.caches.reduce((sum, c) => sum + c.bytes, 0);
    const most = info.plans[info.plans.length - 1]!.tokens;
    this.prefill_chunk = info.recompute ? undefined : most;
    this.staging = new Uint32Array(2 * most);
    const logits = device.allocate(4 * info.vocabSize, "the logits");
    this.input = device.allocate(8 * most, "the input");
    // the largest first, so that the arena is allocated once
    for (const plan of [...info.plans].reverse()) {
      const place = `${where}, ${plan.file}`;
      const handle = device.loadPlan(files.get(plan.file)!, place, plan.file, files.get(NOTES));
      const loaded: Loaded = {
        info: plan,
        plan: handle,
        cacheSlots: [],
        output: logits,
        bound: undefined,
      };
      this.plans.unshift(loaded);
      plan.slots.forEach(({ name, kind, bytes }, slot) => {
        const what = `${place}, slot '${name}'`;
        if (kind === "weight") {
          device.bind(handle, slot, weights.buffer(name), what);
        } else if (kind === "state") {
          device.bind(handle, slot, weights.adapter(name, bytes), what);
        } else if (kind === "cache") loaded.cacheSlots.push({ slot, name });
        else if (kind !== "computed")
          device.bind(handle, slot, kind === "input" ? this.input : logits, what);
      });
    }
    // Caches come with the first sequence: they fit where weights were that have been packed and
    // let go of by then.
    weights.compute(
      this.plans
        .map(({ plan, info: { slots, file } }) => ({ plan, slots, where: `${where}, ${file}` }))
        .reverse(),
      release,
    );
  }

  /**
   * From now on the weights of these names lie where `instead` says, all others where they always
   * were; what follows from weights is computed again. Also to be called when such weights have
   * changed. Sequences begun before are of no use afterwards.
   */
  useWeights(instead: Map<string, Buffer>): void {
    for (const { info, plan } of this.plans) {
      const place = `${this.where}, ${info.file}`;
      info.slots.forEach(({ name, kind }, slot) => {
        if (kind !== "weight") return;
        if (!instead.has(name) && !this.weights.has(name))
          throw new EngineError(
            `the weight '${name}' is not there any more`,
            place,
            "This is a mistake in Edgewise; please report it.",
          );
        const buffer = instead.get(name) ?? this.weights.buffer(name);
        this.device.bind(plan, slot, buffer, `${place}, slot '${name}'`);
      });
      if (info.slots.some((s) => s.kind === "computed")) this.device.init(plan, place);
    }
  }

  /** C functions for sampling, in whose memory `forward` leaves the logits. */
  get engine(): Host {
    return this.device.host;
  }

  /** A new, empty sequence. */
  open(): Sequence {
    const caches = this.spare.pop() ?? new Map<string, Buffer>();
    try {
      for (const { name, bytes } of this.info.caches)
        if (!caches.has(name))
          caches.set(
            name,
            this.device.allocate(
              bytes,
              `the attention cache '${name}' of a sequence of ${this.max_length} tokens`,
            ),
          );
    } catch (e) {
      for (const buffer of caches.values()) this.device.release(buffer);
      throw e;
    }
    const sequence = { past: 0, ids: [], caches };
    this.sequences.add(sequence);
    return sequence;
  }

  /** Frees its caches, or keeps them for the next sequence where none are kept. */
  close(sequence: Sequence): void {
    if (!this.sequences.delete(sequence)) return;
    for (const loaded of this.plans) if (loaded.bound === sequence) loaded.bound = undefined;
    if (this.spare.length < 1) this.spare.push(sequence.caches);
    else for (const buffer of sequence.caches.values()) this.device.release(buffer);
  }

  /** Makes `target` go on from where `source` is. */
  copy(source: Sequence, target: Sequence): void {
    for (const { name } of this.info.caches)
      this.device.copy(source.caches.get(name)!, target.caches.get(name)!);
    target.past = source.past;
    target.ids = source.ids.slice();
  }

  /** Forgets all but the first `n` tokens. */
  truncate(sequence: Sequence, n: number): void {
    if (!(n >= 0 && n <= sequence.past))
      throw new InputError(
        `a sequence of ${sequence.past} tokens cannot be cut to ${n}`,
        "truncate",
        "",
      );
    sequence.past = n;
    sequence.ids.length = Math.min(sequence.ids.length, n);
  }

  /**
   * Appends `ids` to the sequence and runs them.
   * @returns the address in the host's memory of the logits after the last id, float32
   *   [vocab_size], valid until the next call
   */
  async forward(sequence: Sequence, ids: ArrayLike<number>): Promise<number> {
    return this.device.hosted(this.run(sequence, ids));
  }

  /** As `forward`; returns the logits where the device has them. */
  private run(sequence: Sequence, ids: ArrayLike<number>): Buffer {
    const n = ids.length;
    if (n < 1)
      throw new InputError("there are no ids to run", "forward", "Give at least one token.");
    if (sequence.past + n > this.max_length)
      throw new InputError(
        `${sequence.past + n} tokens do not fit: the model was compiled for at most ` +
          `${this.max_length}`,
        "forward",
        "Shorten the prompt or max_new_tokens, or compile with a larger capacity.",
      );
    if (this.info.recompute) {
      const whole = [...sequence.ids, ...Array.from(ids)];
      const loaded = this.plans.find((p) => p.info.tokens >= whole.length);
      if (!loaded)
        throw new InputError(
          `there is no plan for ${whole.length} tokens`,
          "forward",
          "Compile the model with a larger capacity.",
        );
      const output = this.runPlan(loaded, sequence, whole, 0, whole.length, 0);
      sequence.ids = whole;
      sequence.past = whole.length;
      return output;
    }
    const before = sequence.past;
    let output: Buffer | undefined;
    try {
      for (let at = 0; at < n; ) {
        const loaded = this.choose(n - at, sequence.past);
        const used = Math.min(loaded.info.tokens, n - at);
        output = this.runPlan(loaded, sequence, ids, at, used, sequence.past);
        sequence.past += used;
        at += used;
      }
    } catch (e) {
      sequence.past = before;
      throw e;
    }
    return output!;
  }

  /**
   * The plan for the next run: the first of those that together take `n` tokens at the lowest cost,
   * the longest first. A padded run costs what a full one does.
   */
  private choose(n: number, past: number): Loaded {
    const fitting = this.plans.filter((p) => past + p.info.tokens <= this.max_length).reverse();
    let best = fitting[0];
    if (!best)
      throw new InputError(
        `no run of the model fits between ${past} tokens and its limit of ${this.max_length}`,
        "forward",
        "Use a shorter sequence; a model with a plan for single tokens reaches its limit.",
      );
    if (n >= best.info.tokens) return best;
    const costs = [0];
    for (let m = 1; m <= n; m++) {
      costs[m] = Infinity;
      for (const p of fitting) {
        const cost = runCost(p.info.tokens) + costs[Math.max(m - p.info.tokens, 0)]!;
        if (cost < costs[m]!) [costs[m], best] = [cost, p];
      }
    }
    return best;
  }

  private runPlan(
    loaded: Loaded,
    sequence: Sequence,
    ids: ArrayLike<number>,
    at: number,
    used: number,
    past: number,
  ): Buffer {
    const { device, staging } = this;
    const { plan, info, output } = loaded;
    if (loaded.bound !== sequence) this.bindCaches(loaded, sequence);
    for (let i = 0; i < used; i++) {
      const id = ids[at + i]!;
      if (!(id >= 0 && id < this.vocab_size && Number.isInteger(id)))
        throw new InputError(
          `token id ${id} is not one of the model's ${this.vocab_size}`,
          `input id ${at + i}`,
          "Do model and tokenizer belong together?",
        );
      staging[2 * i] = id; // the lower half of an int64
    }
    // a shorter run overwrites the ids of a longer one with zeros
    const written = Math.max(used, this.filled);
    staging.fill(0, 2 * used, 2 * written);
    device.write(this.input, new Uint8Array(staging.buffer, 0, 8 * written));
    this.filled = used;
    device.register(plan, info.registers.past, past);
    if (info.registers.last !== info.registers.past)
      device.register(plan, info.registers.last, used - 1);
    device.run(plan, info.file);
    return output;
  }

  private bindCaches(loaded: Loaded, sequence: Sequence): void {
    for (const { slot, name } of loaded.cacheSlots)
      this.device.bind(loaded.plan, slot, sequence.caches.get(name)!, `the cache '${name}'`);
    loaded.bound = sequence;
  }
}
