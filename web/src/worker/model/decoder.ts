// A language model in the engine: its weights, its plans, and the sequences that are being written.
// What the generation loop sees is the Decoder interface (generation/); the order of things between
// ids and logits is here.

import { EngineError, InputError, OutOfMemory, PackageError } from "../../shared/errors.ts";
import type { Decoder, EngineMemory } from "../generation/index.ts";
import type { Engine, Plan } from "../../device/engine.ts";
import type { DecoderInfo, Manifest, PlanInfo } from "../package/package.ts";
import type { Extent } from "../../shared/files/source.ts";
import { checkSums } from "../../device/sums.ts";
import { megabytes } from "../../shared/words.ts";
import { NOTES } from "../package/notes.ts";

/** Most that a page's memory holds. */
const MAX_MEMORY = 0xffff_0000;

/** A stretch of engine memory. */
export interface Place {
  address: number;
  bytes: number;
}

interface PlanSlot {
  name: string;
  kind: string;
  bytes: number;
}
interface PlanOf {
  plan: Plan;
  slots: readonly PlanSlot[];
  where: string;
}

/**
 * What all plans of a package share in engine memory: its weights (and the extents that fill them
 * from the files they lie in), what init steps compute of them, and the adapters that training
 * changes. /
 */
export class Weights {
  private readonly at = new Map<string, Place>();
  private readonly made = new Map<string, Place>();
  private readonly adapters = new Map<string, Place>();
  /** Of all weights that are there. */
  bytes = 0;

  constructor(
    private readonly engine: Engine,
    manifest: Pick<Manifest, "weights">,
  ) {
    this.add(manifest);
  }

  /** Takes memory for more of them. */
  add(manifest: Pick<Manifest, "weights">): void {
    for (const { name, bytes } of manifest.weights.values()) {
      this.at.set(name, { address: this.engine.alloc(bytes, `the weight '${name}'`, true), bytes });
      this.bytes += bytes;
    }
  }

  /** Where a weight lies, which must be there. */
  address(name: string): Place {
    return this.at.get(name)!;
  }

  /** Whether a weight is there. */
  has(name: string): boolean {
    return this.at.has(name);
  }

  /** Whether all constants of a plan are there. */
  hasComputed(slots: readonly PlanSlot[]): boolean {
    return slots.every(
      ({ name, kind, bytes }) => kind !== "computed" || (this.made.get(name)?.bytes ?? -1) >= bytes,
    );
  }

  /**
   * Computes the constants of these plans that are not there yet, and binds them all. With
   * `release`, weights that only init steps read are freed once these have run: these plans are
   * then all that there are, and who wants such a weight later fills it anew (`add`); those of
   * which `keep` says that this is not possible stay.
   * @throws as Engine.init; what was not there before is not there then either
   * /
   */
  compute(
    plans: readonly PlanOf[],
    release: boolean,
    keep: (name: string) => boolean = () => false,
  ): void {
    const fresh: string[] = [];
    const inRuns = new Set(
      plans.flatMap(({ plan, slots }) =>
        slots
          .filter(({ kind }, slot) => kind === "weight" && this.engine.inRuns(plan, slot))
          .map(({ name }) => name),
      ),
    );
    const spent = (name: string) => release && !inRuns.has(name) && !keep(name);
    try {
      plans.forEach((one, i) => {
        const here = new Set(one.slots.map(({ name }) => name));
        const last = plans
          .slice(i + 1)
          .every(({ slots }) => this.hasComputed(slots.filter(({ name }) => !here.has(name))));
        this.computeOne(one, fresh, (name) => last && spent(name));
      });
    } catch (e) {
      for (const name of fresh) {
        this.engine.free(this.made.get(name)!.address);
        this.made.delete(name);
      }
      throw e;
    }
    for (const { plan, slots } of plans)
      slots.forEach(({ name, kind }, slot) => {
        if (kind === "weight" && spent(name)) this.engine.unbind(plan, slot);
      });
    for (const { slots } of plans)
      for (const { name, kind } of slots) if (kind === "weight" && spent(name)) this.drop(name);
  }

  /**
   * Memory for a constant is taken just before the first init step that uses it, and a weight is
   * let go of behind the last: constants come to lie where weights were, and both are never there
   * whole.
   * /
   */
  private computeOne(
    { plan, slots, where }: PlanOf,
    fresh: string[],
    spent: (name: string) => boolean,
  ): void {
    const engine = this.engine;
    const steps = this.hasComputed(slots) ? 0 : engine.describe(plan).initCount;
    const events = Array.from({ length: steps + 1 }, (): (() => void)[] => []);
    slots.forEach(({ name, kind }, slot) => {
      const [, end] = engine.initSpan(plan, slot);
      if (kind === "weight" && steps && end && spent(name))
        events[end]!.push(() => {
          engine.unbind(plan, slot);
          this.drop(name);
        });
    });
    slots.forEach(({ name, kind, bytes }, slot) => {
      if (kind === "computed")
        events[steps && engine.initSpan(plan, slot)[0]]!.push(() => {
          const place = this.computed(name, bytes);
          if (place.fresh) fresh.push(name);
          engine.bind(plan, slot, place.address, place.bytes, `${where}, slot '${name}'`);
        });
    });
    let done = 0;
    events.forEach((here, step) => {
      if (!here.length && step < steps) return;
      engine.initSteps(plan, done, step - done, where);
      done = step;
      for (const event of here) event();
    });
  }

