// host.mjs PYODIDE WHEEL FOLDER [ZOO]   Pyodide in Node with the wheel installed, controlled by
// conftest.py: it reads and writes lines of JSON. FOLDER is /work in Pyodide, ZOO is /zoo.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { mountDrive } from "./drive.mjs";

const [pyodideFolder, wheel, folder, zoo] = process.argv.slice(2);
const answer = (x) => process.stdout.write(`\n@${JSON.stringify(x)}\n`);
try {
  const { loadPyodide } = await import(`${pyodideFolder}/pyodide.mjs`);
  const pyodide = await loadPyodide({ stdout: () => {}, stderr: (line) => console.error(line) });
  const mount = (root, path) => {
    pyodide.FS.mkdirTree(path);
    pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, path);
  };
  mount(folder, "/work");
  if (zoo) mount(zoo, "/zoo");
  pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel");
  globalThis.readFile = (path) => new Uint8Array(readFileSync(path));
  globalThis.folder = folder;
  // the same folder as a notebook's drive
  globalThis.drive = mountDrive(pyodide.FS, folder, "/drive");
  // each piece of code has its own variables and stores its answer in `result`
  const run = pyodide.runPython(`
import json, traceback
from pyodide.code import eval_code_async

async def run(code):
    names = {"__name__": "__main__"}
    try:
        await eval_code_async(code, names)
        return json.dumps({"result": names.get("result")})
    except BaseException:
        return json.dumps({"error": traceback.format_exc()})
run`);
  answer({ version: pyodide.version });
  for await (const line of createInterface({ input: process.stdin }))
    process.stdout.write(`\n@${await run(JSON.parse(line))}\n`);
} catch (e) {
  answer({ error: String(e?.stack ?? e).slice(-4000) });
}
process.exit(0);
