// An encoder-decoder model on a device: the encoder, the keys and values of cross attention, which
// all sequences of an input share, and the decoder. Mirrors
// python/edgewise/host/session/seq2seq.py.

import type { Buffer, Device, Picker, PlanHandle } from "../../../device/device.ts";
import type { ManifestSlot, Seq2SeqPlan } from "../../../gen/schema.ts";
import { runs_of, type Shape } from "../../../logic/generation/chunks.ts";
import {
  aligner_for,
  encoder_for,
  reflected,
  shares,
} from "../../../logic/generation/encoder_decoder.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Choosing, Logits } from "../../generation/index.ts";
import type { Weights } from "../../model/weights.ts";
import { NOTES } from "../../package/container.ts";
import type { Seq2SeqInfo } from "../../package/manifest.ts";
import { type Caches, EncodedSource, type Sequence } from "./source.ts";

/** Registers of the decoder's plans. */
const [PAST, LAST, SOURCE] = [0, 1, 2];

interface Loaded {
  plan: PlanHandle;
  file: string;
  slots: readonly ManifestSlot[];
  where: string;
}
interface Run extends Loaded {
  tokens: number;
  /** What its caches are bound to. */
  bound: [EncodedSource, Sequence] | undefined;
}
interface SourceRun {
  size: number;
  positions: number;
  run: Loaded | undefined;
  cross: Loaded;
}

/** An encoder-decoder model. */
export class Seq2SeqModel {
  private readonly first: Run[];
  private readonly step: Run;
  private readonly shape: Shape;
  private readonly encoders: SourceRun[];
  private readonly aligners = new Map<number, Loaded & { memory: Caches }>();
  private readonly described: Seq2SeqPlan[];
  /** Inputs and outputs by name, which plans share. */
  private readonly memory: Caches = new Map();
  private readonly ids: BigInt64Array<ArrayBuffer>;
  /** Caches of closed sequences, for reuse. */
  private spare: Caches[] = [];
  /** Chooses tokens on the device. */
  readonly picker: Picker | undefined;

  /**
   * Loads the plans, and computes what depends on weights alone.
   * @param others plans of the package that are loaded already
   * @param release whether weights that only init steps read are freed
   * @throws PlanError, OutOfMemory
   */
  constructor(
    readonly device: Device,
    readonly info: Seq2SeqInfo,
    private readonly weights: Weights,
    private readonly files: ReadonlyMap<string, Uint8Array>,
    readonly generation_config: Record<string, unknown>,
    readonly config: Record<string, unknown>,
    private readonly where: string,
    others: Parameters<Weights["compute"]>[0],
    release = true,
  ) {
    const { encoder, plans, capacity, vocabSize } = info;
    this.ids = new BigInt64Array(capacity);
    this.share("input_ids", 8 * capacity);
    this.picker = device.picker?.(this.share("logits", 4 * vocabSize), vocabSize);
    const largest = (kind: string) => plans.filter((p) => p.kind === kind).sort(descending);
    const run = (p: Seq2SeqPlan): Run => ({ ...this.load(p), tokens: p.tokens, bound: undefined });
    // the largest first, so that the arena is allocated once
    this.encoders = [...encoder.plans].reverse().map(({ size, positions, run: one, cross }) => ({
      size,
      positions,
      run: one && this.load(one, "source/"),
      cross: this.load(cross, "source/"),
    }));
    this.encoders.reverse();
    this.first = largest("first").map(run).reverse();
    this.step = run(plans.find((p) => p.kind === "step")!);
    this.shape = {
      sizes: this.first.map(({ tokens }) => tokens),
      max_length: capacity,
      vocab_size: vocabSize,
      way: "steps",
      padded: true,
      fixed: false,
    };
    this.described = largest("align").reverse();
    // The plans of `align` are loaded when they are needed, as they are large. The smallest one
    // says which weights they read.
    const align = this.described[0] && this.load(this.described[0], null);
    const all = [
      ...others,
      ...this.encoders.flatMap((e) => (e.run ? [e.run, e.cross] : [e.cross])),
      ...this.first,
      this.step,
      ...(align ? [align] : []),
    ];
    weights.compute(all, release);
    if (align) device.freePlan(align.plan);
  }

  /** Most tokens of a sequence. */
  get max_length(): number {
    return this.info.capacity;
  }