  /** Lets go of a weight, as if it had never been there. */
  drop(name: string): void {
    const place = this.at.get(name);
    if (!place) return;
    this.engine.free(place.address);
    this.at.delete(name);
    this.bytes -= place.bytes;
  }

  /**
   * Memory of a constant that init steps compute; `fresh`: they have yet to. Its name says what it
   * is computed from, so plans share it.
   */
  private computed(name: string, bytes: number): Place & { fresh: boolean } {
    const known = this.made.get(name);
    if (known && known.bytes >= bytes) return { ...known, fresh: false };
    const place = { address: this.engine.alloc(bytes, `the constant '${name}'`), bytes };
    this.made.set(name, place);
    return { ...place, fresh: true };
  }

  /**
   * Memory of a state of adapters: zeros, which add nothing, until something is loaded or trained.
   */
  adapter(name: string, bytes: number): Place {
    let place = this.adapters.get(name);
    if (!place)
      this.adapters.set(
        name,
        (place = { address: this.engine.alloc(bytes, `the adapter '${name}'`), bytes }),
      );
    return place;
  }

  /**
   * Per file, where its ranges go. A weight that has sums is compared with them as soon as all of
   * its bytes have come: then `write` throws PackageError.
   * @param where the package's name, for errors
   * /
   */
  extents(manifest: Pick<Manifest, "weights">, where = ""): Map<string, Extent[]> {
    const files = new Map<string, Extent[]>();
    for (const { name, file, offset, bytes, sums } of manifest.weights.values()) {
      const { address } = this.at.get(name)!;
      let left = bytes;
      const write = (chunk: Uint8Array, at: number) => {
        this.engine.bytes(address + at, chunk.length).set(chunk);
        left -= chunk.length;
        if (!left && sums)
          checkSums(this.engine, address, bytes, sums, { name, where: where || file });
      };
      if (!files.has(file)) files.set(file, []);
      files.get(file)!.push({ start: offset, bytes, write });
    }
    return files;
  }
}

/** The state of one text being written: how many tokens its caches hold. */
export interface Sequence {
  /** Tokens in its caches. */
  past: number;
  /** Of models without a cache: the text so far. */
  ids: number[];
  /** Addresses by the cache's name. */
  caches: Map<string, number>;
}

interface Loaded {
  info: PlanInfo;
  plan: Plan;
  /** Slots to bind again when another sequence runs. */
  cacheSlots: { slot: number; name: string; bytes: number }[];
  input: number;
  output: number;
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
  readonly engine: EngineMemory;
  /** Bytes of the caches of one sequence. */
  readonly cacheBytes: number;
  private readonly plans: Loaded[] = [];
  private readonly sequences = new Set<Sequence>();
  /** Caches of closed sequences, to be used again. */
  private spare: Map<string, number>[] = [];

  /** Ids that lie in the plans' input: behind them are zeros. */
  private filled = 0;

