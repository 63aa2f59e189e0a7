// Addresses of the library's files, by the address of its script. The constants of the build are
// all "test" (run.mjs).

import assert from "node:assert/strict";
import { test } from "node:test";
import { ownFile, pythonFiles } from "../../src/page/own-files.ts";

const wheelOf = (dist: string): string => `${dist}test`;

for (const cdn of ["https://cdn.jsdelivr.net/npm/", "https://unpkg.com/"])
  for (const path of [
    "edgewise",
    "edgewise@0.1.0",
    "edgewise@0.1",
    "edgewise/dist/edgewise.js",
    "edgewise@latest/dist/edgewise.inline.js?module",
    "edgewise@0.1.0/+esm",
  ])
    test(`${cdn}${path}: this version, and Pyodide's package`, () => {
      const dist = `${cdn}edgewise@test/dist/`;
      assert.equal(ownFile("engine/a.wasm", cdn + path), `${dist}engine/a.wasm`);
      assert.deepEqual(pythonFiles(cdn + path), {
        pyodideUrl: `${cdn}pyodide@test/`,
        wheelUrl: wheelOf(dist),
      });
    });

for (const folder of [
  "https://example.org/edgewise@0.1.0/dist/",
  "https://unpkg.com.example.org/edgewise@0.1.0/dist/",
  "https://cdn.jsdelivr.net/npm/edgewise-fork@0.1.0/dist/",
  "http://localhost:8017/",
  "chrome-extension://abc/edgewise/",
])
  test(`${folder}: beside the script`, () => {
    const own = `${folder}edgewise.js`;
    assert.equal(ownFile("engine/a.wasm", own), `${folder}engine/a.wasm`);
    assert.deepEqual(pythonFiles(own), {
      pyodideUrl: `${folder}pyodide/`,
      wheelUrl: wheelOf(folder),
    });
  });

test("a script without an address that pages can load from", () => {
  for (const own of [undefined, "", "file:///app/edgewise.js", "blob:https://example.org/1"])
    assert.deepEqual(pythonFiles(own), { pyodideUrl: undefined, wheelUrl: undefined });
});
