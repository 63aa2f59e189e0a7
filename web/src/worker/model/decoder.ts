// A language model on a device: its weights, plans and sequences. Implements the Decoder interface
// of the generation loop (generation/): from token ids to logits.

import type { Buffer, Device, Host, Picker, PlanHandle } from "../../device/device.ts";
import type { Cache, DecoderPlan } from "../../gen/schema.ts";
import {
  check_length,
  runs_of,
  type Shape,
  type Span,
  type Tail,
  tail_of,
} from "../../logic/generation/chunks.ts";
import { Kept } from "../../logic/generation/kept.ts";
import {
  cache_bytes,
  first_room,
  grows,
  least_room,
  moves,
  needed,
  next_room,
  sequence_bytes,
} from "../../logic/generation/rooms.ts";
import {
  type CacheWindow,
  dropped_for,
  first_seen,
  marked,
  marked_bytes,
  shifts,
  spans,
  window_of,
} from "../../logic/generation/sliding.ts";
import { Pace } from "../../logic/generation/speculation.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { EngineError, OutOfMemory } from "../../shared/errors.ts";
import type { Choosing, Decoder, Logits } from "../generation/index.ts";
import { NOTES } from "../package/container.ts";
import type { DecoderInfo } from "../package/manifest.ts";
import type { Weights } from "./weights.ts";

/** State of a sequence. */
export interface DecoderState {
  /** Number of tokens in its caches. */
  past: number;
  /** Token ids so far. */
  ids: number[];
  /** Caches by name. */
  caches: Map<string, Buffer>;
  /** Tokens that they have room for. */
  room: number;
  /** Positions that caches of a sliding window have dropped. */
  dropped: number;
  /** Whether states that cannot be cut hold other tokens than `ids`. */
  stale: boolean;
  /** Tokens that were chosen and, but for the last one, run before they were asked for. */
  ahead: number[];
  /** What the prompt has besides ids; undefined: nothing. */
  features: unknown;
}

/** Inputs of plans besides ids: features of pictures or sounds, and positions. */
export interface Feeding {
  /** Makes the inputs of plans for up to so many tokens. */
  allocate(device: Device, most: number): ReadonlyMap<string, Buffer>;
  /** The tokens of a prompt that one run takes. features: of the sequence. */
  together(features: unknown): readonly Span[];
  /**
   * Writes the inputs of a run.
   * @param buffers that `allocate` made
   * @param tokens that the plan is for
   * @param features of the sequence
   * @param past tokens before the run
   * @param count tokens of the run
   */
  write(
    device: Device,
    buffers: ReadonlyMap<string, Buffer>,
    tokens: number,
    features: unknown,
    past: number,
    count: number,
  ): void;
}

/** A part of a cache. */
type Part = readonly [at: number, bytes: number];

/** A copy of states that cannot be cut. */
interface Saved {
  device: Device;
  states: ReadonlyMap<string, Buffer>;
}

interface LoadedSize {
  info: DecoderPlan;
  plan: PlanHandle;
  /** Slots to rebind when another sequence runs. */
  cacheSlots: { slot: number; name: string }[];
  output: Buffer;
  bound: DecoderState | undefined;
}

/** What a device loads for a plan. */
export function planOf(
  { file, slots }: DecoderPlan,
  files: ReadonlyMap<string, Uint8Array>,
  where: string,
): Parameters<Device["loadPlan"]> {
  const kinds = slots.map(({ kind }) => kind);
  return [files.get(file)!, `${where}, ${file}`, file, files.get(NOTES), kinds];
}

/** The language model of a package, on a device. Mirrors python/edgewise/host/session/decoder.py.
 * */
