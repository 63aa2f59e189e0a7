// Addresses of the library's files, by the address of its script. The constants of the build are
// all "test" (run.mjs).

import assert from "node:assert/strict";
import { test } from "node:test";
import { besideOwn, installedPython, ownFile, pythonFiles } from "../../src/page/own-files.ts";

const pythonIn = (dist: string) => ({
  loader: `${dist}pyodide/pyodide.mjs`,
  module: `${dist}pyodide/pyodide.asm.mjs`,
  wasm: `${dist}pyodide/pyodide.asm.wasm`,
  library: `${dist}pyodide/python_stdlib.zip`,
  wheel: `${dist}test`,
  snapshot: `${dist}test`,
});

for (const cdn of ["https://cdn.jsdelivr.net/npm/", "https://unpkg.com/"])
  for (const path of [
    "edgewise",
    "edgewise@0.1.0",
    "edgewise@0.1",
    "edgewise/dist/edgewise.js",
    "edgewise@latest/dist/edgewise.inline.js?module",
    "edgewise@0.1.0/+esm",
  ])
    test(`${cdn}${path}: this version, and that of the compiler`, () => {
      const dist = `${cdn}edgewise@test/dist/`;
      assert.equal(ownFile("engine/a.wasm", cdn + path), `${dist}engine/a.wasm`);
      assert.deepEqual(pythonFiles(cdn + path), pythonIn(`${cdn}edgewise-compiler@test/dist/`));
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
    assert.deepEqual(pythonFiles(own), pythonIn(folder));
  });

test("a script without an address that pages can load from", () => {
  for (const own of [undefined, "", "file:///app/edgewise.js", "blob:https://example.org/1"])
    assert.deepEqual(new Set(Object.values(pythonFiles(own))), new Set([""]));
});

test("what is beside the one file: where a bundler put it, and on a CDN", () => {
  const at = (own: string | undefined, literal?: () => string) =>
    besideOwn("part-a.js", own, "sha256-x", literal);
  const dist = "https://cdn.jsdelivr.net/npm/edgewise@test/dist/";
  const other = { url: `${dist}part-a.js`, integrity: "sha256-x" };
  const name = "part-a.js";
  const url = "https://example.org/assets/part-a.123.js";
  assert.deepEqual(
    at("https://example.org/app.js", () => url),
    { name, url, other },
  );
  const left = { name, url: "https://example.org/part-a.js", other };
  assert.deepEqual(at("https://example.org/app.js"), left);
  for (const literal of ["file:///app/part-a.js", "blob:https://example.org/1"])
    assert.deepEqual(
      at("https://example.org/app.js", () => literal),
      left,
    );
  const nowhere = () => new URL("./part-a.js", undefined).href;
  assert.deepEqual(at(undefined, nowhere), { name, url: "", other });
  const extension = "chrome-extension://abc/part-a.js";
  assert.deepEqual(
    at(undefined, () => extension),
    { name, url: extension },
  );
  assert.deepEqual(
    at("https://cdn.jsdelivr.net/npm/edgewise@0.1/dist/edgewise.inline.js", () => url),
    {
      name,
      url: other.url,
    },
  );
});

test("edgewise-compiler: where a bundler put it, in one version", () => {
  const page = globalThis as Record<symbol, unknown>;
  const installed = Symbol.for("edgewise.compiler");
  const names = Object.keys(pythonIn(""));
  const files = (at: (name: string) => string) =>
    Object.fromEntries(names.map((name) => [name, () => at(name)]));
  assert.equal(installedPython(), undefined);
  try {
    page[installed] = { version: "test", files: files((n) => `https://example.org/a/${n}.1`) };
    assert.equal(installedPython()?.wheel, "https://example.org/a/wheel.1");
    page[installed] = { version: "test", files: files((n) => `file:///app/${n}`) };
    assert.equal(installedPython(), undefined); // it copies none
    page[installed] = { version: "0.0.1", files: {} };
    assert.throws(() => installedPython(), /0\.0\.1.*npm install edgewise@test/s);
  } finally {
    delete page[installed];
  }
});
