// node examples/extension/build.mjs [OUT]: builds OUT/chrome and OUT/firefox (default:
// .build/extension) from src/, the library in web/dist/ and the demo's model. `make extension`
// builds those first. Another extension does the same with node_modules/edgewise/dist/.
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "../../web/node_modules/esbuild/lib/main.js";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const dist = join(root, "web/dist");
const out = process.argv[2] ?? join(root, ".build/extension");

// The engines with the rare kernels (-full) are not needed by this model.
const engines = existsSync(join(dist, "engine")) ? readdirSync(join(dist, "engine")) : [];
const LIBRARY = [
  "edgewise.js",
  "worker.js",
  ...(existsSync(dist) ? readdirSync(dist) : []).filter((name) => /^worker-\w+\.js$/.test(name)),
  "extension.js",
  ...engines.filter((name) => !name.includes("-full")).map((name) => `engine/${name}`),
];

/** The manifest of one browser: lists are joined, other values are added. */
function manifest(browser) {
  const read = (name) => JSON.parse(readFileSync(join(here, name), "utf8"));
  const shared = read("manifest.json");
  const own = read(`manifest.${browser}.json`);
  const permissions = [...shared.permissions, ...(own.permissions ?? [])].sort();
  return { ...shared, ...own, permissions };
}

for (const browser of ["chrome", "firefox"]) {
  const folder = join(out, browser);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "manifest.json"), JSON.stringify(manifest(browser), null, 2));
  const files = ["background.js", "engine.js", "panel.html", "panel.css", "panel.js"];
  if (browser === "chrome") files.push("offscreen.html");
  for (const name of files) cpSync(join(here, "src", name), join(folder, name));
  cpSync(join(here, "icons"), join(folder, "icons"), { recursive: true });
  for (const name of LIBRARY) {
    if (!existsSync(join(dist, name)))
      throw new Error(`web/dist/${name} is not there: run \`make extension\``);
    cpSync(join(dist, name), join(folder, "edgewise", name));
  }
  cpSync(join(dist, "demo/model.edge"), join(folder, "model.edge"));
  // A content script cannot import modules: it becomes one file.
  await build({
    entryPoints: [join(here, "src/write-on.js")],
    outfile: join(folder, "write-on.js"),
    bundle: true,
    format: "iife",
    alias: { "edgewise/extension": join(dist, "extension.js") },
    logLevel: "warning",
  });
}
console.log(`built ${join(out, "chrome")} and ${join(out, "firefox")}`);
