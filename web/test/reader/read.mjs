// node read.mjs ENGINE_FOLDER_URL [SCRIPT]: bundles reader.ts, or another script of this folder
// (Node 20 does not read TypeScript), and runs it.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const out = mkdtempSync(join(tmpdir(), "edgewise-"));
process.on("exit", () => rmSync(out, { recursive: true, force: true }));
const file = join(out, "reader.mjs");
await build({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), process.argv[3] ?? "reader.ts")],
  outfile: file,
  bundle: true,
  format: "esm",
  platform: "node",
  // bundle.mjs sets the real ones
  define: Object.fromEntries(
    ["__VERSION__", "__COMPILER__", "__WHEEL__"].map((name) => [name, '"test"']),
  ),
  logLevel: "error",
});
await import(pathToFileURL(file).href);
