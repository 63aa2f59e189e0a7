// Sums of weights: one for every PIECE of a weight's bytes, XXH64 as 16 hexadecimal digits,
// computed by the device in its own memory (core/sum.c). python/edgewise/sums.py writes them into
// packages.

import { PIECE } from "../gen/manifest.ts";
import { PackageError } from "../shared/errors.ts";
import type { Buffer, Device } from "./device.ts";

/** The sums of a buffer's contents. */
export function sumsOf(device: Device, buffer: Buffer): string[] {
  return Array.from({ length: Math.ceil(buffer.bytes / PIECE) }, (_, i) =>
    device.checksum(buffer, i * PIECE, Math.min(PIECE, buffer.bytes - i * PIECE)),
  );
}

/**
 * Compares a weight in a device's memory with its sums.
 * @param what the weight and where it comes from, for the error
 * @throws PackageError
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
    `bytes ${wrong * PIECE} to ${end} of the weight '${what.name}' are not what their ` +
      "checksum says",
    what.where,
    "The file was damaged or replaced while it was downloaded. Load it again; if it stays, " +
      "build the package again.",
  );
}
