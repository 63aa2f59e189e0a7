// Safetensors files: python/edgewise/logic/training/safetensors.py has the rules of the format.

import {
  type Contents,
  check_length,
  layout,
  REMEDY,
  read_header,
  type TensorInfo,
} from "../../logic/training/safetensors.ts";
import { ModelError } from "../errors.ts";
import { fromHalf } from "../float16.ts";

export type { Contents, TensorEntry, TensorInfo } from "../../logic/training/safetensors.ts";

/**
 * Reads and validates a file's header.
 * @throws ModelError if the file is damaged
 */
export async function readSafetensors(file: Blob, where: string): Promise<Contents> {
  if (file.size < 8)
    throw new ModelError(`${file.size} bytes are not a safetensors file`, where, REMEDY);
  const length = Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
  check_length(length, file.size, where);
  const start = 8 + length;
  let header: unknown;
  try {
    header = JSON.parse(
      new TextDecoder("utf-8", { fatal: true }).decode(await file.slice(8, start).arrayBuffer()),
    );
  } catch {
    throw new ModelError("its header is not valid JSON", where, REMEDY);
  }
  return read_header(header, start, file.size, where);
}

/** Makes the header of a file. `order`: the order in which the tensors' bytes must follow it. */
export function safetensorsHead(
  tensors: Map<string, TensorInfo>,
  metadata: Readonly<Record<string, string>> = {},
): { head: Uint8Array<ArrayBuffer>; order: string[] } {
  const { header, order } = layout(tensors, metadata);
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
