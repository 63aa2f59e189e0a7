// Builds worker.js and its parts (src/worker/parts.ts). Each is a script that needs no other file
// by a relative address: bundlers rename files, and a page of another origin loads copies.
import { join, relative } from "node:path";
import { nodeResolve } from "@rollup/plugin-node-resolve";
import { transform } from "esbuild";
import { rollup } from "rollup";
import { here, options, out, squeeze } from "./bundle.mjs";

const { define, target } = options;

/** Names of the scripts by the module that an import() names. */
const PARTS = {
  "src/shared/files/indexed.ts": "worker-indexed",
  "src/worker/inference/service.ts": "worker-inference",
  "src/worker/pipelines/diffusion/index.ts": "worker-diffusion",
  "src/worker/pipelines/index.ts": "worker-pipelines",
  "src/worker/pipelines/seq2seq/index.ts": "worker-generation",
  "src/worker/profile/index.ts": "worker-profile",
  "src/worker/text/chat-template.ts": "worker-templates",
  "src/worker/training/index.ts": "worker-training",
};

/** Modules that several parts use and worker.js has for them, though it has no use of its own. */
const SHARED = ["src/shared/seeds.ts"];

/** Runs a script with the exports of others; Rollup's AMD output calls it. */
const DEFINE = `
self.edgewiseParts = new Map();
self.edgewiseDefine = (name, needs, make) => {
  const own = {};
  self.edgewiseParts.set(name, own);
  make(...needs.map((n) => (n === "exports" ? own : self.edgewiseParts.get(n.slice(2)))));
};
`;

const typescript = {
  name: "TypeScript, and imports of parts",
  async transform(code, id) {
    if (!id.endsWith(".ts")) return null;
    const done = await transform(code, {
      loader: "ts",
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

/** Writes the scripts. */
export async function buildWorker() {
  const bundle = await rollup({
    input: { worker: join(here, "src/entry/worker.ts") },
    plugins: [nodeResolve(), typescript, minify],
    preserveEntrySignatures: "allow-extension",
  });
  const { output } = await bundle.write({
    dir: out,
    format: "amd",
    manualChunks: (id) =>
      ["src/entry/worker.ts", ...SHARED].includes(relative(here, id)) ? "worker" : undefined,
    amd: { autoId: true, define: "self.edgewiseDefine" },
    banner: (chunk) => (chunk.isEntry ? DEFINE : ""),
    generatedCode: "es2015",
    minifyInternalExports: true,
    sourcemap: true,
    chunkFileNames({ facadeModuleId, moduleIds }) {
      const name = facadeModuleId && PARTS[relative(here, facadeModuleId)];
      if (!name) throw new Error(`parts share modules that worker.js lacks: ${moduleIds}`);
      return `${name}.js`;
    },
  });
  await bundle.close();
  return output.map(({ fileName }) => fileName);
}
