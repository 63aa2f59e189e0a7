// Features of the tiles of a picture as one grid. Mirrors
// python/edgewise/host/pipelines/images/joined.py.

import {
  BLOCK,
  copies,
  type Grid,
  MIXED,
  type Mix,
  mixes,
  NEWLINE,
} from "../../../logic/multimodal/families/joined.ts";
import type { Ending, TaskHost } from "../host.ts";

/**
 * The features of a picture, in parts.
 * @param grid of its tiles
 * @param pieces features of the whole picture and of each tile, and the one that ends a row
 * @param size bytes of a feature
 */
export async function gridOf(
  host: TaskHost,
  grid: Grid,
  pieces: readonly Uint8Array[],
  size: number,
  ending: Ending,
): Promise<Uint8Array[]> {
  const runs = mixes(grid);
  const mixed = new Uint8Array(runs.reduce((sum, { count }) => sum + size * count, 0));
  let at = 0;
  for (const run of runs) {
    mixed.set(await mixedOf(host, run, pieces, size, ending), at);
    at += size * run.count;
  }
  const line = pieces[0]!.subarray(-size);
  return copies(grid).map(({ piece, first, count }) => {
    const data = piece === NEWLINE ? line : piece === MIXED ? mixed : pieces[piece]!;
    return data.subarray(size * first, size * (first + count));
  });
}

async function mixedOf(
  host: TaskHost,
  run: Mix,
  pieces: readonly Uint8Array[],
  size: number,
  ending: Ending,
): Promise<Uint8Array> {
  const data = new Uint8Array(4 * BLOCK * size);
  for (const [i, [piece, first]] of run.sources.entries())
    data.set(pieces[piece]!.subarray(size * first, size * (first + 1)), size * i);
  const weights = new Uint8Array(Float32Array.from(run.weights).buffer);
  const [rows] = Object.values(
    await host.run(
      "mix",
      {
        rows: { type: "float32", dims: [BLOCK, 4, size / 4], data },
        weights: { type: "float32", dims: [BLOCK, 4, 1], data: weights },
      },
      ending,
    ),
  );
  return rows!.data.subarray(0, size * run.count);
}
