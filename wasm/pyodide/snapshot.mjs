// snapshot.mjs WHEEL OUT   Writes OUT, a gzipped snapshot of Pyodide's memory with the wheel's
// modules imported: see python/edgewise/snapshot.py. It is valid only for the Pyodide of
// web/node_modules.
//
// Measured in Chromium on two busy cores, until the compiler can be called: 2.1 instead of 20 s
// (medians of 4). Its size is 7.6 MB; it replaces the standard library and the wheel (4.5 MB).
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { loadPyodide } from "../../web/node_modules/pyodide/pyodide.mjs";

const [wheel, out] = process.argv.slice(2);
const pyodide = await loadPyodide({
  _makeSnapshot: true,
  args: ["-X", "no_debug_ranges"],
});
pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel");
pyodide.runPython("from edgewise.snapshot import prepare\nprepare()");
writeFileSync(`${out}.part`, gzipSync(pyodide.makeMemorySnapshot(), { level: 9 }));
renameSync(`${out}.part`, out);
process.exit(0); // Pyodide in Node keeps the process alive
