// The licences in the npm package: the library's own, and those of what its files contain.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { here } from "./bundle.mjs";

const PARTS = `Edgewise is licensed under the Apache License 2.0, see LICENSE. Its files contain
parts of others:

dist/engine/*.wasm, the one-file builds and the wheel: parts of Emscripten's system libraries,
among them musl (MIT, Copyright © 2005-2020 Rich Felker, et al.) and LLVM's compiler-rt
(Apache License 2.0 with LLVM exceptions).
Sources and licences: https://github.com/emscripten-core/emscripten

dist/edgewise-*.snapshot: the memory of a running Python, with parts of
- CPython, Copyright © 2001 Python Software Foundation. All Rights Reserved.
  (Python Software Foundation License 2.0): https://docs.python.org/3/license.html
- Pyodide (Mozilla Public License 2.0). Sources: https://github.com/pyodide/pyodide

The scripts: the following packages.
`;

/**
 * The licences of the packages that a bundle contains, by name.
 * @param inputs paths of the sources of the bundle
 */
export function licensesOf(inputs) {
  const names = inputs.map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  return [...new Set(names.filter(Boolean))].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, "LICENSE"), "utf8")}`;
  });
}

/**
 * Writes LICENSE and THIRD-PARTY-LICENSES.txt beside package.json.
 * @param inputs paths of the sources of the bundles, relative to the working directory
 */
export function writeLicenses(inputs) {
  const rule = `\n${"-".repeat(80)}\n\n`;
  const text = [PARTS, ...licensesOf(inputs)].join(rule);
  writeFileSync(join(here, "THIRD-PARTY-LICENSES.txt"), text);
  copyFileSync(join(here, "../LICENSE"), join(here, "LICENSE"));
}
