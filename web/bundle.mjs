// Options that all bundles share, and what esbuild has no option for.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { minify } from "terser";

export const here = dirname(fileURLToPath(import.meta.url));
export const out = join(here, "dist");
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

/**
 * The file name of the wheel for Pyodide.
 * @param npmVersion version of the npm package; the wheel's is the same in the form of PEP 440
 */
export function wheelName(npmVersion) {
  return `edgewise-${npmVersion.replace(/-(a|b|rc)\.(\d+)$/, "$1$2")}-py3-none-any.whl`;
}

/** The options of every bundle. */
export const options = {
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
    __WHEEL__: JSON.stringify(wheelName(version)),
  },
};

/**
 * Minifies what esbuild wrote: terser's output is 3 to 4 % smaller as gzip.
 * @param map the source map of `code`, as an object or as text
 * @param more options of terser
 */
export async function squeeze(code, map, more) {
  const done = await minify(code, {
    module: true,
    ecma: 2022,
    compress: { passes: 3 },
    sourceMap: map && { content: map },
    ...more,
  });
  return { code: done.code, map: done.map };
}

/** Minifies a file and updates its map. `more`: as in squeeze. */
export async function squeezeFile(file, more) {
  const { code, map } = await squeeze(
    readFileSync(file, "utf8"),
    readFileSync(`${file}.map`, "utf8"),
    more,
  );
  writeFileSync(file, `${code}\n//# sourceMappingURL=${basename(file)}.map\n`);
  writeFileSync(`${file}.map`, map);
}

/**
 * Imports of addresses that are known at run time are no business of bundlers. The minifier drops
 * the comments that tell them so.
 */
export function markImports(file) {
  const text = readFileSync(file, "utf8");
  const marked = text.replace(
    /\bimport\((?=[\w$.]+\))/g,
    "import(/* webpackIgnore: true *//* @vite-ignore */",
  );
  if (marked === text) throw new Error(`${file} has no import of an address`);
  writeFileSync(file, marked);
}
