// Safetensors files that carry a sum of all of their own bytes: metadata `edgewise`, a JSON object
// that begins with "sum", 16 hexadecimal digits which are taken as zeros where the header itself is
// added up. Checkpoints and kept adapters are such files.

import { BlobReader } from "../files/blobs.ts";
import { type Contents, readSafetensors } from "./safetensors.ts";

const CHUNK = 4 << 20;
const ZEROS = "0".repeat(16);

/**
 * What bytes add up to: two words of FNV-1a over 32-bit words, much faster than a digest and enough
 * to tell a damaged file.
 */
export class Sum {
  private a = 0x811c9dc5;
  private b = 0x2f0b4f27;

  /** Pieces of one tensor must have lengths that are multiples of 4, but for its last. */
  add(bytes: Uint8Array): this {
    const whole = bytes.length & ~3;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    for (let i = 0; i < whole; i += 4) {
      const word = view.getUint32(i, true);
      this.a = Math.imul(this.a ^ word, 0x01000193);
      this.b = Math.imul(this.b ^ (word ^ (word >>> 15)), 0x85ebca6b) + 1;
      this.a ^= this.a >>> 17;
    }
    for (let i = whole; i < bytes.length; i++) this.a = Math.imul(this.a ^ bytes[i]!, 0x01000193);
    return this;
  }

  /** 16 hexadecimal digits. */
  hex(): string {
    return [this.a, this.b].map((x) => (x >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

/** Adds a stretch of a file to a sum, piece by piece. */
export async function addFile(sum: Sum, file: Blob, from = 0, to = file.size): Promise<Sum> {
  const reader = new BlobReader(file, "the sum of a file", true);
  for (let at = from; at < to; at += CHUNK)
    sum.add(await reader.copy(at, Math.min(to - at, CHUNK)));
  reader.close();
  return sum;
}

/** A header with zeros in the place of its sum. */
export function withoutSum(head: Uint8Array, sum: string): Uint8Array {
  const mark = (digits: string) => new TextEncoder().encode(`\\"sum\\":\\"${digits}\\"`);
  const wanted = mark(sum);
  const out = head.slice();
  const at = out.findIndex(
    (byte, i) => byte === wanted[0] && wanted.every((x, k) => out[i + k] === x),
  );
  if (at >= 0) out.set(mark(ZEROS), at);
  return out;
}

/**
 * A file of a header and the tensors' bytes behind it. headOf: makes the header, given the text of
 * the metadata `edgewise`.
 */
export async function withSum(
  headOf: (edgewise: string) => Uint8Array<ArrayBuffer>,
  data: Blob,
): Promise<Blob> {
  const of = (sum: string) => headOf(JSON.stringify({ sum }));
  const sum = await addFile(new Sum().add(of(ZEROS)), data);
  return new Blob([of(sum.hex()), data]);
}

/** Where the tensors of a file begin. */
export function dataBegin(file: Blob, { tensors }: Contents): number {
  return Math.min(file.size, ...Array.from(tensors.values(), (t) => t.offset));
}

/**
 * Whether a file is what the sum in its metadata says. @throws ModelError: it is no safetensors
 * file
 */
export async function sumOfFile(file: Blob): Promise<{ fits: boolean; contents: Contents }> {
  const contents = await readSafetensors(file, "");
  const begin = dataBegin(file, contents);
  let stated: unknown;
  try {
    stated = (JSON.parse(contents.metadata.edgewise ?? "null") as { sum?: unknown } | null)?.sum;
  } catch {
    return { fits: false, contents };
  }
  if (typeof stated !== "string" || !/^[0-9a-f]{16}$/.test(stated))
    return { fits: false, contents };
  const sum = new Sum().add(
    withoutSum(new Uint8Array(await file.slice(0, begin).arrayBuffer()), stated),
  );
  return { fits: (await addFile(sum, file, begin)).hex() === stated, contents };
}
