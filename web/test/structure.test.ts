// The structure of the web sources: permitted imports between the folders of src (types included),
// and no cyclic imports. biome.json limits the lines of files (900) and of functions (60); an
// exception needs a biome-ignore comment with a reason.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import test from "node:test";

const root = process.env.EDGEWISE_SRC!;

/**
 * The folders of src and the folders that each may import from. page, worker and the two workers
 * below it run in separate JavaScript realms: they share code through shared and device, and the
 * types of their messages through protocol.
 */
const ALLOWED: Record<string, readonly string[]> = {
  gen: [],
  logic: ["shared", "gen"], // printed from python/edgewise/logic; gen has its tables
  shared: ["gen"],
  "shared/checkpoints": ["logic", "shared"], // the format's rules are logic
  protocol: ["logic", "shared", "shared/checkpoints", "gen"],
  device: ["protocol", "logic", "shared", "gen"],
  page: ["protocol", "logic", "shared", "shared/checkpoints", "gen"],
  worker: ["device", "protocol", "logic", "shared", "shared/checkpoints", "gen"],
  "worker/thread": ["device", "protocol", "shared"],
  "worker/compiler": ["protocol", "shared"],
  "worker/entry": [
    "worker/compiler",
    "worker",
    "worker/thread",
    "device",
    "logic",
    "shared",
    "gen",
  ],
  "page/node": [],
  "extras/offline": ["logic", "shared", "gen"],
  "extras/extension": [],
  "extras/federated": ["logic", "shared", "shared/checkpoints"],
  "extras/release": ["shared"],
  "extras/hybrid": ["protocol", "shared"],
  "extras/openai": ["logic", "page", "protocol", "shared"],
  "extras/phonemes": ["logic", "shared"],
  "extras/prompt-api": ["page", "protocol"],
  "extras/split": ["extras/hybrid", "shared", "shared/checkpoints"],
  // page/index.ts, and the text library
  "extras/transformers": ["page", "shared", "shared/checkpoints", "worker"],
};

/** Paths of the TypeScript files below `folder`, relative to it. */
const sourcesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));

/** The files of src, and the files that each imports. */
function graph(): Map<string, string[]> {
  return new Map(
    sourcesOf(root).map((file) => {
      const text = readFileSync(join(root, file), "utf8");
      const imports = text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*)"(\.[^"]+)"/g);
      return [file, Array.from(imports, ([, path]) => normalize(join(dirname(file), path!)))];
    }),
  );
}

/** The folder of ALLOWED that a file is in. */
const folderOf = (file: string): string => {
  const [first, second] = file.split("/") as [string, string];
  return `${first}/${second}` in ALLOWED ? `${first}/${second}` : first;
};

test("folders import only from the permitted folders", () => {
  const wrong: string[] = [];
  for (const [file, imports] of graph()) {
    const folder = folderOf(file);
    assert.ok(folder in ALLOWED, `${file} is not in one of the folders of ALLOWED`);
    for (const path of imports)
      if (folderOf(path) !== folder && !ALLOWED[folder]!.includes(folderOf(path)))
        wrong.push(`${file} -> ${path}`);
  }
  assert.deepEqual(wrong, []);
});

test("imports have no cycles", () => {
  const files = graph();
  const done = new Set<string>();
  const visit = (file: string, way: string[]): void => {
    assert.ok(
      !way.includes(file),
      `circle: ${[...way.slice(way.indexOf(file)), file].join(" -> ")}`,
    );
    if (done.has(file)) return;
    for (const path of files.get(file) ?? []) visit(path, [...way, file]);
    done.add(file);
  };
  for (const file of files.keys()) visit(file, []);
});