  /** Most positions of an input. */
  get longest(): number {
    return this.encoders.at(-1)!.size;
  }

  /** Positions of the encoder's output for the longest input. */
  get positions(): number {
    return this.encoders.at(-1)!.positions;
  }

  private share(name: string, bytes: number): Buffer {
    let buffer = this.memory.get(name);
    if (!buffer) {
      buffer = this.device.allocate(bytes, `the ${name} of the model`);
      this.memory.set(name, buffer);
    }
    return buffer;
  }

  /** Loads a plan. prefix: of names in `memory`; null: inputs and outputs are not bound. */
  private load(
    { file, slots }: { file: string; slots: readonly ManifestSlot[] },
    prefix: string | null = "",
  ): Loaded {
    const { device, files } = this;
    const where = `${this.where}, ${file}`;
    const kinds = slots.map(({ kind }) => kind);
    const plan = device.loadPlan(files.get(file)!, where, file, files.get(NOTES), kinds);
    slots.forEach(({ name, kind, bytes }, i) => {
      const what = `${where}, slot '${name}'`;
      // weights of `align` that only init steps read have been freed
      if (kind === "weight" && this.weights.has(name))
        device.bind(plan, i, this.weights.buffer(name), what);
      else if (kind === "state") device.bind(plan, i, this.weights.adapter(name, bytes), what);
      else if ((kind === "input" || kind === "output") && prefix !== null) {
        // the encoder's output is what `cross` reads, by another name
        const hidden = prefix && (kind === "output" || name === "encoder_hidden_states");
        device.bind(plan, i, this.share(hidden ? "hidden" : prefix + name, bytes), what);
      }
    });
    return { plan, file, slots, where };
  }

  // The encoder

  /**
   * Runs the encoder on token ids.
   * @throws InputError if there are none or too many; OutOfMemory
   */
  encodeIds(ids: readonly number[]): EncodedSource {
    return this.encoded(this.feedIds(ids), ids.length, [...ids]);
  }

  /**
   * Runs the encoder on features.
   * @throws InputError if they are not as many as the encoder takes; OutOfMemory
   */
  encodeFeatures(values: Float32Array<ArrayBuffer>): EncodedSource {
    const one = this.feedFeatures(values);
    return this.encoded(one, one.positions, null);
  }

  /**
   * The output of the encoder for token ids or features, [positions, width].
   * @throws as `encodeIds` and `encodeFeatures`
   */
  async hidden(
    of: readonly number[] | Float32Array<ArrayBuffer>,
  ): Promise<Float32Array<ArrayBuffer>> {
    const features = of instanceof Float32Array;
    const one = features ? this.feedFeatures(of) : this.feedIds(of);
    if (one.run) this.device.run(one.run.plan, one.run.file);
    const positions = features ? one.positions : of.length;
    const bytes = 4 * positions * this.width;
    return new Float32Array((await this.device.read(this.memory.get("hidden")!, 0, bytes)).buffer);
  }

  /** Numbers of a position of the encoder's output. */
  get width(): number {
    return this.memory.get("hidden")!.bytes / (4 * this.positions);
  }

  private feedIds(ids: readonly number[]): SourceRun {
    const found = this.encoderFor(ids.length, "tokens");
    const write = (name: string, value: (i: number) => number) =>
      this.device.write(
        this.memory.get(`source/${name}`)!,
        bytesOf(BigInt64Array.from({ length: found.size }, (_, i) => BigInt(value(i)))),
      );
    write("input_ids", (i) => ids[i] ?? 0);
    if (this.info.encoder.masked) write("attention_mask", (i) => +(i < ids.length));
    return found;
  }

  private feedFeatures(values: Float32Array<ArrayBuffer>): SourceRun {
    const buffer = this.memory.get(`source/${this.info.encoder.input}`)!;
    if (values.byteLength !== buffer.bytes)
      throw new InputError(
        `there are ${values.length} features, and the encoder takes ${buffer.bytes / 4}`,
        "encode",
        "Do the model and its preprocessor_config.json belong together?",
      );
    this.device.write(buffer, bytesOf(values));
    return this.encoders[0]!;
  }

