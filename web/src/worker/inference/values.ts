// Values between plans: tensors in device memory or as bytes, string tensors, sequences, maps,
// empty optionals. Mirrors python/edgewise/compiler/declare/values.py. All are immutable and
// reference-counted by `retain` and `release`; device memory is freed with its last value.

import type { Buffer, Device } from "../../device/device.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import { ModelError } from "../../shared/errors.ts";
import { fromHalf } from "../../shared/float16.ts";
import type { PoolBlock } from "./memory.ts";

/** Number of elements. */
export function elements(dims: readonly number[]): number {
  let n = 1;
  for (const d of dims) n *= d;
  return n;
}

/** Size of a tensor in bytes; NaN for a non-numeric type. */
export function byteSize(type: string, dims: readonly number[]): number {
  const bits = ELEMENT_BITS[type];
  return bits === undefined ? NaN : Math.ceil((elements(dims) * bits) / 8);
}

/** Whether two shapes are equal. */
export function sameDims(a: readonly number[], b: readonly number[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** A device, for reading its memory. */
export type Reader = Pick<Device, "read">;

/** A numeric tensor: as bytes (`data`), in device memory (`buffer`), or both. */
export class NumberTensor {
  readonly kind = "tensor";
  refs = 1;
  private list: number[] | undefined;

  /**
   * @param type element type
   * @param dims shape
   * @param data bytes; undefined if they are in `buffer` only
   * @param buffer device memory, which may be larger than the tensor; undefined if there is none
   * @param block owner of the buffer; undefined if it is not a run's, such as that of a weight
   */
  constructor(
    readonly type: string,
    readonly dims: readonly number[],
    public data: Uint8Array<ArrayBuffer> | undefined,
    public buffer: Buffer | undefined = undefined,
    public block: PoolBlock | undefined = undefined,
  ) {}

  /** Makes a tensor of numbers, which must fit the type; "bool" takes 0 and 1. */
  static of(type: string, dims: readonly number[], numbers: readonly number[]): NumberTensor {
    const t = new NumberTensor(type, dims, packed(type, numbers));
    t.list = [...numbers];
    return t;
  }

  get rank(): number {
    return this.dims.length;
  }
  get count(): number {
    return elements(this.dims);
  }
  get bytes(): number {
    return byteSize(this.type, this.dims);
  }

  /** The tensor's bytes: `data`, or a copy of device memory. */
  async read(device: Reader): Promise<Uint8Array<ArrayBuffer>> {
    if (this.data) return this.data;
    const n = this.bytes;
    return n ? device.read(this.buffer!, 0, n) : new Uint8Array(0);
  }

  /** The elements. Integers beyond 2^53 are rounded; `typed` has the exact values. */
  async numbers(device: Reader): Promise<number[]> {
    return (this.list ??= unpacked(this.type, await this.read(device), this.count));
  }

  /** A tensor of another shape in the same memory, at an offset in bytes. */
  view(dims: readonly number[], offset = 0): NumberTensor {
    const bytes = byteSize(this.type, dims);
    const t = new NumberTensor(
      this.type,
      dims,
      this.data?.subarray(offset, offset + bytes),
      offset ? this.buffer?.part(offset) : this.buffer,
      this.block,
    );
    this.block?.retain();
    if (!offset && this.list && elements(dims) === this.count) t.list = this.list;
    return t;
  }

  /** Slices along the first dimension, in the same memory. */
  rows(where: string): NumberTensor[] {
    const dims = this.dims.slice(1);
    const bits = elements(dims) * ELEMENT_BITS[this.type]!;
    if (bits % 8)
      throw new ModelError(
        `rows of ${String(this)} do not begin at whole bytes`,
        where,
        "Export the model with 8-bit elements.",
      );
    return Array.from({ length: this.dims[0]! }, (_, i) => this.view(dims, (i * bits) / 8));
  }

  /** Releases device memory. A tensor with `data` can be copied to the device again. */
  freed(): void {
    if (this.block && this.data) this.buffer = undefined;
    this.block?.release();
    this.block = undefined;
  }

  toString(): string {
    return `${this.type}[${this.dims.join(", ")}]`;
  }
}

export const REFERENCE_BYTES = 32; // estimate for a small object and a reference to it
export const ENTRY_BYTES = 64; // estimate for an entry of a map

/** A string tensor, which exists on the host only. */
export class StringTensor {
  readonly kind = "strings";
  readonly type = "string";
  refs = 1;
  /** Ends the accounting of its memory. */
  held: (() => void) | undefined;
  constructor(
    readonly dims: readonly number[],
    readonly strings: readonly string[],
  ) {}
  get rank(): number {
    return this.dims.length;
  }
  get count(): number {
    return this.strings.length;
  }
  rows(): StringTensor[] {
    const step = elements(this.dims.slice(1));
    return Array.from(
      { length: this.dims[0]! },
      (_, i) => new StringTensor(this.dims.slice(1), this.strings.slice(i * step, (i + 1) * step)),
    );
  }
  /** Estimate of its host memory in bytes. */
  get hostBytes(): number {
    let bytes = 0;
    for (const s of this.strings) bytes += REFERENCE_BYTES + 2 * s.length;
    return bytes;
  }
  freed(): void {
    this.held?.();
  }
  toString(): string {
    return `string[${this.dims.join(", ")}]`;
  }
}

/**
 * Items shared by several sequences, each of which is a prefix. Holds one reference of each item.
 */
class SharedItems {
  /** Lengths of the sequences that share the items, ascending; may include released ones. */
  private readonly lengths: number[];
  private readonly gone = new Set<number>();

  constructor(readonly items: RunValue[]) {
    this.lengths = [items.length];
    for (const v of items) retain(v);
  }

  append(v: RunValue): void {
    this.items.push(retain(v));
    this.lengths.push(this.items.length);
  }

  /** Removes the sequence of this length, and releases items that only it contained. */
  leave(length: number): void {
    this.gone.add(length);
    while (this.lengths.length && this.gone.delete(this.lengths.at(-1)!)) this.lengths.pop();
    const seen = this.lengths.at(-1) ?? 0;
    while (this.items.length > seen) release(this.items.pop()!);
  }
}

/** A sequence of values, which it retains. */
export class Sequence {
  readonly kind = "sequence";
  refs = 1;
  held: (() => void) | undefined;
  readonly length: number;
  private readonly shared: SharedItems;

  constructor(items: readonly RunValue[] | SharedItems) {
    this.shared = items instanceof SharedItems ? items : new SharedItems([...items]);
    this.length = this.shared.items.length;
  }

  /** A copy of the list of items; `at` and `length` do not copy. */
  get items(): RunValue[] {
    return this.shared.items.slice(0, this.length);
  }

  at(i: number): RunValue | undefined {
    return i < this.length ? this.shared.items[i] : undefined;
  }

  /**
   * This sequence with one more item at its end. Takes constant time, unless another sequence was
   * extended from this one and still exists.
   */
  withLast(v: RunValue): Sequence {
    if (this.shared.items.length !== this.length) return new Sequence([...this.items, v]);
    this.shared.append(v);
    return new Sequence(this.shared);
  }

  get hostBytes(): number {
    return REFERENCE_BYTES * this.length;
  }
  freed(): void {
    this.held?.();
    this.shared.leave(this.length);
  }
  toString(): string {
    return `a sequence of ${this.length}`;
  }
}

/** A map of ONNX-ML, from integers (bigint) or strings to numbers, integers (bigint) or strings. */
export class OnnxMap {
  readonly kind = "map";
  refs = 1;
  held: (() => void) | undefined;
  constructor(
    readonly entries: ReadonlyMap<string | bigint, string | number | bigint>,
    readonly key: string,
    readonly value: string,
  ) {}
  get hostBytes(): number {
    return ENTRY_BYTES * this.entries.size;
  }
  freed(): void {
    this.held?.();
  }
  toString(): string {
    return `a map of ${this.entries.size}`;
  }
}

/** An empty optional. A non-empty optional is represented by its value. */
export class Nothing {
  readonly kind = "nothing";
  refs = 1;
  freed(): void {}
  toString(): string {
    return "an optional without a value";
  }
}

export type RunValue = NumberTensor | StringTensor | Sequence | OnnxMap | Nothing;

/** Adds a reference. */
export function retain<V extends RunValue>(v: V): V {
  v.refs++;
  return v;
}

/** Removes a reference; the last one frees the value. */
export function release(v: RunValue): void {
  if (--v.refs === 0) v.freed();
}

/** Typed array views by element type. */
const ARRAYS: Readonly<
  Record<string, (b: ArrayBuffer, at: number, n: number) => ArrayLike<number | bigint>>
> = {
  float32: (b, at, n) => new Float32Array(b, at, n),
  float64: (b, at, n) => new Float64Array(b, at, n),
  int64: (b, at, n) => new BigInt64Array(b, at, n),
  uint64: (b, at, n) => new BigUint64Array(b, at, n),
  int32: (b, at, n) => new Int32Array(b, at, n),
  uint32: (b, at, n) => new Uint32Array(b, at, n),
  int16: (b, at, n) => new Int16Array(b, at, n),
  uint16: (b, at, n) => new Uint16Array(b, at, n),
  float16: (b, at, n) => new Uint16Array(b, at, n),
  bfloat16: (b, at, n) => new Uint16Array(b, at, n),
  int8: (b, at, n) => new Int8Array(b, at, n),
  uint8: (b, at, n) => new Uint8Array(b, at, n),
  bool: (b, at, n) => new Uint8Array(b, at, n),
};

/**
 * A view of a tensor's elements: int64 and uint64 as bigint, half-precision types as bits.
 * @throws ModelError for types without a JavaScript representation
 */
export function typed(
  type: string,
  bytes: Uint8Array<ArrayBuffer>,
  count: number,
): ArrayLike<number | bigint> {
  const make = ARRAYS[type];
  if (!make)
    throw new ModelError(
      `the numbers of a tensor of type ${type} are required`,
      "",
      "Export the model with standard element types.",
    );
  const size = ELEMENT_BITS[type]! / 8;
  const at = bytes.byteOffset % size ? bytes.slice() : bytes;
  return make(at.buffer, at.byteOffset, count);
}

function unpacked(type: string, bytes: Uint8Array<ArrayBuffer>, count: number): number[] {
  const raw = typed(type, bytes, count);
  if (type === "float16") return Array.from(raw, (x) => fromHalf(Number(x)));
  if (type === "bfloat16")
    return Array.from(
      typed("float32", new Uint8Array(Uint32Array.from(raw, (x) => Number(x) << 16).buffer), count),
      Number,
    );
  return Array.from(raw, Number);
}

/**
 * Serializes numbers.
 * @throws ModelError for types that cannot be written
 */
export function packed(type: string, numbers: readonly number[]): Uint8Array<ArrayBuffer> {
  switch (type) {
    case "float32":
      return new Uint8Array(Float32Array.from(numbers).buffer);
    case "float64":
      return new Uint8Array(Float64Array.from(numbers).buffer);
    case "int64":
      return new Uint8Array(BigInt64Array.from(numbers, BigInt).buffer);
    case "uint64":
      return new Uint8Array(BigUint64Array.from(numbers, BigInt).buffer);
    case "int32":
      return new Uint8Array(Int32Array.from(numbers).buffer);
    case "uint32":
      return new Uint8Array(Uint32Array.from(numbers).buffer);
    case "int16":
      return new Uint8Array(Int16Array.from(numbers).buffer);
    case "uint16":
      return new Uint8Array(Uint16Array.from(numbers).buffer);
    case "int8":
      return new Uint8Array(Int8Array.from(numbers).buffer);
    case "uint8":
    case "bool":
      return Uint8Array.from(numbers);
    default:
      throw new ModelError(
        `numbers are to become a tensor of type ${type}`,
        "",
        "Export the model with standard element types.",
      );
  }
}

/** Parses hexadecimal digits, as written by Python. */
export function fromHex(text: string): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(text.length >> 1);
  for (let i = 0; i < out.length; i++) out[i] = parseInt(text.substr(2 * i, 2), 16);
  return out;
}

/** The inverse of {@link fromHex}. */
export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (const b of bytes) text += b.toString(16).padStart(2, "0");
  return text;
}
