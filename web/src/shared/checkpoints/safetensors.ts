// The safetensors format: u64 little-endian length of a JSON header, the header, the tensors'
// bytes. As python/edgewise/compiler/training/safetensors.py: files that violate the format are
// rejected, and the output equals that of the reference implementation.

import { InputError, ModelError } from "../errors.ts";
import { fromHalf } from "../float16.ts";

/**
 * Element types, in the order in which the reference implementation lays out tensors: widest first,
 * so that all are aligned.
 */
const TYPES: Record<string, [dtype: string, bytes: number]> = {
  U64: ["uint64", 8],
  I64: ["int64", 8],
  F64: ["float64", 8],
  F32: ["float32", 4],
  U32: ["uint32", 4],
  I32: ["int32", 4],
  BF16: ["bfloat16", 2],
  F16: ["float16", 2],
  U16: ["uint16", 2],
  I16: ["int16", 2],
  I8: ["int8", 1],
  U8: ["uint8", 1],
  BOOL: ["bool", 1],
};
const CODES = Object.fromEntries(
  Object.entries(TYPES).map(([code, [dtype]], rank) => [dtype, { code, rank }]),
);
const MAX_HEADER = 100_000_000;

/** A tensor of a file; `dtype`: NumPy's name, or bfloat16. */
export interface TensorInfo {
  dtype: string;
  shape: number[];
  bytes: number;
}
/** A tensor and its position in the file. */
export interface TensorEntry extends TensorInfo {
  /** Offset in the file, in bytes. */ offset: number;
}
/** Contents of a file's header. */
export interface Contents {
  tensors: Map<string, TensorEntry>;
  metadata: Record<string, string>;
}

/**
 * Reads and validates a file's header.
 * @throws ModelError if the file is damaged
 */
export async function readSafetensors(file: Blob, where: string): Promise<Contents> {
  const fail: Fail = (
    what,
    remedy = "The file is damaged or not a safetensors file; fetch it again.",
  ) => {
    throw new ModelError(what, where, remedy);
  };
  const { header, start } = await readHeader(file, fail);
  const { __metadata__: metadata = {}, ...entries } = header;
  if (
    typeof metadata !== "object" ||
    metadata === null ||
    Array.isArray(metadata) ||
    !Object.values(metadata).every((v) => typeof v === "string")
  )
    return fail("its metadata does not map strings to strings");
  const list = Object.entries(entries).map(([name, value]): [string, TensorEntry] => [
    name,
    placeOf(name, value, start, fail),
  ]);
  list.sort(([, a], [, b]) => a.offset - b.offset || a.bytes - b.bytes);
  let at = start;
  for (const [name, tensor] of list) {
    if (tensor.offset !== at)
      return fail(
        `tensor '${name}' begins at byte ${tensor.offset}, the one before it ends at ${at}`,
      );
    at += tensor.bytes;
  }
  if (at !== file.size)
    return fail(
      `its tensors end at byte ${at}, the file has ${file.size}`,
      "The file is truncated or was overwritten; fetch it again.",
    );
  return { tensors: new Map(list), metadata: metadata as Record<string, string> };
}

type Fail = (what: string, remedy?: string) => never;

/** The JSON header of a file, and the offset of the data after it. */
async function readHeader(
  file: Blob,
  fail: Fail,
): Promise<{ header: Record<string, unknown>; start: number }> {
  if (file.size < 8) return fail(`${file.size} bytes are not a safetensors file`);
  const length = new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER) || length > BigInt(file.size - 8))
    return fail(`its header claims ${length} bytes, the file has ${file.size}`);
  const start = 8 + Number(length);
  let header: unknown;
  try {
    header = JSON.parse(
      new TextDecoder("utf-8", { fatal: true }).decode(await file.slice(8, start).arrayBuffer()),
    );
  } catch {
    return fail("its header is not valid JSON");
  }
  if (typeof header !== "object" || header === null || Array.isArray(header))
    return fail("its header is not a JSON object");
  return { header: header as Record<string, unknown>, start };
}

/** Checks the entry of a tensor. `start`: offset of the data in the file. */
function placeOf(name: string, value: unknown, start: number, fail: Fail): TensorEntry {
  const sizes = (x: unknown): x is number[] =>
    Array.isArray(x) && x.every((d) => Number.isSafeInteger(d) && (d as number) >= 0);
  const {
    dtype,
    shape,
    data_offsets: span,
  } = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  if (
    typeof dtype !== "string" ||
    !sizes(shape) ||
    shape.length > 64 ||
    !sizes(span) ||
    span.length !== 2
  )
    return fail(`tensor '${name}' needs dtype, shape and data_offsets`);
  const type = Object.hasOwn(TYPES, dtype)
    ? TYPES[dtype]!
    : fail(
        `tensor '${name}' has the element type ${dtype}`,
        `Edgewise reads ${Object.keys(TYPES).join(", ")}.`,
      );
  const bytes = span[1]! - span[0]!;
  if (bytes !== shape.reduce((a, b) => a * b, 1) * type[1])
    return fail(
      `tensor '${name}' has ${bytes} bytes, which do not match its shape [${shape.join(", ")}] ` +
        `of ${dtype}`,
    );
  return { dtype: type[0], shape, bytes, offset: start + span[0]! };
}

/** Makes the header of a file. `order`: the order in which the tensors' bytes must follow it. */
export function safetensorsHead(
  tensors: Map<string, TensorInfo>,
  metadata: Record<string, string> = {},
): { head: Uint8Array<ArrayBuffer>; order: string[] } {
  const rank = (name: string) => {
    const known = CODES[tensors.get(name)!.dtype];
    if (!known)
      throw new InputError(`safetensors cannot store ${tensors.get(name)!.dtype}`, name, "");
    return known;
  };
  const order = [...tensors.keys()].sort((a, b) => rank(a).rank - rank(b).rank || (a < b ? -1 : 1));
  const header: Record<string, unknown> = Object.keys(metadata).length
    ? { __metadata__: metadata }
    : {};
  let at = 0;
  for (const name of order) {
    const { shape, bytes } = tensors.get(name)!;
    header[name] = { dtype: rank(name).code, shape, data_offsets: [at, at + bytes] };
    at += bytes;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const head = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(0x20);
  new DataView(head.buffer).setBigUint64(0, BigInt(head.length - 8), true);
  head.set(json, 8);
  return { head, order };
}

/** Converts float32, float16 or bfloat16 bytes to float32. */
export function asFloat32(
  bytes: Uint8Array<ArrayBuffer>,
  dtype: string,
  where: string,
): Float32Array<ArrayBuffer> {
  if (dtype === "float32") return new Float32Array(bytes.slice().buffer);
  if (dtype !== "float16" && dtype !== "bfloat16")
    throw new ModelError(`it is ${dtype}`, where, "Save it as float32, float16 or bfloat16.");
  const halves = new Uint16Array(bytes.slice().buffer);
  const out = new Float32Array(halves.length);
  if (dtype === "bfloat16") {
    const bits = new Uint32Array(out.buffer);
    halves.forEach((h, i) => (bits[i] = h << 16));
    return out;
  }
  halves.forEach((h, i) => (out[i] = fromHalf(h)));
  return out;
}
