// The typed arrays of element types, with the names of ONNX Runtime Web.

/** By type; float16 and bfloat16 are represented by their bits, bool by 0 and 1. */
export const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
} as const;

/** Elements of a tensor. */
export type Elements =
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array;

/** The array of a type's elements; undefined: it has none. */
export function arrayOf(type: string): (typeof ARRAYS)[keyof typeof ARRAYS] | undefined {
  return Object.hasOwn(ARRAYS, type) ? ARRAYS[type as keyof typeof ARRAYS] : undefined;
}
