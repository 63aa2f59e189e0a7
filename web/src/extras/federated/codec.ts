// The numbers of the update format edgewise.delta.1, as in
// python/edgewise/extras/federated/codec.py; python/edgewise/logic/federated/layout.py says where
// they are.

import {
  BLOCK,
  checked,
  FORMAT,
  fault_of,
  fields_of,
  groups_of,
  CODECS as KNOWN,
  LEVELS,
  part_of,
  product,
  rank_axis,
  SCALES,
  tensors_of,
  text_of,
  VALUES,
} from "../../logic/federated/layout.ts";
import {
  asFloat32,
  readSafetensors,
  safetensorsHead,
} from "../../shared/checkpoints/safetensors.ts";
import { InputError, ModelError } from "../../shared/errors.ts";
import { toHalf } from "../../shared/float16.ts";
import { nearest } from "../../shared/python/numbers.ts";

/** Numbers of each parameter, in row-major order. */
export type Values = Map<string, Float32Array<ArrayBuffer>>;
/** How the numbers of an update are written. */
export type Codec = "float32" | "float16" | "int8" | "int4";
/** All codecs. */
export const CODECS = KNOWN as readonly Codec[];

const SMALLEST = 2 ** -24; // the smallest float16

/** SHA-256 in hexadecimal. */
export async function sha256(...parts: BufferSource[]): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", await new Blob(parts).arrayBuffer());
  return Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, "0")).join("");
}

type Shapes = [string, readonly number[]][];
type Tensor = [string, string, readonly number[]];

/** Names and shapes of what is trained. */
export class Schema {
  /** Shapes by name, sorted by name. */
  readonly shapes: ReadonlyMap<string, readonly number[]>;

  private constructor(
    shapes: Shapes,
    /** Identity of the schema. */ readonly sha256: string,
  ) {
    this.shapes = new Map(shapes);
  }

  /** @throws InputError if there is nothing to train, or a name cannot be used */
  static async of(shapes: Iterable<[string, readonly number[]]>): Promise<Schema> {
    const sorted = checked([...shapes]) as Shapes;
    return new Schema(sorted, await sha256(new TextEncoder().encode(text_of(sorted))));
  }

  /**
   * The parameters that a round changes: all, or for "B" the matrices B of LoRA.
   * @throws InputError if there is no such part
   */
  async part(part: string | null): Promise<Schema> {
    return part === null ? this : Schema.of(part_of([...this.shapes], part) as Shapes);
  }

  /** Numbers in all parameters. */
  get count(): number {
    return [...this.shapes.values()].reduce((n, shape) => n + product(shape), 0);
  }

  /** Scales of all parameters. */
  get groups(): number {
    return [...this.shapes].reduce((n, [name, shape]) => n + groups_of(name, shape), 0);
  }

  /** The identity of weights. */
  base(values: Values): Promise<string> {
    const parts = Array.from(this.shapes.keys(), (name) => values.get(name)!);
    return sha256(new TextEncoder().encode(this.sha256), ...parts);
  }
}

/** The layout of a parameter's scales: a value at position i belongs to group `of(i)`. */
function groupsOf(
  name: string,
  shape: readonly number[],
): { count: number; of: (i: number) => number } {
  const count = groups_of(name, shape);
  const axis = rank_axis(name);
  if (axis === null || axis >= shape.length) return { count, of: (i) => Math.floor(i / BLOCK) };
  const inner = product(shape.slice(axis + 1));
  return { count, of: (i) => Math.floor(i / inner) % count };
}

const bytesOf = (x: Float32Array | Uint16Array | Int8Array): Uint8Array<ArrayBuffer> =>
  new Uint8Array(x.buffer as ArrayBuffer, x.byteOffset, x.byteLength);
const fromHalves = (x: Uint16Array<ArrayBuffer>): Float32Array<ArrayBuffer> =>
  asFloat32(bytesOf(x), "float16", "");

interface Part {
  dtype: string;
  shape: number[];
  data: Uint8Array<ArrayBuffer>;
}

