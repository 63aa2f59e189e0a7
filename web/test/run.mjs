// npm test: the tests that need no browser, bundled by esbuild, since Node 20 does not read
// TypeScript.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(join(tmpdir(), "edgewise-"));
try {
  const [part = ""] = process.argv.slice(2); // only the files whose names contain it
  const names = readdirSync(here, { recursive: true }).filter(
    (n) => n.endsWith(".test.ts") && n.includes(part),
  );
  // bundle.mjs sets the real ones
  const define = Object.fromEntries(
    ["__VERSION__", "__COMPILER__", "__WHEEL__"].map((name) => [name, '"test"']),
  );
  await build({
    entryPoints: names.map((n) => join(here, n)),
    outdir: out,
    outbase: here,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    define,
    logLevel: "warning",
  });
  process.exitCode =
    spawnSync(
      process.execPath,
      [
        "--test",
        "--test-concurrency=2",
        ...names.map((n) => join(out, n.replace(/\.ts$/, ".mjs"))),
      ],
      { stdio: "inherit", env: { ...process.env, EDGEWISE_SRC: join(here, "../src") } },
    ).status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}
