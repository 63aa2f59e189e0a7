// What a run has in its hands between plans: tensors in engine memory or as bytes, tensors of
// strings, sequences, maps, optionals without a value. The counterpart of
// python/edgewise/ops/values.py. All are immutable; engine memory is given back when its last value
// is released: `retain` and `release` count references.

import type { Buffer, Device } from "../../device/device.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import { ModelError } from "../../shared/errors.ts";
import type { Block } from "./memory.ts";

/** Number of elements. */
export function elements(dims: readonly number[]): number {
  let n = 1;
  for (const d of dims) n *= d;
  return n;
}

/** Bytes of a tensor; NaN for a type without numbers. */
export function byteSize(type: string, dims: readonly number[]): number {
  const bits = ELEMENT_BITS[type];
  return bits === undefined ? NaN : Math.ceil((elements(dims) * bits) / 8);
}

/** Whether two lists of sizes are the same. */
export function sameDims(a: readonly number[], b: readonly number[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** A device, as a reader of its memory. */
export type Reader = Pick<Device, "read">;

/** A tensor of numbers: bytes here (`data`), in a device's memory (`buffer`), or both. */
export class NumberTensor {
  readonly kind = "tensor";
  refs = 1;
  private list: number[] | undefined;

  /**
   * @param buffer undefined: its bytes are only in `data`. A buffer may be larger than the tensor
   * @param block the owner of the buffer; undefined where the buffer is not a run's, as a weight's
   */
  constructor(
    readonly type: string,
    readonly dims: readonly number[],
    public data: Uint8Array<ArrayBuffer> | undefined,
    public buffer: Buffer | undefined = undefined,
    public block: Block | undefined = undefined,
  ) {}

  /** Of numbers, which must fit the type; "bool" takes 0 and 1. */
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

  /** Its bytes: `data`, or a copy of what is in the device's memory. */
  async read(device: Reader): Promise<Uint8Array<ArrayBuffer>> {
    if (this.data) return this.data;
    const n = this.bytes;
    return n ? device.read(this.buffer!, 0, n) : new Uint8Array(0);
  }

  /** Its elements. Integers beyond 2^53 are the nearest numbers: `wide` tells them exactly. */
  async numbers(device: Reader): Promise<number[]> {
    return (this.list ??= unpacked(this.type, await this.read(device), this.count));
  }

  /** The same memory with other dims, which begin `offset` bytes into it and lie inside of it. */
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

  /** Its slices along the first dimension: the same memory. */
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

  /** Lets go of its memory. What has bytes of its own can be placed in the engine again. */
  freed(): void {
    if (this.block && this.data) this.buffer = undefined;
    this.block?.release();
    this.block = undefined;
  }

  toString(): string {
    return `${this.type}[${this.dims.join(", ")}]`;
  }
}

export const REFERENCE_BYTES = 32; // bytes that a reference to a small object and the object take
export const ENTRY_BYTES = 64; // bytes of an entry of a map

/** A tensor of strings, which only this side sees. */
export class StringTensor {
  readonly kind = "strings";
  readonly type = "string";
  refs = 1;
  /** Ends the counting of its memory. */
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
  /** What it takes of the host's memory, about. */
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
 * The items that sequences share: each sees as many from the beginning as it has. One reference of
 * each item.
 */
class SharedItems {
  /** Lengths of the sequences that share it, ascending; some of them are gone. */
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

  /** The sequence of this length is gone: lets go of what only it saw. */
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

  /** A list of its items; `at` and `length` copy none. */
  get items(): RunValue[] {
    return this.shared.items.slice(0, this.length);
  }

  at(i: number): RunValue | undefined {
    return i < this.length ? this.shared.items[i] : undefined;
  }

  /**
   * The sequence with one item more at its end: in constant time, unless another was made longer
   * before and is still there.
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

/** A map of ONNX-ML: integers (as bigint) or strings to numbers, integers (bigint) or strings. */
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

/** An optional without a value. One with a value is that value. */
export class Nothing {
  readonly kind = "nothing";
  refs = 1;
  freed(): void {}
  toString(): string {
    return "an optional without a value";
  }
}

export type RunValue = NumberTensor | StringTensor | Sequence | OnnxMap | Nothing;

/** One more reference. */
export function retain<V extends RunValue>(v: V): V {
  v.refs++;
  return v;
}

/** One reference less; the last one lets go of what it holds. */
export function release(v: RunValue): void {
  if (--v.refs === 0) v.freed();
}

/** A float16's number, from its bits. */
function fromHalf(bits: number): number {
  const [sign, e, m] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return (
    sign * (e === 31 ? (m ? NaN : Infinity) : e ? 2 ** (e - 15) * (1 + m / 1024) : 2 ** -24 * m)
  );
}

/** Typed array of the types that JavaScript has one for. */
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
 * Elements as they lie in a typed array: int64 and uint64 as bigint, halves as bits. @throws
 * ModelError: of a type that is only stored
 */
export function typed(
  type: string,
  bytes: Uint8Array<ArrayBuffer>,
  count: number,
): ArrayLike<number | bigint> {
  const make = ARRAYS[type];
  if (!make)
    throw new ModelError(
      `the numbers of a tensor of type ${type} are needed`,
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

/** Bytes of numbers. @throws ModelError: of a type that pages do not write */
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

/** Bytes from hexadecimal digits, as Python writes them. */
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
