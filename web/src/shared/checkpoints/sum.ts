// Safetensors files with a checksum of all of their own bytes: the metadata entry `edgewise` is a
// JSON object that begins with "sum", whose 16 hexadecimal digits count as zeros in the checksum.
// Checkpoints and stored adapters have this format.

import { BlobReader } from "../files/blobs.ts";
import { type Contents, readSafetensors } from "./safetensors.ts";

const CHUNK = 4 << 20;
const ZEROS = "0".repeat(16);

/**
 * A checksum: two words of FNV-1a over 32-bit words. Much faster than a cryptographic digest, and
 * sufficient to detect damaged files.
 */
export class Sum {
  private a = 0x811c9dc5;
  private b = 0x2f0b4f27;

  /** Adds bytes. All pieces of a tensor except the last must have a length divisible by 4. */
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

  /** The checksum as 16 hexadecimal digits. */
  hex(): string {
    return [this.a, this.b].map((x) => (x >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

/** Adds a range of a file to a checksum, piece by piece. */
export async function addFile(sum: Sum, file: Blob, from = 0, to = file.size): Promise<Sum> {
  const reader = new BlobReader(file, "the sum of a file", true);
  for (let at = from; at < to; at += CHUNK)
    sum.add(await reader.copy(at, Math.min(to - at, CHUNK)));
  reader.close();
  return sum;
}

/** A copy of a header with zeros in place of its checksum. */
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
 * Makes a file of a header with checksum and the tensors' bytes.
 * @param headOf makes the header, given the text of the metadata entry `edgewise`
 */
export async function withSum(
  headOf: (edgewise: string) => Uint8Array<ArrayBuffer>,
  data: Blob,
): Promise<Blob> {
  const of = (sum: string) => headOf(JSON.stringify({ sum }));
  const sum = await addFile(new Sum().add(of(ZEROS)), data);
  return new Blob([of(sum.hex()), data]);
}

/** Offset of the first tensor of a file. */
export function dataBegin(file: Blob, { tensors }: Contents): number {
  return Math.min(file.size, ...Array.from(tensors.values(), (t) => t.offset));
}

/**
 * Whether a file matches the checksum in its metadata.
 * @throws ModelError if it is not a safetensors file
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
