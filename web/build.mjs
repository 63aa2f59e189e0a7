// npm run build: bundles src/ and demo/ into dist/ and writes the type declarations. make adds the
// engine (wasm/) and the wheel; then pack.mjs makes the bundles that contain everything.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";
import { here, markImports, options, out, squeezeFile } from "./bundle.mjs";
import { pageOf, ROOMS } from "./demo/pages.mjs";
import { additions, modules } from "./modules.mjs";
import { buildWorker } from "./worker.mjs";

mkdirSync(out, { recursive: true });
for (const old of ["thread.js", "thread.js.map"]) rmSync(join(out, old), { force: true });
await build({
  ...options,
  entryPoints: {
    edgewise: join(here, "src/page/index.ts"),
    compiler: join(here, "src/worker/entry/compiler.ts"),
    inline: join(here, "src/worker/inline.ts"),
    ...Object.fromEntries(
      modules
        // made of several files, below
        .filter((name) => !["federated", "release", ...Object.keys(additions)].includes(name))
        .map((name) => [name, join(here, `src/extras/${name}/index.ts`)]),
    ),
  },
  outdir: out,
});
// Secure aggregation is a part of its own, which has the classes of errors from federated.js.
const beside = (filter, path, kinds) => ({
  name: `${path} beside it`,
  setup: (b) =>
    b.onResolve({ filter }, ({ kind }) => (kinds.includes(kind) ? { path, external: true } : null)),
});
await build({
  ...options,
  entryPoints: { federated: join(here, "src/extras/federated/index.ts") },
  outdir: out,
  plugins: [beside(/\/secure\/index\.ts$/, "./federated-secure.js", ["dynamic-import"])],
});
await build({
  ...options,
  entryPoints: { "federated-secure": join(here, "src/extras/federated/secure/index.ts") },
  outdir: out,
  plugins: [beside(/\/shared\/errors\.ts$/, "./federated.js", ["import-statement"])],
});
// So have the storage of browsers without private files, and the decoder of deltas.
await build({
  ...options,
  entryPoints: { release: join(here, "src/extras/release/index.ts") },
  outdir: out,
  plugins: [
    beside(/\/indexed\.ts$/, "./release-indexed.js", ["dynamic-import"]),
    beside(/\/codec\.ts$/, "./release-deltas.js", ["dynamic-import"]),
  ],
});
await build({
  ...options,
  entryPoints: {
    "release-indexed": join(here, "src/shared/files/indexed.ts"),
    "release-deltas": join(here, "src/extras/release/codec.ts"),
  },
  outdir: out,
  plugins: [beside(/\/errors\.ts$/, "./release.js", ["import-statement"])],
});
// What adds to the library imports a build of it, and has the parts that few pages use in files of
// their own.
const added = [];
for (const [name, parts] of Object.entries(additions))
  for (const kind of ["", ".inline", ".node"])
    for (const part of ["index", ...parts]) {
      const file = (of) => `${name}${of === "index" ? "" : `-${of}`}${kind}`;
      added.push(file(part));
      const own = parts.map((of) =>
        beside(new RegExp(`/${of}\\.ts$`), `./${file(of)}.js`, ["dynamic-import"]),
      );
      const library = beside(/\/(page\/index|shared\/errors)\.ts$/, `./edgewise${kind}.js`, [
        "import-statement",
      ]);
      await build({
        ...options,
        entryPoints: { [file(part)]: join(here, `src/extras/${name}/${part}.ts`) },
        outdir: out,
        plugins: [...own, library],
      });
    }
// A classic script: not every browser has service workers that are modules.
await build({
  ...options,
  format: "iife",
  entryPoints: { sw: join(here, "src/extras/offline/sw.ts") },
  outdir: out,
});

const PARTS = ["federated-secure", "release-indexed", "release-deltas"];
const whole = modules.filter((name) => !(name in additions));
for (const name of ["edgewise", "compiler", "inline", ...whole, ...PARTS, ...added])
  await squeezeFile(join(out, `${name}.js`));
markImports(join(out, "edgewise.js"));
await buildWorker();

// For Node, Deno and Bun: worker threads in the place of web workers.
await build({
  ...options,
  platform: "node",
  entryPoints: { "edgewise.node": join(here, "src/page/index.ts") },
  outdir: out,
  plugins: [
    {
      name: "what differs in Node",
      setup: (b) =>
        b.onResolve({ filter: /\/realm\.ts$/ }, () => ({
          path: join(here, "src/page/node/worker.ts"),
        })),
    },
  ],
});
await build({
  ...options,
  platform: "node",
  sourcemap: false,
  entryPoints: { "node-worker": join(here, "src/page/node/bootstrap.ts") },
  outExtension: { ".js": ".mjs" },
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

// The demo imports the library by its address, as any page does.
const byAddress = {
  name: "edgewise by its address",
  setup: (b) =>
    b.onResolve({ filter: /^edgewise(\/offline|\/federated|\/phonemes)?$/ }, ({ path }) => ({
      path: `../${basename(path)}.js`,
      external: true,
    })),
};
await build({
  ...options,
  entryPoints: [
    { in: join(here, "demo/demo.ts"), out: "demo" },
    ...ROOMS.map((room) => ({ in: join(here, `demo/rooms/${room}.ts`), out: room })),
  ],
  outdir: join(out, "demo"),
  plugins: [byAddress],
});
for (const name of ["index", ...ROOMS])
  writeFileSync(join(out, "demo", `${name}.html`), pageOf(join(here, "demo"), name));
for (const name of [
  "demo.css",
  "rooms/rooms.css",
  "app.webmanifest",
  "icon.svg",
  "icon-192.png",
  "icon-512.png",
])
  cpSync(join(here, "demo", name), join(out, "demo", basename(name)));
// The rooms offer what this list names (demo/real/make.py).
mkdirSync(join(out, "demo/real"), { recursive: true });
if (!existsSync(join(out, "demo/real/models.json")))
  writeFileSync(join(out, "demo/real/models.json"), "[]");
rmSync(join(out, "demo/model"), { recursive: true, force: true });
cpSync(join(here, "demo/model"), join(out, "demo/model"), { recursive: true });
cpSync(join(here, "demo/rooms/samples"), join(out, "demo/samples"), { recursive: true });

rmSync(join(out, "types"), { recursive: true, force: true });
execFileSync(
  process.execPath,
  [join(here, "node_modules/typescript/bin/tsc"), "-p", join(here, "tsconfig.types.json")],
  { stdio: "inherit" },
);
