// snapshot.mjs PYODIDE WHEEL SNAPSHOT   Restores the snapshot in Node as a page's worker does, runs
// Python and prints its result as JSON. `downloads`: files fetched for modules that are not in the
// snapshot.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { transform } from "../../web/node_modules/esbuild/lib/main.js";

const [pyodideFolder, wheel, snapshot] = process.argv.slice(2);
const { loadPyodide } = await import(`${pyodideFolder}/pyodide.mjs`);
const { default: create } = await import(`${pyodideFolder}/pyodide.asm.mjs`);
const source = new URL("../../web/src/worker/compiler/snapshot.ts", import.meta.url);
const { code } = await transform(readFileSync(source, "utf8"), { loader: "ts" });
const { Snapshot } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
const memory = new Snapshot(new Blob([gunzipSync(readFileSync(snapshot))]).stream());
async function room(settings) {
  const module = await create(settings);
  const size = await memory.size();
  while (module.HEAPU8.length < size) module._malloc(size - module.HEAPU8.length);
  await memory.restore(module.HEAPU8);
  return module;
}
const pyodide = await loadPyodide({
  _loadSnapshot: await memory.head(),
  stdLibURL: "/dev/null",
  createPyodideModule: room,
});
const downloads = [];
const fetchNow = (path) => () => {
  downloads.push(path);
  return new Uint8Array(readFileSync(path));
};
pyodide.runPython("from edgewise.snapshot import resume\nresume")(
  fetchNow(`${pyodideFolder}/python_stdlib.zip`),
  fetchNow(wheel),
);
const answers = [
  "from edgewise.page import run; run.__name__",
  "import random; random.random()",
  "import importlib.util; importlib.util.find_spec('some_module') is None",
  "import csv, edgewise.engine.browser, edgewise.text.generate; csv.__name__",
  "import wave; wave.__name__",
].map((code) => ({ value: pyodide.runPython(code), downloads: downloads.length }));
process.stdout.write(`\n@${JSON.stringify(answers)}\n`);
process.exit(0);
