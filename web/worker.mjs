// Builds worker.js and its parts (src/worker/parts.ts). Each is a script that needs no other file
// by a relative address: bundlers rename files, and a page of another origin loads copies. Builds
// the worker of the one file in the same way, which has most parts inside.
import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { nodeResolve } from "@rollup/plugin-node-resolve";
import { transform } from "esbuild";
import { rollup } from "rollup";
import { here, options, out, squeeze } from "./bundle.mjs";

const { define, target } = options;
const { useDefineForClassFields } = JSON.parse(
  readFileSync(join(here, "tsconfig.json"), "utf8"),
).compilerOptions;

const ENTRY = "src/worker/entry/worker.ts";
const WHOLE = "src/worker/entry/everything.ts";

/**
 * The scripts. `scripts`: names by the module that an import() names. A module is in the first
 * script that imports it; the scripts that also do load that one. `shared`: modules that several
 * scripts import, and the script that has them. `beside`: the parts that few pages of the one file
 * use; there they are files of their own, with "part" in the place of "worker" in their names.
 * `make gen` writes the lists of names and addresses in src/gen from this file.
 */
const PARTS = JSON.parse(readFileSync(join(here, "worker-parts.json"), "utf8"));
const SCRIPTS = { [ENTRY]: "worker", ...PARTS.shared, ...PARTS.scripts };
const BESIDE = Object.fromEntries(
  PARTS.beside.map((name) => [name, name.replace("worker", "part")]),
);

/** The scripts of the one file by module: its worker, then what is beside it. */
function wholeScripts() {
  const parts = Object.entries(SCRIPTS);
  const beside = ([, name]) => name in BESIDE;
  return Object.fromEntries([
    [WHOLE, "worker"],
    ...parts.filter((part) => !beside(part)).map(([path]) => [path, "worker"]),
    ...parts.filter(beside).map(([path, name]) => [path, BESIDE[name]]),
  ]);
}

/**
 * The names of the scripts by their modules' addresses.
 * @param scripts as SCRIPTS; what the first ones import is theirs, unless it is listed for another
 */
function divided(getModuleInfo, scripts) {
  const listed = new Map(Object.entries(scripts).map(([path, name]) => [join(here, path), name]));
  const found = new Map();
  const add = (id, name) => {
    if (found.has(id) || (listed.get(id) ?? name) !== name) return;
    found.set(id, name);
    for (const imported of getModuleInfo(id).importedIds) add(imported, name);
  };
  for (const [path, name] of Object.entries(scripts)) add(join(here, path), name);
  return found;
}

/** Registers a script; Rollup's AMD output calls it. worker/parts.ts runs it, after its needs. */
const DEFINE = `
self.edgewiseParts = new Map();
self.edgewiseDefine = (name, uses, make) => {
  const parts = self.edgewiseParts;
  const exports = {};
  const needs = uses.filter((use) => use.startsWith("./")); // not "exports" and "require"
  const of = (use) => (use === "exports" ? exports : parts.get(use.slice(2))?.exports);
  const run = () => make(...uses.map(of));
  parts.set(name, { exports, needs, run });
  if (name === "worker") run();
};
`;

/** Shaders without spaces that WGSL does not need; declarations begin with lines as before. */
const squeezedShaders = (code) =>
  code.replace(/`\n[^`]*`/g, (text) =>
    text
      .replace(/\n +/g, " ")
      .replace(/ ?([,;:(){}]) ?/g, "$1")
      .replace(/(?<=[\w)\]]) ?([=!<>]=|->|[-+*/]=|&&|\|\||>>|<<|[-+*/%=<]) ?(?=[\w(!])/g, "$1"),
  );

const typescript = {
  name: "TypeScript, and imports of parts",
  async transform(text, id) {
    if (!id.endsWith(".ts")) return null;
    const code = /\/gen\/shaders[^/]*$/.test(id) ? squeezedShaders(text) : text;
    const done = await transform(code, {
      loader: "ts",
      tsconfigRaw: { compilerOptions: { useDefineForClassFields } }, // as esbuild reads it
      sourcefile: relative(here, id),
      sourcemap: true,
      define,
      target,
    });
    return { code: done.code, map: done.map };
  },
  renderDynamicImport: ({ targetModuleId }) =>
    targetModuleId ? { left: "self.edgewiseLoad(", right: ")" } : { left: "import(", right: ")" },
};

const minify = {
  name: "minify",
  async renderChunk(code) {
    const first = await transform(code, { minify: true, sourcemap: true, target });
    return squeeze(first.code, first.map);
  },
};

/** Bundles the worker. `scripts`: as in `divided`. */
async function bundled(entry, scripts) {
  const bundle = await rollup({
    input: { worker: join(here, entry) },
    plugins: [nodeResolve(), typescript, minify],
    preserveEntrySignatures: "allow-extension",
  });
  let names;
  const { output } = await bundle.generate({
    dir: out,
    format: "amd",
    manualChunks(id, { getModuleInfo }) {
      names ??= divided(getModuleInfo, scripts);
      return names.get(id);
    },
    amd: { autoId: true, define: "self.edgewiseDefine" },
    banner: (chunk) => (chunk.isEntry ? DEFINE : ""),
    generatedCode: "es2015",
    minifyInternalExports: true,
    sourcemap: true,
    chunkFileNames: "[name].js",
  });
  await bundle.close();
  return output;
}

/** Writes scripts and their maps. */
function write(files) {
  for (const { fileName, code, source } of files)
    writeFileSync(join(out, fileName), code ?? source);
}

/** Writes worker.js and its parts. */
export async function buildWorker() {
  write(await bundled(ENTRY, SCRIPTS));
}

/**
 * Makes the worker of the one file, and writes the parts beside it.
 * @returns its text, a module; the names of the parts; the paths of all sources
 */
export async function buildWhole() {
  const files = await bundled(WHOLE, wholeScripts());
  const [worker, ...parts] = files.filter(({ type }) => type === "chunk");
  const beside = parts.map(({ name }) => name).sort();
  if (beside.join() !== Object.values(BESIDE).sort().join())
    throw new Error(`the parts beside the one file are ${beside.join()}`);
  write(files.filter(({ fileName }) => !fileName.startsWith("worker.js")));
  const code = worker.code.replace(/\n\/\/# sourceMappingURL=.*\s*$/, "");
  const session = 'export const{InlineSession}=self.edgewiseParts.get("worker").exports;';
  return {
    text: `${code}\n${session}`,
    beside,
    inputs: [worker, ...parts].flatMap(({ modules }) => Object.keys(modules)),
  };
}
