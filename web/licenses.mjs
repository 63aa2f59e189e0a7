// The licences in the npm package: the library's own, and those of what its files contain.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { here, out } from "./bundle.mjs";

const BEGIN = `Edgewise is licensed under the Apache License 2.0, see LICENSE. Its files contain
parts of others:
`;

const ENGINES = `parts of Emscripten's system libraries,
among them musl (MIT, Copyright © 2005-2020 Rich Felker, et al.) and LLVM's compiler-rt
(Apache License 2.0 with LLVM exceptions).
Sources and licences: https://github.com/emscripten-core/emscripten
`;

const PARTS = `${BEGIN}
dist/engine/*.wasm and the one-file builds: ${ENGINES}
The scripts: the following packages.
`;

const COMPILER = `${BEGIN}
dist/pyodide, and dist/edgewise-*.snapshot, the memory of a running Python:
- Pyodide (Mozilla Public License 2.0). Sources: https://github.com/pyodide/pyodide
- CPython, Copyright © 2001 Python Software Foundation. All Rights Reserved.
  (Python Software Foundation License 2.0), and the libraries that it contains:
  https://docs.python.org/3/license.html

The wheel, and dist/pyodide/pyodide.asm.wasm: ${ENGINES}
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

const RULE = `\n${"-".repeat(80)}\n\n`;

/**
 * Writes LICENSE and THIRD-PARTY-LICENSES.txt beside each package.json.
 * @param inputs paths of the sources of the bundles, relative to the working directory
 */
export function writeLicenses(inputs) {
  const text = [PARTS, ...licensesOf(inputs)].join(RULE);
  writeFileSync(join(here, "THIRD-PARTY-LICENSES.txt"), text);
  // the wheel has the text library's packages
  const library = readFileSync(join(out, "python/text-library.LICENSES.txt"), "utf8");
  const compiler = [COMPILER, library].join(RULE);
  writeFileSync(join(here, "compiler/THIRD-PARTY-LICENSES.txt"), compiler);
  for (const folder of [here, join(here, "compiler"), join(here, "create")])
    copyFileSync(join(here, "../LICENSE"), join(folder, "LICENSE"));
}