export class EngineDecoder implements Decoder<DecoderState> {
  readonly vocab_size: number;
  /** Maximum number of tokens of a sequence. */
  readonly max_length: number;
  /** Prompts are passed to `forward` in chunks of this many ids, so that an abort is noticed. */
  readonly prefill_chunk: number | undefined;
  readonly tail: Tail | null;
  /** Whether sequences have states of fixed shape. */
  private readonly fixed: boolean;
  /** The window of caches that hold the last positions alone; null: there are none. */
  readonly window: CacheWindow | null;
  /** Tokens that `verify` takes at most; 0: none. */
  readonly verified: number;
  /** What generations measured of it. */
  readonly pace = new Pace();
  /** The states of earlier generations; undefined: none are kept. */
  readonly kept: Kept | undefined;
  /** Names the active adapter; its values are others where the text is another one. */
  adapter: () => string = () => "";
  /** Changes of weights and devices. */
  private changes = 0;
  /** Whether caches have room for some tokens, and are replaced when these are there. */
  private readonly grows: boolean;
  /** Tokens that a new sequence has room for. */
  private readonly firstRoom: number;
  private readonly shape: Shape;
  private plans: LoadedSize[] = [];
  private readonly sequences = new Set<DecoderState>();
  /** Caches of closed sequences, for reuse. */
  private spare: Map<string, Buffer>[] = [];

  /** Chooses tokens on the device. */
  private picker: Picker | undefined;
  /**
   * Loads the weights again, after a GPU was lost, to the device in its place. Set by what loaded
   * them.
   */
  refill: ((device: Device, signal?: AbortSignal) => Promise<Weights>) | undefined;
  /** Called when the plans have been loaded there. */
  refilled: (() => unknown) | undefined;
  /** Ends that loading, with the call in which it began. */
  signal: AbortSignal | undefined;

  /** Input of the plans: int64 token ids. */
  private input!: Buffer;
  /** Other inputs of the plans. */
  private fed: ReadonlyMap<string, Buffer> = new Map();
  /** Staging memory for `input`; two 32-bit words per id. */
  private readonly staging: Uint32Array<ArrayBuffer>;
  /** Number of ids in `input`; zeros follow. */
  private filled = 0;

  constructor(
    private device: Device,
    readonly info: DecoderInfo,
    private weights: Weights,
    readonly files: ReadonlyMap<string, Uint8Array>,
    readonly generation_config: Record<string, unknown>,
    readonly config: Record<string, unknown>,
    private readonly where: string,
    private readonly release: boolean,
    budget: number | null = null,
    private readonly feeding?: Feeding,
    /** Plans of the package that are loaded already. */
    private others: Parameters<Weights["compute"]>[0] = [],
  ) {
    this.vocab_size = info.vocabSize;
    this.max_length = info.capacity;
    this.fixed = info.caches.some((c) => c.fixed);
    this.window = window_of(info.window ?? null, info.capacity);
    this.grows = grows(info.plans);
    this.firstRoom = first_room(this.max_length, this.grows);
    const sizes = info.plans.map(({ tokens }) => tokens);
    const most = sizes.at(-1)!;
    this.shape = {
      sizes,
      max_length: this.max_length,
      vocab_size: this.vocab_size,
      way: info.recompute ? "recompute" : "append",
      padded: info.padded,
      fixed: this.fixed || this.window !== null,
    };
    const several = info.plans.filter(({ registers }) => registers.rows !== undefined);
    this.verified = info.padded && !this.fixed ? (several.at(-1)?.tokens ?? 0) : 0;
    this.prefill_chunk = info.recompute ? undefined : most;
    this.tail = info.recompute ? null : tail_of(sizes, info.padded);
    this.staging = new Uint32Array(2 * most);
    if (!info.recompute && budget !== 0) this.kept = new Kept(this, budget, most, this.tail);
    this.start();
  }