function checkFinite(name: string, x: Float32Array): void {
  if (!x.every(Number.isFinite))
    throw new InputError(
      "its change is not finite, or too large for float16",
      name,
      "Train with a smaller learning rate.",
    );
}

/** The largest value of each group, divided by the number of levels. */
function scalesOf(
  x: Float32Array,
  groups: ReturnType<typeof groupsOf>,
  levels: number,
): { halves: Uint16Array<ArrayBuffer>; scales: Float32Array<ArrayBuffer> } {
  const most = new Float32Array(groups.count);
  x.forEach((v, i) => {
    const g = groups.of(i);
    most[g] = Math.max(most[g]!, Math.abs(v));
  });
  const halves = Uint16Array.from(most, (m) => {
    const half = toHalf(Math.fround(m / levels));
    return half || (Math.fround(m / levels) > 0 ? toHalf(SMALLEST) : 0);
  });
  return { halves, scales: fromHalves(halves) };
}

/** Collects the tensors of a file. */
class Writer {
  private readonly floats = new Map<string, Part>();
  private readonly values: Int8Array<ArrayBuffer>;
  private readonly scales: Uint16Array<ArrayBuffer>;
  private at = 0;
  private group = 0;

  constructor(
    schema: Schema,
    private readonly codec: Codec,
  ) {
    const [count, groups] = LEVELS.has(codec) ? [schema.count, schema.groups] : [0, 0];
    this.values = new Int8Array(count);
    this.scales = new Uint16Array(groups);
  }

  /** Adds a parameter. Returns the numbers that a reader gets. */
  add(
    name: string,
    x: Float32Array<ArrayBuffer>,
    shape: readonly number[],
  ): Float32Array<ArrayBuffer> {
    checkFinite(name, x);
    const { codec } = this;
    if (LEVELS.has(codec)) return this.quantize(name, x, shape, LEVELS.get(codec)!);
    const halves = codec === "float16" ? Uint16Array.from(x, toHalf) : undefined;
    const decoded = halves ? fromHalves(halves) : x;
    checkFinite(name, decoded);
    this.floats.set(name, { dtype: codec, shape: [...shape], data: bytesOf(halves ?? x) });
    return decoded;
  }

  private quantize(
    name: string,
    x: Float32Array<ArrayBuffer>,
    shape: readonly number[],
    levels: number,
  ): Float32Array<ArrayBuffer> {
    const groups = groupsOf(name, shape);
    const { halves, scales } = scalesOf(x, groups, levels);
    checkFinite(name, scales);
    const values = Int8Array.from(x, (v, i) => {
      const scale = scales[groups.of(i)]!;
      return scale ? Math.max(-levels, Math.min(levels, nearest(Math.fround(v / scale)))) : 0;
    });
    this.values.set(values, this.at);
    this.scales.set(halves, this.group);
    this.at += values.length;
    this.group += halves.length;
    return Float32Array.from(values, (v, i) => v * scales[groups.of(i)]!);
  }

  /** The tensors of the file. */
  tensors(): Map<string, Part> {
    if (!LEVELS.has(this.codec)) return this.floats;
    const whole = this.codec === "int8";
    const data = whole ? bytesOf(this.values) : halved(this.values);
    return new Map([
      [VALUES, { dtype: whole ? "int8" : "uint8", shape: [data.length], data }],
      [SCALES, { dtype: "float16", shape: [this.group], data: bytesOf(this.scales) }],
    ]);
  }
}

/** Two values a byte, the low half first. */
function halved(values: Int8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(Math.ceil(values.length / 2));
  values.forEach((v, i) => (out[i >> 1]! |= (v & 15) << (4 * (i & 1))));
  return out;
}

/** A packed update. */
export interface Packed {
  /** The file. */ data: Uint8Array<ArrayBuffer>;
  /** The numbers that its reader gets. */ decoded: Values;
  /** What was rounded away. */ left: Values;
}

/**
 * Writes an update.
 * @param values the difference of each parameter
 * @param metadata base, run and round
 * @param left what earlier updates have rounded away; it is added first
 * @throws InputError if a number is not finite, or too large for the codec
 */
