// The elements of tensors: which array stores a type's, and what can be given for it. As the
// constructor of onnxruntime-common's Tensor.

import { ARRAYS, arrayOf, type Elements } from "../shared/element-arrays.ts";
import { InputError, InputRangeError, InputTypeError } from "../shared/errors.ts";

/** Types without a JavaScript array type, or with packed elements: represented by their bytes. */
const BYTES = [
  "uint4",
  "int4",
  "uint2",
  "int2",
  "float8_e4m3fn",
  "float8_e4m3fnuz",
  "float8_e5m2",
  "float8_e5m2fnuz",
  "float4_e2m1fn",
  "float8_e8m0fnu",
  "float6_e2m3fn",
  "float6_e3m2fn",
] as const;

/**
 * Element types, named as in ONNX Runtime Web. bfloat16 is represented by its bits, and so is
 * float16 where there is no Float16Array; bool by 0 and 1, types of at most one byte by their
 * bytes; 4-bit types have two elements per byte, the low half first.
 */
export type TensorType = keyof typeof ARRAYS | "string" | (typeof BYTES)[number];
/**
 * Storage of a tensor: the typed array named after the element type; Uint16Array for bfloat16, and
 * for float16 where there is no Float16Array (as in ONNX Runtime Web); Uint8Array for bool and
 * types of less than a byte; an array of strings for "string".
 */
export type TensorData = Elements | string[];
/** A Float16Array, which older libraries of TypeScript do not declare. */
export interface Halves extends ArrayBufferView {
  readonly [Symbol.toStringTag]: "Float16Array";
  readonly length: number;
  [index: number]: number;
}
/** Whether a type is represented by bytes that hold other numbers, or several. */
export function isPacked(type: TensorType): boolean {
  return (BYTES as readonly string[]).includes(type);
}

/**
 * The elements as numbers, or as bigint or strings; not those of bits or bytes, which hold others.
 * @throws InputError
 */
export function numbersOf(type: TensorType, data: TensorData, where: string): TensorData {
  if (isPacked(type) || (data instanceof Uint16Array && type !== "uint16"))
    throw new InputError(
      `the data of ${type} is its ${isPacked(type) ? "bytes" : "bits"} here, not its numbers`,
      where,
      isPacked(type) ? "Take them from its data." : 'Use tensor.to("float32").',
    );
  return data;
}

/** @throws InputTypeError, InputRangeError */
export function checkedDims(dims: unknown): number[] {
  const remedy = "Give a list of sizes.";
  if (!Array.isArray(dims))
    throw new InputTypeError("dims must be a number array", "Tensor", remedy);
  dims.forEach((d: unknown, i) => {
    const must = (kind: string): string =>
      `dims[${i}] must be ${kind}, but is ${String(d).slice(0, 40)}`;
    if (!Number.isSafeInteger(d)) throw new InputTypeError(must("an integer"), "Tensor", remedy);
    if ((d as number) < 0)
      throw new InputRangeError(must("a non-negative integer"), "Tensor", remedy);
  });
  return [...dims];
}

/** The array of a type's elements; undefined: it has none. */
function storageOf(type: string): ReturnType<typeof arrayOf> {
  const { Float16Array } = globalThis as { Float16Array?: Uint16ArrayConstructor };
  if (type === "float16" && Float16Array) return Float16Array;
  return arrayOf(type) ?? ((BYTES as readonly string[]).includes(type) ? Uint8Array : undefined);
}

/** The name of an array's class, which may be another realm's; "": it is no typed array. */
function classOf(data: unknown): string {
  return ArrayBuffer.isView(data) ? Object.prototype.toString.call(data).slice(8, -1) : "";
}

/** The type of elements that are given without one. @throws InputTypeError */
export function typeOf(data: unknown): TensorType {
  if (Array.isArray(data) && data.length) {
    if (data.every((x) => typeof x === "string")) return "string";
    if (data.every((x) => typeof x === "boolean")) return "bool";
  }
  const given = classOf(data);
  if (given === "Uint8ClampedArray") return "uint8";
  if (given === "Float16Array") return "float16";
  const type = Object.entries(ARRAYS).find(
    ([name, array]) => given === array.name && !["float16", "bfloat16", "bool"].includes(name),
  )?.[0];
  if (!type)
    throw new InputTypeError(
      "its data is not a typed array",
      "Tensor",
      "Give a type first, or a typed array.",
    );
  return type as TensorType;
}

/**
 * The elements in the array of their type; those that are given, if they are of it.
 * @throws InputTypeError
 */
export function dataOf(type: TensorType, data: unknown): TensorData {
  const array = storageOf(type);
  if (!array && type !== "string")
    throw new InputTypeError(
      `there is no element type '${String(type).slice(0, 40)}'`,
      "Tensor",
      `Use one of ${[...Object.keys(ARRAYS), ...BYTES, "string"].join(", ")}.`,
    );
  if (!array) {
    if (!Array.isArray(data) || !data.every((x) => typeof x === "string"))
      throw new InputTypeError(
        "its data is not an array of strings",
        "Tensor",
        "Give an array of strings.",
      );
    return data as string[];
  }
  if (Array.isArray(data)) return listed(type, array, data);
  const given = classOf(data);
  if (given === array.name && data instanceof array) return data as TensorData;
  const bits = type === "float16" && given === "Uint16Array";
  if (given === array.name || bits || (type === "uint8" && given === "Uint8ClampedArray")) {
    const { buffer, byteOffset, length } = data as Uint16Array<ArrayBuffer>;
    return new array(buffer, byteOffset, length) as TensorData;
  }
  throw new InputTypeError(
    `${type} is stored as ${array.name}, and its data is ${given || "no typed array"}`,
    "Tensor",
    takesList(type, array) ? `Give a ${array.name}, or a list.` : `Give a ${array.name}.`,
  );
}

/** Whether a list of numbers becomes a type; they would be taken for bits of others. */
function takesList(type: TensorType, array: NonNullable<ReturnType<typeof arrayOf>>): boolean {
  return type !== "bfloat16" && !(type === "float16" && array === Uint16Array) && !isPacked(type);
}

/** The elements of a list. */
function listed(
  type: TensorType,
  array: NonNullable<ReturnType<typeof arrayOf>>,
  data: readonly unknown[],
): TensorData {
  if (!takesList(type, array))
    throw new InputTypeError(
      `a list of numbers cannot become ${type} here`,
      "Tensor",
      `Give a ${array.name} of its ${array === Uint16Array ? "bits" : "bytes"}.`,
    );
  try {
    const list =
      type === "int64" || type === "uint64" ? data.map((x) => BigInt(x as number)) : data;
    return (array as unknown as { from(x: readonly unknown[]): TensorData }).from(list);
  } catch (e) {
    throw new InputTypeError(
      `its data cannot be converted to ${type} (${e instanceof Error ? e.message : String(e)})`,
      "Tensor",
      "Give integers for integer types.",
    );
  }
}

/** A view of bytes as elements of a type. */
export function dataFrom(type: string, bytes: Uint8Array<ArrayBuffer>): TensorData {
  const array = storageOf(type) ?? Uint8Array;
  return new array(
    bytes.buffer,
    bytes.byteOffset,
    bytes.length / array.BYTES_PER_ELEMENT,
  ) as TensorData;
}
