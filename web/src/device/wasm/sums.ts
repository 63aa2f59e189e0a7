// Sums of weights: one for every PIECE of a weight's bytes, XXH64 as 16 hexadecimal digits,
// computed by the engine (core/sum.c) in its own memory. python/edgewise/sums.py writes them into
// packages.

import type { Engine } from "./engine.ts";
import { PackageError } from "../../shared/errors.ts";
import { PIECE } from "../../gen/manifest.ts";

/** The sums of a stretch of engine memory. */
export function sumsOf(engine: Engine, address: number, bytes: number): string[] {
  return Array.from({ length: Math.ceil(bytes / PIECE) }, (_, i) =>
    engine.sum(address + i * PIECE, Math.min(PIECE, bytes - i * PIECE)),
  );
}

/**
 * Compares a weight that lies in engine memory with its sums.
 * @param what the weight and where it comes from, for the error
 * @throws PackageError
 */
export function checkSums(
  engine: Engine,
  address: number,
  bytes: number,
  sums: readonly string[],
  what: { name: string; where: string },
): void {
  const wrong = sumsOf(engine, address, bytes).findIndex((sum, i) => sum !== sums[i]);
  if (wrong < 0) return;
  const end = Math.min(bytes, (wrong + 1) * PIECE);
  throw new PackageError(
    `bytes ${wrong * PIECE} to ${end} of the weight '${what.name}' are not what their ` +
      "checksum says",
    what.where,
    "The file was damaged or replaced while it was downloaded. Load it again; if it stays, " +
      "build the package again.",
  );
}
