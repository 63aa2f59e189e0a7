// Compilation in the page, step by step, as in web/src/worker/compiler/index.ts: Pyodide, the
// wheel, the import, the compilation.
import { now, serve } from "./rpc.js";

let pyodide;
let blob;

/** A file as a JavaScript source. A class, since Pyodide converts plain objects to dictionaries. */
class Source {
  reader = new FileReaderSync();
  constructor(name, blob) {
    Object.assign(this, { name, blob, size: blob.size });
  }
  read(from, bytes) {
    return new Uint8Array(
      this.reader.readAsArrayBuffer(this.blob.slice(Number(from), Number(from) + Number(bytes))),
    );
  }
}

serve({
  async open(model) {
    blob = await (await fetch(model)).blob();
  },
  run: (wheel) =>
    run(wheel).catch((e) => {
      // the last line of Python's traceback
      throw new Error(
        String(e?.message ?? e)
          .trim()
          .split("\n")
          .pop(),
      );
    }),
});

async function run(wheel) {
  const steps = {};
  let last = now();
  const step = (name) => {
    steps[name] = now() - last;
    last = now();
  };
  const { loadPyodide } = await import(new URL("/pyodide/pyodide.mjs", location.href).href);
  pyodide = await loadPyodide({ indexURL: new URL("/pyodide/", location.href).href });
  step("pyodide");
  pyodide.unpackArchive(await (await fetch(wheel)).arrayBuffer(), "wheel");
  step("wheel");
  pyodide.runPython("import edgewise");
  step("import");
  pyodide.runPython("import edgewise.compile, edgewise.page");
  step("compiler");
  const answer = pyodide.runPython("edgewise.page.run");
  const options = JSON.stringify({ of: "package", model_file: "model.onnx" });
  const result = answer(
    pyodide.toPy(new Map([["model.onnx", new Source("model.onnx", blob)]])),
    options,
  );
  step("compile");
  if (!(result.length === 2)) throw new Error("no package came out");
  return steps;
}
