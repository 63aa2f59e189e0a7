// npm run pack: edgewise.inline.js and edgewise.global.js, each the library in one file: the script
// of workers as text, the engines compressed; and the parts beside it, which few pages use; and the
// package edgewise-compiler. Runs after build.mjs, when dist/engine/ and the wheel are there. It
// also writes the licences.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import zopfli from "@gfx/zopfli";
import { build } from "esbuild";
import { here, markImports, options, out, squeezeFile } from "./bundle.mjs";
import { packCompiler } from "./compiler.mjs";
import { writeLicenses } from "./licenses.mjs";
import { buildWhole } from "./worker.mjs";

// those with all kernels stay files beside it
const BUILDS = ["simd128-threads", "relaxed-threads"];
/**
 * The builds are largely equal, in the same order. deflate finds equal bytes at most 32 KiB apart:
 * so they are stored as this number of pieces each, a piece of each build in turn. Together they
 * then compress to hardly more than one.
 */
const PIECES = 23;

const { text: worker, beside, inputs } = await buildWhole();

const engineFile = (name) => readFileSync(join(out, `engine/edgewise-${name}.wasm`));

async function engines() {
  const files = BUILDS.map(engineFile);
  const cut = (file, piece) => Math.floor((file.length * piece) / PIECES);
  const pieces = Array.from({ length: PIECES }, (_, i) =>
    files.map((file) => file.subarray(cut(file, i), cut(file, i + 1))),
  );
  return {
    builds: BUILDS,
    sizes: files.map((file) => file.length),
    pieces: PIECES,
    deflated: Buffer.from(
      // 4 % smaller than zlib's; further iterations gain nothing
      await zopfli.deflateAsync(Buffer.concat(pieces.flat()), { numiterations: 5 }),
    ).toString("base64"),
  };
}

const engineText = JSON.stringify(await engines());
const compilerText = JSON.stringify(packCompiler());

/**
 * What is beside the one file: the hash of each, and its address, which is literal, so that
 * bundlers copy it.
 * @param module whether the script knows its address by `import.meta`
 */
function besideText(module) {
  const builds = [...BUILDS.map((name) => `${name}-full`), "relaxed-threads-64"];
  const engines = builds.map((name) => `engine/edgewise-${name}.wasm`);
  const files = [...beside.map((name) => `${name}.js`), ...engines].map((path) => {
    const hash = createHash("sha256")
      .update(readFileSync(join(out, path)))
      .digest("base64");
    const url = `,()=>new URL("./${path}",import.meta.url).href`;
    return `"${path}":["sha256-${hash}"${module ? url : ""}]`;
  });
  return `{${files.join(",")}}`;
}

const packed = (module) => ({
  name: "the library's own files",
  setup(b) {
    b.onResolve({ filter: /^edgewise:packed$/ }, ({ path }) => ({ path, namespace: "packed" }));
    b.onResolve({ filter: /\/assets\.ts$/ }, ({ resolveDir }) => ({
      path: join(resolveDir, "assets-inline.ts"),
    }));
    b.onLoad({ filter: /.*/, namespace: "packed" }, () => ({
      contents: [
        `export const engines = ${engineText};`,
        `export const beside = ${besideText(module)};`,
        `export const compiler = ${compilerText};`,
        // last: what follows is like it, and gzip sees 32 KiB
        `export const worker = ${JSON.stringify(worker)};`,
      ].join("\n"),
    }));
  },
});
const entry = join(here, "src/page/index.ts");
const { metafile } = await build({
  ...options,
  entryPoints: { "edgewise.inline": entry },
  outdir: out,
  plugins: [packed(true)],
  metafile: true,
});
writeLicenses([...inputs, ...Object.keys(metafile.inputs)]);
await build({
  ...options,
  format: "iife",
  logOverride: { "empty-import-meta": "silent" }, // a classic script knows its own address
  globalName: "edgewise",
  entryPoints: { "edgewise.global": entry },
  outdir: out,
  plugins: [packed(false)],
});
await squeezeFile(join(out, "edgewise.inline.js"));
await squeezeFile(join(out, "edgewise.global.js"), { module: false });
for (const name of ["edgewise.inline.js", "edgewise.global.js"]) markImports(join(out, name));
