// Bytes in zlib's format.

import { ReleaseError } from "./errors.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const PIECE = 1 << 14; // of what is unpacked: at most a thousand times as much comes out at once

/**
 * Unpacks exactly `size` bytes of zlib's format.
 * @throws ReleaseError if there are more or fewer; no more are unpacked
 */
export async function inflate(data: Bytes, size: number, where: string): Promise<Bytes> {
  const out = new Uint8Array(size);
  let [at, given] = [0, 0];
  const pieces = new ReadableStream<Bytes>({
    pull: (to) => {
      if (given < data.length) to.enqueue(data.subarray(given, (given += PIECE)));
      else to.close();
    },
  });
  try {
    const reader = pieces.pipeThrough(new DecompressionStream("deflate")).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length > size) {
        reader.cancel().catch(() => undefined);
        at = -1;
        break;
      }
      out.set(value, at);
      at += value.length;
    }
  } catch (e) {
    throw new ReleaseError("mismatch", `it cannot be unpacked (${String(e)})`, where);
  }
  if (at !== size) throw new ReleaseError("mismatch", `it does not unpack to ${size} bytes`, where);
  return out;
}
