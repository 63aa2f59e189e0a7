// What tests of packages share: manifests with one thing in them changed.

import assert from "node:assert/strict";
import { PackageError } from "../src/errors.ts";
import { parseManifest } from "../src/package.ts";

type Path = (string | number)[];

/**
 * Puts each value, and nothing, in place of everything at and under `root` of a manifest, one at a time. What is refused must be refused as a
 * PackageError that says where and what to do. Returns how many were.
 */
export function refusedManifests(manifest: () => unknown, root: Path, values: unknown[]): number {
  const paths: Path[] = [];
  const walk = (value: unknown, path: Path) => {
    if (path.length) paths.push(path);
    if (typeof value === "object" && value !== null) for (const key of Object.keys(value)) walk((value as Record<string, unknown>)[key], [...path, Array.isArray(value) ? Number(key) : key]);
  };
  const at = (value: unknown, path: Path) => path.reduce((inner, key) => (inner as Record<string | number, unknown>)[key], value) as Record<string | number, unknown>;
  walk(at(manifest(), root), root);
  let refused = 0;
  for (const path of paths)
    for (const value of [...values, undefined]) {
      const changed = manifest();
      const parent = at(changed, path.slice(0, -1));
      if (value === undefined) delete parent[path[path.length - 1]!];
      else parent[path[path.length - 1]!] = value;
      try {
        parseManifest(JSON.stringify(changed), "x.edge", 192);
      } catch (e) {
        assert.ok(e instanceof PackageError && e.where === "x.edge" && e.remedy, `${path.join(".")} = ${JSON.stringify(value)}: ${String(e)}`);
        refused++;
      }
    }
  return refused;
}
