// Rules of a package's files and of the weights in them, as
// python/edgewise/compiler/manifest/rules.py has them.

import { MAX_FILE, MAX_SIZE, PIECE, WEIGHT_FILES } from "../../gen/manifest.ts";
import type { Weight } from "../../gen/schema.ts";
import type { Checker } from "./checker.ts";
import { ALIGN } from "./container.ts";

/** Checks `files` and `sha256`. `dataBytes`: size of the data section, if known. */
export function checkFiles(
  c: Checker,
  files: ReadonlyMap<string, { offset: number; bytes: number }>,
  sha256: ReadonlyMap<string, string>,
  dataBytes: number | undefined,
): void {
  let end = 0;
  for (const [name, { offset, bytes }] of files) {
    const most = name === "weights" ? MAX_SIZE : MAX_FILE;
    c.integer(bytes, `the size of file '${name}'`, 0, most);
    if (dataBytes !== undefined && offset + bytes > dataBytes)
      c.fail(
        `file '${name}'`,
        `has ${bytes} bytes at ${offset} in the data, which has ${dataBytes}`,
        "The package is truncated or damaged: fetch it again.",
      );
    end = Math.max(end, offset + bytes);
  }
  if (dataBytes !== undefined && dataBytes > Math.ceil(end / ALIGN) * ALIGN)
    c.fail("the data", `ends at byte ${end}, and ${dataBytes - end} bytes follow it`);
  // Files must not overlap: otherwise a short package could request any amount of memory.
  let reached = 0;
  for (const [name, { offset, bytes }] of [...files]
    .filter(([, f]) => f.bytes > 0)
    .sort(([a, x], [b, y]) => x.offset - y.offset || x.bytes - y.bytes || (a < b ? -1 : 1))) {
    if (offset < reached) c.fail(`file '${name}'`, "overlaps another one");
    reached = offset + bytes;
  }
  for (const name of sha256.keys())
    if (!files.has(name) || name === "weights")
      c.fail(`sha256['${name}']`, "refers to a missing file");
  for (const name of files.keys())
    if (name !== "weights" && !sha256.has(name)) c.fail("sha256", `lacks the file '${name}'`);
}

/** Checks `weights`; returns them by name. */
export function checkWeights(
  c: Checker,
  weights: readonly Weight[],
  files: ReadonlyMap<string, { bytes: number }>,
  own: boolean,
): Map<string, Weight> {
  const found = new Map<string, Weight>();
  const spans: { at: string; file: string; offset: number; bytes: number }[] = [];
  weights.forEach((weight, i) => {
    const at = `weights[${i}]`;
    const { name, file, offset, bytes } = weight;
    const inside = files.get(file);
    if (inside) {
      checkInside(c, weight, at, inside.bytes);
      if (bytes) spans.push({ at, file, offset, bytes });
    } else if (!own || WEIGHT_FILES.includes(file))
      c.fail(at, `lies in the file '${file}', which is not in the package`);
    if (found.has(name)) c.fail(at, `has the duplicate name '${name}'`);
    found.set(name, weight);
    if (file === "weights" || weight.sums)
      c.tuple(weight.sums, `${at}.sums`, Math.ceil(bytes / PIECE));
  });
  for (const file of new Set(spans.map((s) => s.file))) {
    let reached = 0;
    for (const { at, offset, bytes } of spans
      .filter((s) => s.file === file)
      .sort((a, b) => a.offset - b.offset || a.bytes - b.bytes)) {
      if (offset < reached) c.fail(at, "overlaps another one");
      reached = offset + bytes;
    }
  }
  return found;
}

/** Checks a weight in a part of the package, of so many bytes. */
function checkInside(c: Checker, weight: Weight, at: string, size: number): void {
  const { file, offset, bytes } = weight;
  if (!WEIGHT_FILES.includes(file))
    c.fail(at, `lies in the file '${file}', which does not contain weights`);
  if (offset + bytes > size)
    c.fail(at, `has ${bytes} bytes at ${offset} in the file '${file}', which has ${size}`);
  if (weight.power !== undefined)
    c.fail(at, "has a power, which only those outside of the package have");
}
