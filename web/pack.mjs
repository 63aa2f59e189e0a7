// npm run pack: edgewise.inline.js and edgewise.global.js, each the whole library in one file:
// scripts of workers as text, the engine compressed. Runs after build.mjs, when dist/engine/ is
// there.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { constants, deflateRawSync } from "node:zlib";
import { build } from "esbuild";
import { here, markImports, options, out } from "./bundle.mjs";

// those with all kernels stay files beside it
const BUILDS = ["simd128", "simd128-threads", "relaxed-threads"];
const HEAD = 2048; // bytes: simd128 and simd128-threads are equal behind it (wasm/Makefile)

const script = (name) =>
  readFileSync(join(out, name), "utf8").replace(/\n\/\/# sourceMappingURL=.*\n?$/, "");
const base64 = (bytes, options) =>
  deflateRawSync(bytes, { level: 9, ...options }).toString("base64");

/** A module that exports the engines: each its beginning and, from `rest`, what follows it. */
function engines() {
  const all = BUILDS.map((name) => readFileSync(join(out, `engine/edgewise-${name}.wasm`)));
  const finishFlush = constants.Z_SYNC_FLUSH; // the stream goes on
  const heads = all.map((bytes) => base64(bytes.subarray(0, HEAD), { finishFlush }));
  const rests = all.map((bytes) => base64(bytes.subarray(HEAD)));
  const rest = [...new Set(rests)];
  if (rest.length === BUILDS.length) throw new Error("the builds of simd128 share no code");
  const entries = BUILDS.map((name, i) => {
    return `${JSON.stringify(name)}: ["${heads[i]}", rest[${rest.indexOf(rests[i])}]]`;
  });
  return `const rest = ${JSON.stringify(rest)}; export const engine = { ${entries.join(", ")} };`;
}

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
        engines(),
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
