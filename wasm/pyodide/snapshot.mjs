// snapshot.mjs WHEEL OUT   Writes OUT, a gzipped snapshot of Pyodide's memory with the wheel's
// modules imported: see python/edgewise/snapshot.py. It is valid only for the Pyodide of
// web/node_modules.
//
// Measured in Chromium on two busy cores, until the compiler can be called: 2.1 instead of 20 s
// (medians of 4). Its size is 7.0 MB; it replaces the standard library and the wheel (4.5 MB).
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { loadPyodide } from "../../web/node_modules/pyodide/pyodide.mjs";

const [wheel, out] = process.argv.slice(2);

/** Zeroes what was freed: half a megabyte of the compressed snapshot would be its old contents. */
function clearFreeMemory({ _malloc, _free, HEAPU8 }) {
  const { grow } = WebAssembly.Memory.prototype;
  WebAssembly.Memory.prototype.grow = () => {
    throw new RangeError("the memory has its final size");
  };
  const blocks = [];
  for (let size = 4 << 20; size >= 16; size >>= 1)
    for (let block = _malloc(size); block; block = _malloc(size)) {
      HEAPU8.fill(0, block, block + size);
      blocks.push(block);
    }
  for (const block of blocks) _free(block);
  WebAssembly.Memory.prototype.grow = grow;
}

const pyodide = await loadPyodide({
  _makeSnapshot: true,
  args: ["-X", "no_debug_ranges"],
});
pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel");
pyodide.runPython("from edgewise.snapshot import prepare\nprepare()");
clearFreeMemory(pyodide._module);
writeFileSync(`${out}.part`, gzipSync(pyodide.makeMemorySnapshot(), { level: 9 }));
renameSync(`${out}.part`, out);
process.exit(0); // Pyodide in Node keeps the process alive