  /**
   * Takes what the program "encoder" has computed.
   * @param values [positions, width]
   * @throws InputError if there are too many positions; OutOfMemory
   */
  encodeHidden(values: Float32Array<ArrayBuffer>, width: number): EncodedSource {
    const positions = values.length / width;
    const found = this.encoderFor(positions, "positions");
    const buffer = this.memory.get("hidden")!;
    if (4 * width * this.longest !== buffer.bytes)
      throw new InputError(
        `the sound has positions of ${width} numbers`,
        "encode",
        "Do the encoder and the decoder belong together?",
      );
    this.device.write(buffer, bytesOf(values));
    return this.encoded(found, positions, null);
  }

  private encoderFor(count: number, unit: string): SourceRun {
    const sizes = this.encoders.map((e) => e.size);
    return this.encoders[encoder_for(sizes, count, unit)]!;
  }

  private encoded(one: SourceRun, positions: number, ids: number[] | null): EncodedSource {
    const { device } = this;
    const caches = this.allocate(this.info.cross, "the keys and values of cross attention");
    try {
      if (one.run) device.run(one.run.plan, one.run.file);
      this.bindCaches(one.cross, caches);
      device.run(one.cross.plan, one.cross.file);
    } catch (e) {
      free(device, caches);
      throw e;
    }
    return new EncodedSource(this, caches, positions, ids);
  }

  private bindCaches({ plan, slots }: Loaded, ...of: Caches[]): void {
    slots.forEach(({ name, kind }, i) => {
      if (kind !== "cache") return;
      const buffer = of.find((caches) => caches.has(name))!.get(name)!;
      this.device.bind(plan, i, buffer, `the cache '${name}'`);
    });
  }

  /** @throws OutOfMemory, after freeing what was allocated */
  private allocate(sizes: ReadonlyMap<string, number>, what: string): Caches {
    const caches: Caches = new Map();
    try {
      for (const [name, bytes] of sizes)
        caches.set(name, this.device.allocate(bytes, `${what} ('${name}')`));
    } catch (e) {
      free(this.device, caches);
      throw e;
    }
    return caches;
  }

  // The decoder

  /** @throws OutOfMemory */
  open(): Sequence {
    const what = `the keys and values of a sequence of ${this.max_length} tokens`;
    const caches = this.spare.pop() ?? this.allocate(this.info.caches, what);
    return { past: 0, caches, ahead: [] };
  }

  /** Frees a sequence. The caches of a few are kept for the next ones. */
  close(sequence: Sequence): void {
    this.forget(([, s]) => s === sequence);
    if (this.spare.length < KEPT) this.spare.push(sequence.caches);
    else free(this.device, sequence.caches);
  }

  /** Frees an input. */
  closeSource(source: EncodedSource): void {
    this.forget(([s]) => s === source);
    free(this.device, source.caches);
  }

  private forget(which: (bound: [EncodedSource, Sequence]) => boolean): void {
    for (const run of [...this.first, this.step])
      if (run.bound && which(run.bound)) run.bound = undefined;
  }

  /** The logits after the last of `ids`, which follow those of the sequence. */
  forward(source: EncodedSource, sequence: Sequence, ids: ArrayLike<number>): Promise<number> {
    return this.device.hosted(this.runAll(source, sequence, ids));
  }

  /** As `forward`, but chooses on the device where that can: see {@link Decoder.forwardBest}. */
  async forwardBest(
    source: EncodedSource,
    sequence: Sequence,
    ids: readonly number[],
    { chooser }: Choosing,
    room: number,
  ): Promise<Logits> {
    const { ahead, past } = sequence;
    const most = Math.min(room, this.max_length - past);
    if (!ahead.length && past && ids.length === 1 && chooser?.ahead && most > 1) {
      const { plan, file } = this.step;
      this.begin(this.step, source, sequence, ids);
      const input = this.memory.get("input_ids")!;
      ahead.push(
        ...(await chooser.ahead({ plan, where: file, input, register: PAST, past, most })),
      );
      sequence.past += ahead.length;
    }
    const token = ahead.shift();
    if (token !== undefined) return () => token;
    const logits = this.runAll(source, sequence, ids);
    return (await chooser?.choose()) ?? this.device.hosted(logits);
  }

  private runAll(source: EncodedSource, sequence: Sequence, ids: ArrayLike<number>): Buffer {
    const { past } = sequence;
    for (const { size, ids: part, past: at } of runs_of(this.shape, Array.from(ids), past, [])) {
      const run = at ? this.step : this.first.find(({ tokens }) => tokens === size)!;
      this.begin(run, source, sequence, part);
      this.device.register(run.plan, PAST, at);
      this.device.run(run.plan, run.file);
    }
    sequence.past = past + ids.length;
    return this.memory.get("logits")!;
  }

