// Fills the folder of the package edgewise-compiler (compiler/): what compiles models in a page.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { here, options, out, wheelName } from "./bundle.mjs";

const version = JSON.parse(options.define.__VERSION__);
const wheel = wheelName(version);
/** As `PYTHON` of src/page/own-files.ts. */
const FILES = {
  loader: "pyodide/pyodide.mjs",
  module: "pyodide/pyodide.asm.mjs",
  wasm: "pyodide/pyodide.asm.wasm",
  library: "pyodide/python_stdlib.zip",
  wheel,
  snapshot: wheel.replace(/whl$/, "snapshot"),
};

/**
 * The address of a file for bundlers. They would compile a script once more, and Parcel fails: they
 * get a copy of another name, beside the one for pages that serve the folder.
 */
const literal = (path) => (path.endsWith(".mjs") ? `${path}.bin` : path);

/**
 * Writes compiler/dist.
 * @returns the hash of each file, as in `<script integrity>`
 */
export function packCompiler() {
  const folder = join(here, "compiler/dist");
  rmSync(folder, { recursive: true, force: true });
  for (const path of Object.values(FILES))
    for (const name of new Set([path, literal(path)])) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      copyFileSync(join(out, path), join(folder, name));
    }
  const addresses = Object.entries(FILES).map(
    ([name, path]) => `    ${name}: () => new URL("./${literal(path)}", import.meta.url).href,\n`,
  );
  writeFileSync(
    join(folder, "index.js"),
    `// Tells edgewise where its bundler has put the files that compile models.\n` +
      `globalThis[Symbol.for("edgewise.compiler")] = {\n  version: "${version}",\n  files: {\n` +
      `${addresses.join("")}  },\n};\n`,
  );
  writeFileSync(join(folder, "index.d.ts"), "export {};\n");
  const hash = (path) =>
    `sha256-${createHash("sha256")
      .update(readFileSync(join(out, path)))
      .digest("base64")}`;
  return Object.fromEntries(Object.entries(FILES).map(([name, path]) => [name, hash(path)]));
}
