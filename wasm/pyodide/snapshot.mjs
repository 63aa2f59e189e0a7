// snapshot.mjs WHEEL OUT   Writes OUT, a gzipped snapshot of Pyodide's memory with the wheel's
// modules imported: see python/edgewise/snapshot.py. It is valid only for the Pyodide of
// web/node_modules.
//
// It lacks the pages that the memory of a Pyodide has before Python starts (constants of its
// WebAssembly) and those without content: a seventh of the download, and of 45 MB that a browser
// would copy twice, 26 are left. As numbers of 32 bits: the length of this head in bytes, the
// length of Pyodide's head, the size of the memory, the end of what a new memory has, the sum of
// the pages left out, the number of runs, and (first page, pages, 1 if left out) of each; then
// Pyodide's head, and the other runs. web/src/worker/compiler/snapshot.ts reads it.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import createModule from "../../web/node_modules/pyodide/pyodide.asm.mjs";
import { loadPyodide } from "../../web/node_modules/pyodide/pyodide.mjs";

const [wheel, out] = process.argv.slice(2);
const PAGE = 1024;

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

/** The memory of a new Pyodide that is about to restore a snapshot, with room for it. */
async function newMemory(snapshot, size) {
  let memory;
  const enough = new Error("the memory is known");
  await loadPyodide({
    _loadSnapshot: snapshot,
    async createPyodideModule(settings) {
      const module = await createModule(settings);
      while (module.HEAPU8.length < size) module._malloc(size - module.HEAPU8.length);
      memory = module.HEAPU8.slice();
      throw enough;
    },
  }).catch((e) => {
    if (e !== enough) throw e;
  });
  return memory;
}

/** The runs of a memory, [first page, pages, 1 if a new memory has them], and the end of that. */
function runsOf(memory, fresh) {
  const runs = [];
  let end = 0;
  const full = (bytes) => bytes.some((x) => x);
  for (let page = 0; page * PAGE < memory.length; page++) {
    const here = Buffer.from(memory.subarray(page * PAGE, (page + 1) * PAGE));
    const before = Buffer.from(fresh.subarray(page * PAGE, (page + 1) * PAGE));
    if (full(before)) end = (page + 1) * PAGE;
    if (!full(here)) continue;
    const known = Number(here.equals(before));
    const last = runs.at(-1);
    if (last && last[0] + last[1] === page && last[2] === known) last[1]++;
    else runs.push([page, 1, known]);
  }
  return { runs, end };
}

/** The snapshot without what a new memory has. */
function sparse(snapshot, fresh) {
  const [, headBytes] = new Uint32Array(snapshot.buffer, snapshot.byteOffset, 2);
  const memory = snapshot.subarray(headBytes);
  const { runs, end } = runsOf(memory, fresh);
  const bytesOf = ([page, pages]) => memory.slice(page * PAGE, (page + pages) * PAGE);
  let sum = 0;
  for (const run of runs.filter(([, , known]) => known))
    for (const x of new Int32Array(bytesOf(run).buffer)) sum = (sum + x) | 0;
  const head = [headBytes, memory.length, end, sum >>> 0, runs.length, ...runs.flat()];
  const numbers = Uint32Array.from([4 * (head.length + 1), ...head]);
  const kept = runs.filter(([, , known]) => !known).map(bytesOf);
  return Buffer.concat([Buffer.from(numbers.buffer), snapshot.subarray(0, headBytes), ...kept]);
}

const pyodide = await loadPyodide({
  _makeSnapshot: true,
  args: ["-X", "no_debug_ranges"],
});
pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel");
const warm = readFileSync(new URL("warm.py", import.meta.url), "utf8");
pyodide.globals.set("warm_up", warm);
pyodide.runPython(
  "from edgewise.snapshot import prepare\nprepare(lambda: exec(warm_up, {}))\ndel warm_up",
);
clearFreeMemory(pyodide._module);
const snapshot = pyodide.makeMemorySnapshot();
const packed = sparse(snapshot, await newMemory(snapshot, pyodide._module.HEAPU8.length));
writeFileSync(`${out}.part`, gzipSync(packed, { level: 9 }));
renameSync(`${out}.part`, out);
process.exit(0); // Pyodide in Node keeps the process alive