  constructor(
    readonly host: Engine,
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
    this.engine = {
      alloc: (bytes) => host.alloc(bytes, "generation"),
      free: (address) => host.free(address),
      write: (address, bytes) => host.bytes(address, bytes.length).set(bytes),
      read: (address, bytes) => host.bytes(address, bytes).slice(),
      call: (name, ...args) => {
        const f = host.exports[name];
        if (typeof f !== "function")
          throw new EngineError(
            `the engine has no function ${name}`,
            "",
            "The engine and edgewise.js are of different versions.",
          );
        return host.call(() => (f as (...a: number[]) => number | undefined)(...args)) ?? 0;
      },
    };

    const logits = host.alloc(4 * info.vocabSize, "the logits");
    const idsAt = host.alloc(8 * most, "the input");
    // the largest first, so that the arena is allocated once
    for (const plan of [...info.plans].reverse()) {
      const place = `${where}, ${plan.file}`;
      const handle = host.loadPlan(files.get(plan.file)!, place, plan.file, files.get(NOTES));
      const loaded: Loaded = {
        info: plan,
        plan: handle,
        cacheSlots: [],
        input: idsAt,
        output: logits,
        bound: undefined,
      };
      this.plans.unshift(loaded);
      plan.slots.forEach(({ name, kind, bytes }, slot) => {
        const what = `${place}, slot '${name}'`;
        if (kind === "weight") {
          const weight = weights.address(name);
          host.bind(handle, slot, weight.address, weight.bytes, what);
        } else if (kind === "state") {
          const place = weights.adapter(name, bytes);
          host.bind(handle, slot, place.address, place.bytes, what);
        } else if (kind === "cache")
          loaded.cacheSlots.push({
            slot,
            name,
            bytes: info.caches.find((c) => c.name === name)!.bytes,
          });
        else if (kind !== "computed")
          host.bind(
            handle,
            slot,
            kind === "input" ? idsAt : logits,
            kind === "input" ? 8 * most : 4 * info.vocabSize,
            what,
          );
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
   * changed. Sequences begun before are of no use afterwards. /
   */
  useWeights(instead: Map<string, Place>): void {
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
        const { address, bytes } = instead.get(name) ?? this.weights.address(name);
        this.host.bind(plan, slot, address, bytes, `${place}, slot '${name}'`);
      });
      if (info.slots.some((s) => s.kind === "computed")) this.host.init(plan, place);
    }
  }

  /** A new, empty sequence. */
  open(): Sequence {
    const caches = this.spare.pop() ?? new Map<string, number>();
    try {
      for (const { name, bytes } of this.info.caches)
        if (!caches.has(name))
          caches.set(
            name,
            this.host.alloc(
              bytes,
              `the attention cache '${name}' of a sequence of ${this.max_length} tokens`,
            ),
          );
    } catch (e) {
      for (const address of caches.values()) this.host.free(address);
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
    else for (const address of sequence.caches.values()) this.host.free(address);
  }

  /** Makes `target` go on from where `source` is. */
  copy(source: Sequence, target: Sequence): void {
    for (const { name, bytes } of this.info.caches)
      this.host
        .bytes(target.caches.get(name)!, bytes)
        .set(this.host.bytes(source.caches.get(name)!, bytes));
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
   * Runs `ids` after what the sequence holds. Returns the address of the logits (float32) after the
   * last of them, good until the next call.
   */
  forward(sequence: Sequence, ids: ArrayLike<number>): number {
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
    let output = 0;
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
    return output;
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
  ): number {
    const { host } = this;
    const { plan, info, input, output } = loaded;
    if (loaded.bound !== sequence) this.bindCaches(loaded, sequence);
    const view = new DataView(host.memory.buffer, input, 8 * info.tokens);
    for (let i = 0; i < used; i++) {
      const id = ids[at + i]!;
      if (!(id >= 0 && id < this.vocab_size && Number.isInteger(id)))
        throw new InputError(
          `token id ${id} is not one of the model's ${this.vocab_size}`,
          `input id ${at + i}`,
          "Do model and tokenizer belong together?",
        );
      view.setUint32(8 * i, id, true);
      view.setUint32(8 * i + 4, 0, true);
      this.filled = Math.max(this.filled, i + 1);
    }
    host.bytes(input + 8 * used, 8 * (this.filled - used)).fill(0); // what a longer run left there
    this.filled = used;
    host.register(plan, info.registers.past, past);
    if (info.registers.last !== info.registers.past)
      host.register(plan, info.registers.last, used - 1);
    host.run(plan, info.file);
    return output;
  }

  private bindCaches(loaded: Loaded, sequence: Sequence): void {
    for (const { slot, name, bytes } of loaded.cacheSlots)
      this.host.bind(loaded.plan, slot, sequence.caches.get(name)!, bytes, `the cache '${name}'`);
    loaded.bound = sequence;
  }
}

/**
 * Refuses what no page has memory for, in words that say what takes it, before any memory is taken.
 * @throws OutOfMemory
 */
export function checkRoom(
  { weights }: Pick<Manifest, "weights">,
  { caches, capacity }: DecoderInfo,
  where: string,
): void {
  const sum = (of: Iterable<{ bytes: number }>) =>
    Array.from(of, (x) => x.bytes).reduce((a, b) => a + b, 0);
  const [held, cached] = [sum(weights.values()), sum(caches)];
  if (held + cached > MAX_MEMORY)
    throw new OutOfMemory(
      `its weights take ${megabytes(held)}, and the attention cache of a sequence of up to ` +
        `${capacity} tokens ${megabytes(cached)}; a page has at most ${megabytes(MAX_MEMORY)}`,
      where,
      held > MAX_MEMORY
        ? "Use a smaller or a more strongly quantized model."
        : "Load the model with a smaller capacity, or keep keys and values as float16 " +
            "(cache_dtype); a package is built with `edgewise build --max-length`.",
    );
}

/** Refuses a package of another engine with words of its own, before any memory is taken. */
export function checkTable(engine: Engine, manifest: Manifest, where: string): void {
  if (manifest.tableHash !== engine.tableHash)
    throw new PackageError(
      `it was built for an engine with the kernel table ${hex(manifest.tableHash)}; this ` +
        `engine has ${hex(engine.tableHash)}`,
      where,
      "Build the package again with the same version of Edgewise as the page's.",
    );
}

/** What a manifest says of its decoder. */
export function decoderOf(manifest: Manifest, where: string): DecoderInfo {
  if (manifest.task !== "text-generation" || !manifest.decoder)
    throw new PackageError(
      `its task is '${manifest.task}'`,
      where,
      manifest.inference
        ? "Run it with InferenceSession; a pipeline takes packages for text-generation."
        : "This version of Edgewise runs packages for text-generation and inference.",
    );
  return manifest.decoder;
}

function hex(n: number): string {
  return "0x" + n.toString(16).padStart(8, "0");
}
