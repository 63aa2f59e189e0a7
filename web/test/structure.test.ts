// The structure of src: which folder may import from which, types included, and no circles.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import test from "node:test";

const root = process.env.EDGEWISE_SRC!;

/**
 * Folders of src and those that they may import from. page, worker, compiler and thread are
 * JavaScript realms of their own: they share code through shared and device, and types of messages
 * through protocol.
 */
const ALLOWED: Record<string, readonly string[]> = {
  gen: [],
  shared: ["gen"],
  protocol: ["shared", "gen"],
  device: ["protocol", "shared", "gen"],
  thread: ["device", "protocol", "shared"],
  compiler: ["protocol", "shared"],
  page: ["protocol", "shared", "gen"],
  worker: ["device", "protocol", "shared", "gen"],
};
const MOST_FILES = 20; // in a folder
const MOST_LINES = 500; // of a file

/** Files of src with what each of them imports, by path. */
function graph(): Map<string, string[]> {
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  return new Map(
    files.map((file) => {
      const text = readFileSync(join(root, file), "utf8");
      const imports = text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*)"(\.[^"]+)"/g);
      return [file, Array.from(imports, ([, path]) => normalize(join(dirname(file), path!)))];
    }),
  );
}

const folderOf = (file: string): string => file.split("/")[0]!;

test("folders import only from those below them", () => {
  const wrong: string[] = [];
  for (const [file, imports] of graph()) {
    const folder = folderOf(file);
    assert.ok(folder in ALLOWED, `${file} lies in no folder that this test knows`);
    for (const path of imports)
      if (folderOf(path) !== folder && !ALLOWED[folder]!.includes(folderOf(path)))
        wrong.push(`${file} -> ${path}`);
  }
  assert.deepEqual(wrong, []);
});

test("no file imports itself by way of others", () => {
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

test("files and folders stay small", () => {
  const folders = new Map<string, number>();
  const long: string[] = [];
  for (const file of graph().keys()) {
    const folder = dirname(file);
    folders.set(folder, (folders.get(folder) ?? 0) + 1);
    const lines = readFileSync(join(root, file), "utf8").split("\n").length - 1;
    if (lines > MOST_LINES) long.push(`${file}: ${lines} lines`);
  }
  assert.deepEqual(long, []);
  assert.deepEqual(
    [...folders].filter(([, n]) => n > MOST_FILES),
    [],
  );
});
