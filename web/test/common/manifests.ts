// Shared by the tests of packages: manifests with a single change.

import assert from "node:assert/strict";
import { records } from "../../src/gen/schema.ts";
import { Checker } from "../../src/logic/manifest/checker.ts";
import { check_manifest, read_root } from "../../src/logic/manifest/package.ts";
import { PackageError } from "../../src/shared/errors.ts";
import type { Manifest } from "../../src/worker/package/manifest.ts";
import { manifestOf } from "../../src/worker/package/parse.ts";

type Path = (string | number)[];

/**
 * The header and the table of slots of a plan in the layout of core/engine.h, followed by further
 * bytes.
 */
export function planBytes(slots: { kind: string; bytes: number }[]): Uint8Array<ArrayBuffer> {
  const plan = new Uint8Array(96 + 16 * slots.length + 32);
  const view = new DataView(plan.buffer);
  plan.set(new TextEncoder().encode("EDGEPLN3"));
  view.setUint32(16, slots.length, true);
  view.setBigUint64(48, 96n, true);
  slots.forEach(({ kind, bytes }, i) => {
    view.setBigUint64(96 + 16 * i, BigInt(bytes), true);
    view.setUint32(96 + 16 * i + 8, kind === "weight" || kind === "input" ? 0 : 1, true);
  });
  return plan;
}

/**
 * Checks a manifest as the reader of packages does, and reads it.
 * @param dataBytes size of the data section
 * @param own whether the package is in the page's own storage
 * @throws PackageError
 */
export function parseManifest(
  json: string,
  where: string,
  dataBytes: number,
  own = false,
): Manifest {
  const c = new Checker(where, records());
  const value = read_root(c, new TextEncoder().encode(json));
  return manifestOf(c, check_manifest(c, value, dataBytes, own));
}

/** The replacements for each value of a manifest. */
const WRONG: unknown[] = [
  null,
  -1,
  0.5,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  1e300,
  "",
  "__proto__",
  "x".repeat(5000),
  [],
  {},
  true,
  [[0, 1]],
  "plan/9",
];

/**
 * Replaces everything at and below `root` of a manifest, one value at a time, and removes it. What
 * is refused must raise a PackageError with a position and a remedy. Returns the number of
 * refusals.
 */
export function refusedManifests(manifest: () => unknown, root: Path, values = WRONG): number {
  const paths: Path[] = [];
  const walk = (value: unknown, path: Path) => {
    if (path.length) paths.push(path);
    if (typeof value === "object" && value !== null)
      for (const key of Object.keys(value))
        walk((value as Record<string, unknown>)[key], [
          ...path,
          Array.isArray(value) ? Number(key) : key,
        ]);
  };
  const at = (value: unknown, path: Path) =>
    path.reduce((inner, key) => (inner as Record<string | number, unknown>)[key], value) as Record<
      string | number,
      unknown
    >;
  walk(at(manifest(), root), root);
  let refused = 0;
  for (const path of paths)
    for (const value of [...values, undefined]) {
      const changed = manifest();
      const parent = at(changed, path.slice(0, -1));
      if (value === undefined) delete parent[path[path.length - 1]!];
      else parent[path[path.length - 1]!] = value;
      try {
        parseManifest(JSON.stringify(changed), "x.edge", 192, true);
      } catch (e) {
        assert.ok(
          e instanceof PackageError && e.where === "x.edge" && e.remedy,
          `${path.join(".")} = ${JSON.stringify(value)}: ${String(e)}`,
        );
        refused++;
      }
    }
  return refused;
}
