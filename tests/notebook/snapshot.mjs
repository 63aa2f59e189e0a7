// snapshot.mjs PYODIDE WHEEL SNAPSHOT   Restores the snapshot in Node as a page's worker does, runs
// Python and prints its result as JSON. `downloads`: files fetched for modules that are not in the
// snapshot.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

const [pyodideFolder, wheel, snapshot] = process.argv.slice(2);
const { loadPyodide } = await import(`${pyodideFolder}/pyodide.mjs`);
const { default: create } = await import(`${pyodideFolder}/pyodide.asm.mjs`);
const memory = new Uint8Array(gunzipSync(readFileSync(snapshot)));
async function room(settings) {
  const module = await create(settings);
  while (module.HEAP8.length < memory.length) module._malloc(memory.length - module.HEAP8.length);
  return module;
}
const pyodide = await loadPyodide({
  _loadSnapshot: memory,
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
