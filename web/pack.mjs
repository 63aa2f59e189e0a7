// npm run pack: edgewise.inline.js and edgewise.global.js, each the whole library in one file:
// scripts of workers as text, the engine compressed. Runs after build.mjs, when dist/engine/ is
// there.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { build } from "esbuild";
import { here, markImports, options, out } from "./bundle.mjs";

const BUILDS = ["simd128", "relaxed-threads"]; // those with all kernels stay files beside it

const script = (name) =>
  readFileSync(join(out, name), "utf8").replace(/\n\/\/# sourceMappingURL=.*\n?$/, "");
const engine = (build) =>
  deflateRawSync(readFileSync(join(out, `engine/edgewise-${build}.wasm`)), { level: 9 });

const packed = {
  name: "the library's own files",
  setup(b) {
    b.onResolve({ filter: /^edgewise:packed$/ }, ({ path }) => ({ path, namespace: "packed" }));
    b.onResolve({ filter: /\/assets\.ts$/ }, ({ resolveDir }) => ({
      path: join(resolveDir, "assets-inline.ts"),
    }));
    b.onLoad({ filter: /.*/, namespace: "packed" }, () => ({
      contents: [
        `export const worker = ${JSON.stringify(script("worker.js"))};`,
        `export const compiler = ${JSON.stringify(script("compiler.js"))};`,
        `export const engine = ${JSON.stringify(
          Object.fromEntries(BUILDS.map((name) => [name, engine(name).toString("base64")])),
        )};`,
      ].join("\n"),
    }));
  },
};
const entry = join(here, "src/page/index.ts");
await build({
  ...options,
  entryPoints: { "edgewise.inline": entry },
  outdir: out,
  plugins: [packed],
});
await build({
  ...options,
  format: "iife",
  logOverride: { "empty-import-meta": "silent" }, // a classic script knows its own address
  globalName: "edgewise",
  entryPoints: { "edgewise.global": entry },
  outdir: out,
  plugins: [packed],
});
for (const name of ["edgewise.inline.js", "edgewise.global.js"]) markImports(join(out, name));
