// Runs test files of ONNX Runtime's JavaScript packages with Edgewise's sources in the place of
// onnxruntime-common (docs/contribute/peers.md):
//
//     node tests/tools/run_onnxruntime_web_tests.mjs FILE...
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "../../web/node_modules/esbuild/lib/main.js";

const page = fileURLToPath(new URL("../../web/src/page/index.ts", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "edgewise-"));
const globals = join(out, "globals.mjs");
writeFileSync(
  globals,
  'export { describe, it, before, after, beforeEach, afterEach } from "node:test";\n',
);
const names = ["__VERSION__", "__COMPILER__", "__WHEEL__"];
try {
  await build({
    entryPoints: process.argv.slice(2).map((file) => resolve(file)),
    outdir: out,
    outExtension: { ".js": ".test.mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    alias: { "onnxruntime-common": page },
    inject: [globals], // the tests are written for mocha
    define: Object.fromEntries(names.map((name) => [name, '"test"'])),
    logLevel: "error",
  });
  const files = readdirSync(out, { recursive: true }).filter((name) => name.endsWith(".test.mjs"));
  process.exitCode =
    spawnSync(process.execPath, ["--test", ...files.map((name) => join(out, name))], {
      stdio: "inherit",
    }).status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}