  /** Binds the caches of a sequence, and writes ids. */
  private begin(run: Run, source: EncodedSource, sequence: Sequence, ids: ArrayLike<number>): void {
    const { device } = this;
    if (run.bound?.[0] !== source || run.bound[1] !== sequence) {
      this.bindCaches(run, sequence.caches, source.caches);
      run.bound = [source, sequence];
    }
    this.writeIds(this.memory.get("input_ids")!, run.tokens, ids);
    device.register(run.plan, LAST, ids.length - 1);
    device.register(run.plan, SOURCE, source.positions);
  }

  private writeIds(buffer: Buffer, tokens: number, ids: ArrayLike<number>): void {
    const { vocabSize } = this.info;
    for (let i = 0; i < tokens; i++) {
      const id = ids[i] ?? 0;
      if (!(id >= 0 && id < vocabSize && Number.isInteger(id)))
        throw new InputError(
          `token id ${id} is outside the vocabulary of ${vocabSize}`,
          `input id ${i}`,
          "Do model and tokenizer belong together?",
        );
      this.ids[i] = BigInt(id);
    }
    this.device.write(buffer, bytesOf(this.ids.subarray(0, tokens)));
  }

  /**
   * Weights of cross attention, prepared for dynamic time warping.
   * @param ids decoder tokens, prompt included
   * @param skip number of first tokens that do not count
   * @param length number of positions that count, at least 1
   * @returns [ids.length - skip] rows of [length]
   * @throws InputError if the model has no alignment heads, or there are too many ids
   */
  async align(
    source: EncodedSource,
    ids: readonly number[],
    skip: number,
    length: number,
  ): Promise<Float32Array[]> {
    const { device, positions } = this;
    const sizes = this.described.map((p) => p.tokens);
    const described = this.described[aligner_for(sizes, ids.length, skip, length, positions)]!;
    const { tokens } = described;
    const one = this.aligner(described);
    const own = this.allocate(this.info.caches, "the keys and values of times of words");
    try {
      this.bindCaches(one, own, source.caches);
      this.writeIds(one.memory.get("input_ids")!, tokens, ids);
      const rows = Float32Array.from(shares(ids.length, skip, tokens));
      device.write(one.memory.get("rows")!, bytesOf(rows));
      const frames = one.memory.get("frames")!;
      const width = frames.bytes / 8 - positions + 1;
      const at = reflected(length, positions, width).map(BigInt);
      device.write(frames, bytesOf(BigInt64Array.from(at)));
      device.register(one.plan, SOURCE, source.positions);
      device.run(one.plan, one.file);
      const row = 4 * positions;
      const bytes = await device.read(
        one.memory.get("alignment")!,
        skip * row,
        (ids.length - skip) * row,
      );
      return Array.from(
        { length: ids.length - skip },
        (_, i) => new Float32Array(bytes.buffer, bytes.byteOffset + i * row, length),
      );
    } finally {
      free(device, own);
    }
  }

  private aligner(described: Seq2SeqPlan): Loaded & { memory: Caches } {
    let one = this.aligners.get(described.tokens);
    if (!one) {
      const { device, weights } = this;
      const loaded = this.load(described, null);
      const memory: Caches = new Map();
      try {
        described.slots.forEach(({ name, kind, bytes }, i) => {
          if (kind !== "input" && kind !== "output") return;
          memory.set(name, device.allocate(bytes, `the ${name} of times of words`));
          device.bind(loaded.plan, i, memory.get(name)!, `${loaded.where}, slot '${name}'`);
        });
        weights.compute([loaded], false);
      } catch (e) {
        device.freePlan(loaded.plan);
        free(device, memory);
        throw e;
      }
      one = { ...loaded, memory };
      this.aligners.set(described.tokens, one);
    }
    return one;
  }
}

/** Closed sequences whose caches are kept: those of beams. */
const KEPT = 8;

function descending(a: Seq2SeqPlan, b: Seq2SeqPlan): number {
  return b.tokens - a.tokens;
}

function free(device: Device, caches: Caches): void {
  for (const buffer of caches.values()) device.release(buffer);
  caches.clear();
}

function bytesOf(array: ArrayBufferView<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
