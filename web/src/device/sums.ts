// Checksums of weights: XXH64 of every PIECE bytes, as 16 hexadecimal digits, computed by the
// engine in its own memory (core/sum.c). Packages contain them (python/edgewise/compiler/sums.py).

import { PIECE } from "../gen/manifest.ts";
import { damaged_weight } from "../logic/manifest/package.ts";
import type { Buffer, Device, Host } from "./device.ts";

/**
 * A function that writes the pieces of a weight, in ascending order, to device memory, and compares
 * it with its checksums.
 * @param what the weight and its source, for the error
 * @returns the function; it throws PackageError when all bytes of a checksum have come and differ
 */
export function checkedWrite(
  device: Device,
  buffer: Buffer,
  sums: readonly string[],
  what: { name: string; where: string },
): (chunk: Uint8Array, at: number) => void {
  if (!device.checksum) {
    const summed = new StreamedSums(device.host, buffer.bytes, sums, what);
    return (chunk, at) => {
      device.write(buffer, chunk, at);
      summed.add(chunk, at);
    };
  }
  let left = buffer.bytes;
  return (chunk, at) => {
    device.write(buffer, chunk, at);
    left -= chunk.length;
    for (let i = 0; !left && i < sums.length; i++) {
      const bytes = Math.min(PIECE, buffer.bytes - i * PIECE);
      if (device.checksum!(buffer, i * PIECE, bytes) !== sums[i])
        throw damaged_weight(what.name, i, buffer.bytes, what.where);
    }
  };
}

/** Checksums of a weight whose memory the engine cannot read: it gets a copy of one piece. */
class StreamedSums {
  private memory = 0;

  constructor(
    private readonly host: Host,
    private readonly bytes: number,
    private readonly sums: readonly string[],
    private readonly what: { name: string; where: string },
  ) {}

  add(chunk: Uint8Array, at: number): void {
    const { host, bytes } = this;
    const room = Math.min(PIECE, bytes);
    for (let done = 0; done < chunk.length; ) {
      this.memory ||= host.alloc(room + 8);
      const begin = (at + done) % PIECE;
      const part = chunk.subarray(done, done + Math.min(chunk.length - done, PIECE - begin));
      host.write(this.memory + begin, part);
      done += part.length;
      const end = at + done;
      if (end % PIECE && end !== bytes) continue;
      const piece = Math.ceil(end / PIECE) - 1;
      host.call("ew_xxh64", this.memory, end - piece * PIECE, this.memory + room);
      const sum = host.read(this.memory + room, 8).reverse();
      if (end === bytes) this.free();
      if (Array.from(sum, (x) => x.toString(16).padStart(2, "0")).join("") !== this.sums[piece]) {
        this.free();
        throw damaged_weight(this.what.name, piece, bytes, this.what.where);
      }
    }
  }

  private free(): void {
    this.host.free(this.memory);
    this.memory = 0;
  }
}