  /** Loads the plans. */
  private start(): void {
    const { device, info, weights, where } = this;
    this.plans = [];
    const rows = Math.max(
      1,
      ...info.plans.map((p) => (p.registers.rows === undefined ? 1 : p.tokens)),
    );
    const logits = device.allocate(4 * rows * info.vocabSize, "the logits");
    this.picker = device.picker?.(logits, info.vocabSize);
    this.input = device.allocate(4 * this.staging.length, "the input");
    this.fed = this.feeding?.allocate(device, this.staging.length / 2) ?? this.fed;
    // largest plan first, so that the arena is allocated once
    for (const plan of [...info.plans].reverse()) {
      const place = `${where}, ${plan.file}`;
      const handle = device.loadPlan(...planOf(plan, this.files, where));
      const loaded: LoadedSize = {
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
          weights.bind(handle, slot, name, what);
        } else if (kind === "state") {
          device.bind(handle, slot, weights.adapter(name, bytes), what);
        } else if (kind === "cache") loaded.cacheSlots.push({ slot, name });
        else if (kind === "input")
          device.bind(handle, slot, this.fed.get(name) ?? this.input, what);
        else if (kind === "output") device.bind(handle, slot, logits, what);
      });
    }
    // Caches are allocated with the first sequence: they then reuse memory of weights that were
    // packed and freed.
    const own = this.plans.map(({ plan, info: { slots, file } }) => ({
      ...{ plan, slots, where: `${where}, ${file}` },
    }));
    weights.compute([...this.others, ...own.reverse()], this.release);
    if (this.picker) this.close(this.open()); // on a GPU no buffer is made later
  }

  /**
   * Rebinds weights: those in `instead` to other buffers, all others to their own. Recomputes the
   * constants that depend on weights. Must also be called when such weights have changed. Existing
   * sequences become invalid.
   */
  useWeights(instead: Map<string, Buffer>): void {
    this.changes++;
    for (const { info, plan } of this.plans) {
      const place = `${this.where}, ${info.file}`;
      info.slots.forEach(({ name, kind }, slot) => {
        if (kind !== "weight") return;
        if (!instead.has(name) && !this.weights.has(name))
          throw new EngineError(
            `the weight '${name}' no longer exists`,
            place,
            "This is a bug in Edgewise; please report it.",
          );
        const what = `${place}, slot '${name}'`;
        const other = instead.get(name);
        if (other) this.device.bind(plan, slot, other, what);
        else this.weights.bind(plan, slot, name, what);
      });
      if (info.slots.some((s) => s.kind === "computed")) this.device.init(plan, place);
    }
  }

  /** C functions for sampling, whose memory receives the logits of `forward`. */
  get engine(): Host {
    return this.device.host;
  }

  /**
   * Makes an empty sequence.
   * @param features what the prompt has that it will begin with, besides ids
   * @throws OutOfMemory
   */
  open(features?: unknown): DecoderState {
    const caches = this.cachesOfOne();
    const { firstRoom: room } = this;
    const empty = { past: 0, ids: [], dropped: 0, stale: false, ahead: [] };
    const sequence: DecoderState = { ...empty, caches, room, features };
    this.sequences.add(sequence);
    return sequence;
  }

  private cachesOfOne(): Map<string, Buffer> {
    const caches = this.spare.pop() ?? this.allocate(this.info.caches, this.firstRoom);
    this.empty(caches);
    return caches;
  }

  /** Caches with room for so many tokens: all or none. @throws OutOfMemory */
  private allocate(described: readonly Cache[], room: number): Map<string, Buffer> {
    const { device } = this;
    const caches = new Map<string, Buffer>();
    try {
      for (const cache of described) {
        const what = `the attention cache '${cache.name}' of a sequence of ${room} tokens`;
        caches.set(cache.name, device.allocate(cache_bytes(cache, room), what));
      }
    } catch (e) {
      for (const buffer of caches.values()) device.release(buffer);
      throw e;
    }
    return caches;
  }

  /** The memory of a new sequence with room for `count` tokens. */
  bytes_for(count: number): number {
    const { max_length, info } = this;
    const room = this.grows ? least_room(count, max_length) : max_length;
    return sequence_bytes(info.caches, room);
  }

  /** The memory of a sequence. */
  bytes_of({ room }: DecoderState): number {
    return sequence_bytes(this.info.caches, room);
  }

  /** The memory of a token, where caches grow with each. */
  get bytesPerToken(): number {
    const growing = this.info.caches.filter(({ sliding }) => !sliding);
    return growing.reduce((sum, { rows }) => sum + (rows ? rows[0] * rows[1] : 0), 0);
  }

  /**
   * Gives a sequence room for `count` tokens, if it has less. What it holds stays, also after an
   * error.
   * @throws OutOfMemory
   */
  private reserve(sequence: DecoderState, count: number): void {
    if (count <= sequence.room) return;
    const { max_length } = this;
    try {
      this.move(sequence, next_room(sequence.room, count, max_length));
    } catch (e) {
      if (!(e instanceof OutOfMemory)) throw e;
      this.clearCache();
      this.move(sequence, least_room(count, max_length));
    }
  }

  /**
   * Moves a sequence to caches with another room. In WebAssembly, whose memory never shrinks, one
   * after the other, so that the caches of one layer exist twice, not all.
   * @throws OutOfMemory; the sequence has the room that it had
   */
  private move(sequence: DecoderState, room: number): void {
    const { device } = this;
    const growing = this.info.caches.filter(
      (cache) => cache_bytes(cache, room) !== cache_bytes(cache, sequence.room),
    );
    const rows = (cache: Cache): [number, number, number][] => {
      const count = sequence.past - (cache.sliding ? sequence.dropped : 0);
      return moves(cache, count, sequence.room, room);
    };
    // before anything is freed: after an error, too, some caches are other buffers
    for (const loaded of this.plans) if (loaded.bound === sequence) loaded.bound = undefined;
    const moved: Cache[] = [];
    const together = device.info.gpu || room < sequence.room;
    for (const some of together ? [growing] : growing.map((cache) => [cache])) {
      let caches: Map<string, Buffer>;
      try {
        caches = this.allocate(some, room);
      } catch (e) {
        // the rows go back to their places, in buffers that are then larger than they must be
        for (const cache of moved) {
          const buffer = sequence.caches.get(cache.name)!;
          for (const [at, place, bytes] of rows(cache))
            device.copy(buffer.part(place, bytes), buffer.part(at, bytes));
        }
        throw e;
      }
      for (const cache of some) {
        const [from, to] = [sequence.caches.get(cache.name)!, caches.get(cache.name)!];
        for (const [at, place, bytes] of rows(cache))
          device.copy(from.part(at, bytes), to.part(place, bytes));
        sequence.caches.set(cache.name, to);
        device.release(from);
      }
      moved.push(...some);
    }
    sequence.room = room;
  }

  /** Empties the states of fixed shape. */
  private empty(caches: ReadonlyMap<string, Buffer>): void {
    for (const { name, fixed } of this.info.caches)
      if (fixed && caches.has(name)) this.device.fill(caches.get(name)!);
  }

  /** Frees a sequence. The caches of one closed sequence are kept for reuse. */
  close(sequence: DecoderState): void {
    if (!this.sequences.delete(sequence)) return;
    for (const loaded of this.plans) if (loaded.bound === sequence) loaded.bound = undefined;
    const caches = [...sequence.caches.values()];
    const usual = sequence.room === this.firstRoom && !caches.some(({ failed }) => failed);
    if (!this.spare.length && usual) this.spare.push(sequence.caches);
    else for (const buffer of caches) this.device.release(buffer);
  }

  /** Copies the state of `source` to `target`. */
  copy(source: DecoderState, target: DecoderState): void {
    if (target.room !== source.room) {
      this.truncate(target, 0);
      target.dropped = 0;
      this.move(target, source.room);
    }
    for (const cache of this.info.caches) {
      const [from, to] = [source.caches.get(cache.name)!, target.caches.get(cache.name)!];
      this.device.copy(from, to, cache_bytes(cache, source.room));
    }
    target.past = source.past;
    target.dropped = source.dropped;
    target.stale = source.stale;
    target.features = source.features;
    target.ahead = source.ahead.slice();
    target.ids = source.ids.slice();
  }

  /** Removes all tokens after the first `n`. */
  truncate(sequence: DecoderState, n: number): void {
    check_length(n, sequence.past);
    if (n < sequence.past) sequence.stale = !this.cuts(sequence, n);
    sequence.past = n;
    sequence.ahead = [];
    sequence.ids.length = Math.min(sequence.ids.length, n);
  }

  /** Whether the states of a sequence are those of its first `n` tokens once it is cut to them. */
  cuts({ stale, dropped }: DecoderState, n: number): boolean {
    return !stale && !this.fixed && dropped <= first_seen(this.window, n);
  }

  /** Names the weights and the adapter that states come from. */
  key(): string {
    return `${this.changes}/${this.adapter()}`;
  }

  /**
   * Reads tokens of the last answer, which the next prompt is likely to have.
   * @returns whether there was one
   */
  async readAhead(): Promise<boolean> {
    const { kept } = this;
    const key = this.key();
    const ahead = kept?.ahead(key);
    if (!ahead) return false;
    try {
      await this.forward(ahead.taken.sequence as DecoderState, ahead.piece);
    } catch {
      kept!.give(ahead.taken, ahead.ids, [], key); // it is read when a prompt has it
      return false;
    }
    kept!.was_read(ahead, key);
    return true;
  }

  /**
   * Reads the first ids of a prompt, in pieces.
   * @param count of ids, in whole pieces
   * @returns the states after them, by the names of caches
   */
  async statesOf(
    ids: number[],
    count: number,
    signal: AbortSignal,
  ): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
    const { kept, prefill_chunk: piece = 1 } = this;
    const taken = kept?.take(this.key(), ids.slice(0, count + 1));
    const sequence: DecoderState = taken?.sequence ?? this.open();
    let done = taken?.past ?? 0;
    try {
      for (let end = done + piece; end <= count; end += piece) {
        throwIfAborted(signal);
        await this.forward(sequence, ids.slice(done, end));
        if (taken) kept!.mark(taken, end, end === count);
        done = end;
      }
      const found = new Map<string, Uint8Array<ArrayBuffer>>();
      for (const cache of this.info.caches) {
        const buffer = sequence.caches.get(cache.name)!;
        const read = ([at, bytes]: Part) => this.device.read(buffer, at, bytes);
        const parts = await Promise.all(this.spansOf(sequence, cache, count).map(read));
        found.set(cache.name, new Uint8Array(await new Blob(parts).arrayBuffer()));
      }
      return found;
    } finally {
      if (taken) kept!.give(taken, ids.slice(0, done), [], this.key());
      else this.close(sequence);
    }
  }

  /**
   * Writes states to an empty sequence.
   * @param ids that they come from
   * @param stateOf the bytes of a cache
   */
  fill(
    sequence: DecoderState,
    ids: readonly number[],
    stateOf: (cache: Cache) => Uint8Array,
  ): void {
    if (this.grows) this.reserve(sequence, ids.length);
    sequence.dropped = first_seen(this.window, ids.length);
    for (const cache of this.info.caches) {
      const data = stateOf(cache);
      let done = 0;
      for (const [at, bytes] of this.spansOf(sequence, cache, ids.length)) {
        const part = data.subarray(done, (done += bytes));
        this.device.write(sequence.caches.get(cache.name)!, part, at);
      }
    }
    Object.assign(sequence, { past: ids.length, ids: [...ids], stale: false });
  }

  /** Frees the states of earlier generations. */
  clearCache(): void {
    this.kept?.clear();
    for (const caches of this.spare)
      for (const buffer of caches.values()) this.device.release(buffer);
    this.spare = [];
  }

  /** Offsets and sizes of the states after `count` tokens in a cache of a sequence. */
  private spansOf({ room, dropped }: DecoderState, cache: Cache, count: number): readonly Part[] {
    return spans(cache, this.window, room, count, dropped);
  }

  /** The memory of a copy of states that cannot be cut, after `n` tokens. */
  marked_bytes(n: number): number {
    return marked_bytes(this.info.caches, this.window, n);
  }

  /** A copy of the states of a sequence that cannot be cut. */
  save(sequence: DecoderState): Saved {
    const { device } = this;
    const states = new Map<string, Buffer>();
    try {
      for (const cache of this.info.caches.filter(marked)) {
        const parts = this.spansOf(sequence, cache, sequence.past);
        const bytes = parts.reduce((sum, [, size]) => sum + size, 0);
        const copy = device.allocate(bytes, `a copy of the state '${cache.name}'`);
        states.set(cache.name, copy);
        let done = 0;
        for (const [at, size] of parts) {
          device.copy(sequence.caches.get(cache.name)!.part(at, size), copy.part(done, size));
          done += size;
        }
      }
    } catch (e) {
      this.drop({ device, states });
      throw e;
    }
    return { device, states };
  }

  /** Removes all but the first `n` tokens, after which the states were saved. */
  restore({ states }: Saved, sequence: DecoderState, n: number): void {
    this.truncate(sequence, n);
    sequence.dropped = first_seen(this.window, n);
    sequence.stale = false;
    for (const cache of this.info.caches.filter(marked)) {
      let done = 0;
      for (const [at, size] of this.spansOf(sequence, cache, n)) {
        const from = states.get(cache.name)!.part(done, size);
        this.device.copy(from, sequence.caches.get(cache.name)!.part(at, size));
        done += size;
      }
    }
  }

  /** Frees a copy of states. */
  drop({ device, states }: Saved): void {
    if (device === this.device) for (const buffer of states.values()) device.release(buffer);
  }

  /**
   * Appends ids to a sequence and runs them.
   * @returns address in the host's memory of the logits after the last id, float32 [vocab_size],
   *   valid until the next call
   */
  forward(sequence: DecoderState, ids: ArrayLike<number>): Promise<number> {
    return this.lasting(sequence, () => this.device.hosted(this.run(sequence, ids)));
  }

  /** See {@link Decoder.verify}. */
  verify(sequence: DecoderState, ids: number[]): Promise<number> {
    return this.lasting(sequence, () => this.device.hosted(this.run(sequence, ids, true)));
  }

  /** See {@link Decoder.choosing}. */
  choosing(members: Choosing["members"], work: number): Choosing | undefined {
    const { picker } = this;
    const chooser = picker?.begin(members, work);
    return chooser && { members, work, picker, chooser };
  }

  /** See {@link Decoder.forwardBest}. */
  forwardBest(sequence: DecoderState, ids: number[], by: Choosing, room: number): Promise<Logits> {
    return this.lasting(sequence, async () => {
      const { device, picker, info } = this;
      if (by.picker !== picker)
        Object.assign(by, { picker, chooser: picker?.begin(by.members, by.work) });
      const { chooser } = by;
      const [one] = this.plans;
      const { past, ahead } = sequence;
      if (
        !ahead.length &&
        chooser?.ahead &&
        room > 1 &&
        one!.info.tokens === 1 &&
        !info.recompute &&
        !info.positions && // which do not follow from the number of tokens
        !(sequence.stale && this.fixed)
      ) {
        if (this.grows) this.reserve(sequence, past + 1);
        this.begin(one!, sequence, ids, past);
        const most = Math.min(room, sequence.room - past);
        const { plan, info: of } = one!;
        const register = of.registers.past;
        const runs = { plan, where: of.file, input: this.input, register, past, most };
        ahead.push(...(await chooser.ahead(runs)));
        sequence.past += ahead.length;
        if (ahead.length) sequence.ids.push(ids[0]!, ...ahead.slice(0, -1));
      }
      const token = ahead.shift();
      if (token !== undefined) return () => token;
      const output = this.run(sequence, ids);
      return (await chooser?.choose()) ?? device.hosted(output);
    });
  }

  /** Runs a sequence; again on another device, if a GPU was lost meanwhile. */
  private async lasting<T>(sequence: DecoderState, work: () => Promise<T>): Promise<T> {
    const { past } = sequence;
    try {
      return await work();
    } catch (e) {
      this.truncate(sequence, past);
      if (!(await this.recover(undefined, this.signal))) throw e;
      return this.lasting(sequence, work);
    }
  }

  /**
   * Moves to the device in the place of a lost GPU, with weights, adapters and sequences.
   * @param error what failed: a GPU that was out of memory is given up
   * @param signal ends the reading of weights
   * @returns false if no GPU was lost
   */
  async recover(error?: unknown, signal?: AbortSignal): Promise<boolean> {
    const { device: lost, weights } = this;
    const device = await lost.replacement?.(error);
    if (!device || !this.refill) return false;
    this.changes++; // states of the device that was lost are not kept
    this.kept?.clear();
    const before = Array.from(this.sequences, (one) => ({ one, ids: one.ids }));
    try {
      this.weights = await this.refill(device, signal);
      this.device = device;
      this.spare = [];
      this.start();
      await this.refilled?.();
      for (const { one, ids } of before) {
        const [caches, room] = [this.cachesOfOne(), this.firstRoom];
        Object.assign(one, { past: 0, ids: [], dropped: 0, stale: false, caches, room });
        if (ids.length) this.run(one, ids);
      }
      return true;
    } catch (e) {
      if (this.weights !== weights) this.weights.free(); // it is tried again
      for (const { one, ids } of before) Object.assign(one, { past: ids.length, ids });
      Object.assign(this, { device: lost, weights });
      throw e;
    }
  }

  /** As `forward` or `verify`, but returns the logits on the device. */
  private run(sequence: DecoderState, ids: ArrayLike<number>, every = false): Buffer {
    const { past } = sequence;
    let output: Buffer | undefined;
    const together = this.feeding?.together(sequence.features) ?? [];
    const { ids: before, stale } = sequence;
    const usual = runs_of(this.shape, Array.from(ids), past, before, stale, together);
    const again = every && stale && this.shape.fixed ? runs_of(this.shape, before, 0, []) : [];
    const verified = { size: this.verified, ids: Array.from(ids), past };
    const runs = every ? [...again, verified] : usual;
    if (stale) sequence.dropped = 0;
    if (this.grows) this.reserve(sequence, needed(runs));
    if (stale) this.empty(sequence.caches);
    try {
      for (const run of runs) {
        const loaded = this.plans.find(({ info }) => info.tokens === run.size)!;
        this.slide(sequence, run.past, run.size);
        output = this.runPlan(loaded, sequence, run.ids, run.past, run === verified);
      }
    } catch (e) {
      sequence.stale = !this.cuts(sequence, past);
      throw e;
    }
    sequence.stale = false;
    sequence.past = past + ids.length;
    sequence.ids.push(...Array.from(ids));
    return output!;
  }

  /** Drops positions of caches of a sliding window before a run of `count` tokens. */
  private slide(sequence: DecoderState, past: number, count: number): void {
    const dropped = dropped_for(this.window, sequence.dropped, past, count);
    const by = dropped - sequence.dropped;
    for (const cache of by ? this.info.caches.filter(({ sliding }) => sliding) : []) {
      const memory = sequence.caches.get(cache.name)!;
      for (const [at, to, bytes] of shifts(cache, past - sequence.dropped, by, sequence.room))
        this.device.copy(memory.part(at, bytes), memory.part(to, bytes));
    }
    sequence.dropped = dropped;
  }

  private runPlan(
    loaded: LoadedSize,
    sequence: DecoderState,
    ids: readonly number[],
    past: number,
    every: boolean,
  ): Buffer {
    const { device } = this;
    const { plan, info, output } = loaded;
    this.begin(loaded, sequence, ids, past);
    device.register(plan, info.registers.past, past);
    if (info.registers.last !== info.registers.past)
      device.register(plan, info.registers.last, every ? 0 : ids.length - 1);
    if (info.registers.rows !== undefined)
      device.register(plan, info.registers.rows, every ? ids.length : 1);
    device.run(plan, info.file);
    return output;
  }

  /** Binds the caches of a sequence, and writes ids. */
  private begin(
    loaded: LoadedSize,
    sequence: DecoderState,
    ids: readonly number[],
    past: number,
  ): void {
    const { device, staging } = this;
    const used = ids.length;
    if (loaded.bound !== sequence) this.bindCaches(loaded, sequence);
    const { room, held, dropped, window } = loaded.info.registers;
    if (room !== undefined) device.register(loaded.plan, room, sequence.room);
    if (this.window && held !== undefined) {
      device.register(loaded.plan, held, past - sequence.dropped);
      device.register(loaded.plan, dropped!, sequence.dropped);
      device.register(loaded.plan, window!, Math.min(this.window.rows, sequence.room));
    }
    ids.forEach((id, i) => {
      staging[2 * i] = id; // low half of an int64
    });
    // clear the ids of a longer previous run
    const written = Math.max(used, this.filled);
    staging.fill(0, 2 * used, 2 * written);
    device.write(this.input, new Uint8Array(staging.buffer, 0, 8 * written));
    this.filled = used;
    const { tokens } = loaded.info;
    this.feeding?.write(device, this.fed, tokens, sequence.features, past, used);
  }

  private bindCaches(loaded: LoadedSize, sequence: DecoderState): void {
    for (const { slot, name } of loaded.cacheSlots)
      this.device.bind(loaded.plan, slot, sequence.caches.get(name)!, `the cache '${name}'`);
    loaded.bound = sequence;
  }
}
