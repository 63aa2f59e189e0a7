// Bundles the text library of the wheel for Pyodide (src/worker/entry/text-library.ts) as an
// expression whose value is its exports: dist/python/text-library.js, with the licences of what it
// contains.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { here, options, out, squeeze } from "./bundle.mjs";
import { licensesOf } from "./licenses.mjs";

const {
  outputFiles: [script],
  metafile,
} = await build({
  ...options,
  format: "iife",
  globalName: "library",
  sourcemap: false,
  entryPoints: [join(here, "src/worker/entry/text-library.ts")],
  banner: { js: "(()=>{" },
  footer: { js: "return library})()" },
  write: false,
  metafile: true,
});
const { code } = await squeeze(script.text, undefined, {
  module: false,
  compress: { passes: 3, expression: true }, // its value is what the script is evaluated for
});
const folder = join(out, "python");
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "text-library.js"), code);
writeFileSync(
  join(folder, "text-library.LICENSES.txt"),
  licensesOf(Object.keys(metafile.inputs)).join("\n\n"),
);
