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

const ENTRY = "src/entry/worker.ts";
const WHOLE = "src/entry/everything.ts";

/**
 * The scripts by the module that an import() names. A module is in the first script that imports
 * it; the scripts that also do load that one. What a task alone needs is in a folder of
 * src/worker/pipelines, which is a script; to add one, name it in src/shared/worker-parts.ts and
 * src/page/assets.ts as well.
 */
const SCRIPTS = {
  [ENTRY]: "worker",
  "src/device/webgpu/device.ts": "worker-webgpu",
  "src/device/webgpu/probe.ts": "worker-webgpu-probe",
  "src/gen/shaders_choice.ts": "worker-webgpu-choice",
  "src/device/webgpu/parts/bytes.ts": "worker-webgpu-bytes",
  "src/gen/shaders_images.ts": "worker-webgpu-images",
  "src/gen/shaders_serial.ts": "worker-webgpu-serial",
  "src/gen/shaders_training.ts": "worker-webgpu-training",
  "src/worker/inference/service.ts": "worker-inference",
  "src/worker/pipelines/index.ts": "worker-pipelines",
  "src/worker/pipelines/texts/index.ts": "worker-texts",
  "src/worker/pipelines/images/index.ts": "worker-images",
  "src/worker/pipelines/sounds/index.ts": "worker-sounds",
  "src/worker/pipelines/candidates/index.ts": "worker-candidates",
  "src/worker/pipelines/seq2seq/index.ts": "worker-generation",
  "src/worker/pipelines/seq2seq/speech/index.ts": "worker-speech",
  "src/worker/pipelines/seq2seq/moonshine/index.ts": "worker-moonshine",
  "src/worker/pipelines/synthesis/index.ts": "worker-voices",
  "src/worker/pipelines/heads/index.ts": "worker-heads",
  "src/worker/pipelines/adapters/index.ts": "worker-adapters",
  "src/worker/pipelines/heads/export.ts": "worker-adapters",
  "src/worker/pipelines/diffusion/index.ts": "worker-diffusion",
  "src/worker/profile/index.ts": "worker-profile",
  "src/worker/text/chat-template.ts": "worker-templates",
  "src/worker/training/index.ts": "worker-training",
  "src/worker/storage/index.ts": "worker-storage",
  "src/shared/files/indexed.ts": "worker-indexed",
  "src/worker/model/onnx/index.ts": "worker-onnx",
  "src/worker/files/fetch-listing.ts": "worker-onnx",
};

/** Modules that several scripts import, and are in one that does not. */
const SHARED = {
  "src/worker/files/compiled.ts": "worker",
  "src/worker/model/fill.ts": "worker",
  "src/shared/seeds.ts": "worker",
  "src/worker/pipelines/recovery.ts": "worker-inference",
  "src/worker/pipelines/again.ts": "worker-inference",
  "src/gen/resampling.ts": "worker-inference",
  "src/worker/media/memory.ts": "worker-pipelines",
  "src/worker/pipelines/classification.ts": "worker-pipelines",
  "src/worker/pipelines/inputs.ts": "worker-pipelines",
  "src/worker/pipelines/outputs.ts": "worker-pipelines",
};

/** Parts that few pages of the one file use, with the names of their files beside it. */
const BESIDE = {
  "worker-webgpu": "part-webgpu",
  "worker-webgpu-probe": "part-webgpu-probe",
  "worker-webgpu-choice": "part-webgpu-choice",
  "worker-webgpu-bytes": "part-webgpu-bytes",
  "worker-webgpu-images": "part-webgpu-images",
  "worker-webgpu-serial": "part-webgpu-serial",
  "worker-webgpu-training": "part-webgpu-training",
  "worker-candidates": "part-candidates",
  "worker-diffusion": "part-diffusion",
  "worker-heads": "part-heads",
  "worker-adapters": "part-adapters",
  "worker-moonshine": "part-moonshine",
  "worker-voices": "part-voices",
};

/** The scripts of the one file by module: its worker, then what is beside it. */
function wholeScripts() {
  const parts = Object.entries({ ...SHARED, ...SCRIPTS });
  const beside = ([, name]) => name in BESIDE;
  return Object.fromEntries([
    [WHOLE, "worker"],
    ...parts.filter((part) => !beside(part)).map(([path]) => [path, "worker"]),
    ...parts.filter(beside).map(([path, name]) => [path, BESIDE[name]]),
  ]);
}

/**
 * The names of the scripts by their modules' addresses.
 * @param scripts as SCRIPTS; what the first ones import is theirs
 */
function divided(getModuleInfo, scripts) {
  const found = new Map();
  const add = (id, name) => {
    if (found.has(id)) return;
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
  write(await bundled(ENTRY, { [ENTRY]: "worker", ...SHARED, ...SCRIPTS }));
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