export async function pack(
  values: Values,
  schema: Schema,
  codec: Codec,
  metadata: Record<string, string>,
  left?: Values,
): Promise<Packed> {
  const writer = new Writer(schema, codec);
  const decoded: Values = new Map();
  const remaining: Values = new Map();
  for (const [name, shape] of schema.shapes) {
    const before = left?.get(name);
    const given = values.get(name)!;
    const x = before ? given.map((v, i) => v + before[i]!) : given;
    const got = writer.add(name, x, shape);
    decoded.set(name, got);
    remaining.set(
      name,
      x.map((v, i) => v - got[i]!),
    );
  }
  const parts = writer.tensors();
  const { head, order } = safetensorsHead(
    new Map(
      Array.from(parts, ([key, p]) => [
        key,
        { dtype: p.dtype, shape: p.shape, bytes: p.data.length },
      ]),
    ),
    fields_of(schema.sha256, codec, "delta", metadata),
  );
  const file = new Blob([head, ...order.map((key) => parts.get(key)!.data)]);
  return { data: new Uint8Array(await file.arrayBuffer()), decoded, left: remaining };
}

/**
 * Reads a file of weights or differences.
 * @param metadata fields that the file must have, such as kind and base
 * @throws ModelError if it is damaged, or not what is expected
 */
export async function unpack(
  data: Uint8Array<ArrayBuffer>,
  schema: Schema,
  codec: Codec,
  metadata: Record<string, string>,
): Promise<Values> {
  const where = "federated weights";
  const fail = (what: string, at = ""): never => {
    const place = at ? `${where}, ${at}` : where;
    throw new ModelError(what, place, "The server sent another file than it announced.");
  };
  const found = await readSafetensors(new Blob([data]), where);
  const fields = { format: FORMAT, schema: schema.sha256, codec, ...metadata };
  const tensors = tensors_of([...schema.shapes], codec);
  const given = Array.from(found.tensors, ([n, t]): Tensor => [n, t.dtype, t.shape]);
  const fault = fault_of(found.metadata, given, fields, tensors);
  if (fault) fail(fault[1], fault[2]);
  const raw = new Map<string, Uint8Array<ArrayBuffer>>();
  for (const [key] of tensors) {
    const t = found.tensors.get(key)!;
    raw.set(key, data.slice(t.offset, t.offset + t.bytes));
  }
  const out: Values = LEVELS.has(codec)
    ? dequantized(schema, codec, raw.get(VALUES)!, raw.get(SCALES)!)
    : new Map(Array.from(raw, ([name, bytes]) => [name, asFloat32(bytes, codec, where)]));
  for (const [name, x] of out)
    if (!x.every(Number.isFinite)) fail(`'${name}' contains NaN or infinity`);
  return out;
}

function dequantized(
  schema: Schema,
  codec: Codec,
  values: Uint8Array<ArrayBuffer>,
  halves: Uint8Array<ArrayBuffer>,
): Values {
  const scales = asFloat32(halves, "float16", SCALES);
  const stored = codec === "int8" ? new Int8Array(values.buffer) : values;
  const value =
    codec === "int8"
      ? (i: number) => stored[i]!
      : (i: number) => (((stored[i >> 1]! >> (4 * (i & 1))) & 15) ^ 8) - 8;
  const out: Values = new Map();
  let [at, group] = [0, 0];
  for (const [name, shape] of schema.shapes) {
    const groups = groupsOf(name, shape);
    const [begin, first] = [at, group];
    out.set(
      name,
      Float32Array.from(
        { length: product(shape) },
        (_, i) => value(begin + i) * scales[first + groups.of(i)]!,
      ),
    );
    at += product(shape);
    group += groups.count;
  }
  return out;
}

/** The L2 norm of all numbers. */
export function normOf(values: Values): number {
  let sum = 0;
  for (const x of values.values()) for (const v of x) sum += v * v;
  return Math.sqrt(sum);
}
