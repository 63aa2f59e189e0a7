// Tensors as pages give and get them, with the names of ONNX Runtime Web's.

import { InputError } from "./errors.ts";

const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array, uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, float16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array } as const;
/** Names of element types, ONNX Runtime Web's. float16 is given as its bits, bool as 0 and 1. */
export type TensorType = keyof typeof ARRAYS;
/** Typed arrays that tensors hold: the one of the element type's name; Uint16Array for float16, Uint8Array for bool. */
export type TensorData = Float32Array | Float64Array | BigInt64Array | BigUint64Array | Int32Array | Uint32Array | Int16Array | Uint16Array | Int8Array | Uint8Array;

/** A tensor as in ONNX Runtime Web: `new Tensor("float32", data, [2, 3])`, or `new Tensor(data, [2, 3])`. */
export class Tensor {
  /** Element type. */
  readonly type: TensorType;
  /** The elements, row by row. Not copied: what was passed, if it is of the type's own array. */
  readonly data: TensorData;
  /** Sizes of its dimensions; [] for a scalar. */
  readonly dims: readonly number[];

  /**
   * @param type element type. @param data elements, row by row: the type's typed array, or a list of numbers. @param dims sizes; default: one dimension.
   * @throws InputError: the type is unknown, or dims are not those of so many elements
   */
  constructor(type: TensorType, data: TensorData | readonly number[] | readonly bigint[] | readonly boolean[], dims?: readonly number[]);
  /** With the element type that the typed array has (never float16 or bool). */
  constructor(data: TensorData, dims?: readonly number[]);
  constructor(a: TensorType | TensorData, b?: TensorData | readonly number[] | readonly bigint[] | readonly boolean[] | readonly number[], c?: readonly number[]) {
    if (typeof a === "string") {
      const array = ARRAYS[a];
      if (!array) throw new InputError(`there is no element type '${String(a).slice(0, 40)}'`, "Tensor", `Use one of ${Object.keys(ARRAYS).join(", ")}.`);
      if (!b || typeof (b as ArrayLike<unknown>).length !== "number") throw new InputError("there are no data", "Tensor", "Give a typed array or a list.");
      this.type = a;
      this.data = (b instanceof array ? b : (array as unknown as { from(x: unknown, f?: (y: never) => unknown): TensorData }).from(b, a === "int64" || a === "uint64" ? (x: never) => BigInt(x) : Number)) as TensorData;
      this.dims = Array.from(c ?? [this.data.length]);
    } else {
      const type = Object.entries(ARRAYS).find(([name, array]) => a instanceof array && name !== "float16" && name !== "bool")?.[0];
      if (!type) throw new InputError("its data are no typed array", "Tensor", "Give a type first, or a typed array.");
      this.type = type as TensorType;
      this.data = a as TensorData;
      this.dims = Array.from((b as readonly number[] | undefined) ?? [a.length]);
    }
    const size = this.dims.reduce((x, d) => x * d, 1);
    if (!this.dims.every((d) => Number.isSafeInteger(d) && d >= 0) || size !== this.data.length) throw new InputError(`dims [${this.dims.join(", ")}] are not those of ${this.data.length} elements`, "Tensor", "Give dims whose product is the number of elements.");
  }

  /** Number of elements. */
  get size(): number {
    return this.data.length;
  }
}

/** Tensors by name. */
export type Tensors = Record<string, Tensor>;
/** A tensor on its way between page and worker: bytes, little-endian. */
export interface PlainTensor { type: string; dims: number[]; data: Uint8Array<ArrayBuffer> }

/** A copy of its bytes, with type and dims. */
export function plainOf({ type, dims, data }: Tensor): PlainTensor {
  return { type, dims: [...dims], data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice() };
}

/** Feeds, checked to be tensors. */
export function plain(feeds: Tensors): Record<string, PlainTensor> {
  return Object.fromEntries(Object.entries(feeds).map(([name, t]) => {
    if (!t || !(t.type in ARRAYS) || !ArrayBuffer.isView(t.data)) throw new InputError("it is no tensor", `feed '${name}'`, "Give a Tensor.");
    return [name, plainOf(t)];
  }));
}

/** @see PlainTensor */
export function tensor({ type, dims, data }: PlainTensor): Tensor {
  return new Tensor(type as TensorType, new ARRAYS[type as TensorType](data.buffer, data.byteOffset, data.length / ARRAYS[type as TensorType].BYTES_PER_ELEMENT) as TensorData, dims);
}

/** The outputs that `fetches` names (by default all), as tensors. */
export function picked(outputs: Record<string, PlainTensor>, fetches: readonly string[] | Record<string, unknown> | undefined): Tensors {
  const names = fetches === undefined ? Object.keys(outputs) : Array.isArray(fetches) ? (fetches as string[]) : Object.keys(fetches);
  for (const name of names) if (!outputs[name]) throw new InputError("the model has no such output", `fetch '${name}'`, `Its outputs are ${Object.keys(outputs).join(", ")}.`);
  return Object.fromEntries(names.map((name) => [name, tensor(outputs[name]!)]));
}
