// Checksums of weights: XXH64 of every PIECE bytes, as 16 hexadecimal digits, computed by the
// device in its own memory (core/sum.c). Packages contain them (python/edgewise/sums.py).

import { PIECE } from "../gen/manifest.ts";
import { PackageError } from "../shared/errors.ts";
import type { Buffer, Device } from "./device.ts";

/** The checksums of a buffer's contents. */
export function sumsOf(device: Device, buffer: Buffer): string[] {
  return Array.from({ length: Math.ceil(buffer.bytes / PIECE) }, (_, i) =>
    device.checksum(buffer, i * PIECE, Math.min(PIECE, buffer.bytes - i * PIECE)),
  );
}

/**
 * Compares a weight in device memory with its checksums.
 * @param what the weight and its source, for the error
 * @throws PackageError if they differ
 */
export function checkSums(
  device: Device,
  buffer: Buffer,
  sums: readonly string[],
  what: { name: string; where: string },
): void {
  const wrong = sumsOf(device, buffer).findIndex((sum, i) => sum !== sums[i]);
  if (wrong < 0) return;
  const end = Math.min(buffer.bytes, (wrong + 1) * PIECE);
  throw new PackageError(
    `bytes ${wrong * PIECE} to ${end} of the weight '${what.name}' do not match their ` +
      "checksum",
    what.where,
    "The file was damaged or replaced while it was downloaded. Load it again; if it stays, " +
      "build the package again.",
  );
}
