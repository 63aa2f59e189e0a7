// npm run build: bundles src/ and demo/ into dist/ and writes the type declarations. make adds the
// engine (wasm/) and the wheel.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "dist");
const { version } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));

/** A fingerprint of the compiler's sources, which determine the plans that it makes. */
function compilerId() {
  const root = join(here, "../python/edgewise");
  const hash = createHash("sha256");
  if (existsSync(root))
    for (const name of readdirSync(root, { recursive: true })
      .filter((n) => n.endsWith(".py"))
      .sort())
      hash.update(`${relative(root, join(root, name))}\n`).update(readFileSync(join(root, name)));
  return hash.digest("hex").slice(0, 16);
}

const options = {
  bundle: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  sourcemap: true,
  legalComments: "none",
  logLevel: "warning",
  define: {
    __VERSION__: JSON.stringify(version),
    __COMPILER__: JSON.stringify(compilerId()),
    __WHEEL__: JSON.stringify(`edgewise-${version}-py3-none-any.whl`),
  },
};

mkdirSync(out, { recursive: true });
await build({
  ...options,
  entryPoints: {
    edgewise: join(here, "src/page/index.ts"),
    worker: join(here, "src/worker/index.ts"),
    thread: join(here, "src/thread/index.ts"),
    compiler: join(here, "src/compiler/index.ts"),
    inline: join(here, "src/worker/inline.ts"),
  },
  outdir: out,
});

// Python, for pages that compile models.
for (const name of [
  "pyodide.mjs",
  "pyodide.asm.mjs",
  "pyodide.asm.wasm",
  "python_stdlib.zip",
  "pyodide-lock.json",
])
  cpSync(join(here, "node_modules/pyodide", name), join(out, "pyodide", name));

// The demo imports edgewise.js by its address, as any page does.
const byAddress = {
  name: "edgewise by its address",
  setup: (b) =>
    b.onResolve({ filter: /^edgewise$/ }, () => ({ path: "../edgewise.js", external: true })),
};
await build({
  ...options,
  entryPoints: [join(here, "demo/demo.ts")],
  outdir: join(out, "demo"),
  plugins: [byAddress],
});
for (const name of ["index.html", "demo.css"])
  cpSync(join(here, "demo", name), join(out, "demo", name));
rmSync(join(out, "demo/model"), { recursive: true, force: true });
cpSync(join(here, "demo/model"), join(out, "demo/model"), { recursive: true });

rmSync(join(out, "types"), { recursive: true, force: true });
execFileSync(
  process.execPath,
  [join(here, "node_modules/typescript/bin/tsc"), "-p", join(here, "tsconfig.types.json")],
  { stdio: "inherit" },
);
