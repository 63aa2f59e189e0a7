// Where the files that belong to the library are, given the address of its script.

import type { PythonFile, PythonFiles } from "../protocol/compiler.ts";
import { InputError } from "../shared/errors.ts";
import type { OwnFile } from "../shared/files/own.ts";
import { VERSION } from "../shared/version.ts";
import { baseUrl } from "./realm.ts";

declare const __WHEEL__: string;

/** Paths of Python's files in the folder `dist/` of the package edgewise-compiler. */
export const PYTHON: PythonFiles = {
  loader: "pyodide/pyodide.mjs",
  module: "pyodide/pyodide.asm.mjs",
  wasm: "pyodide/pyodide.asm.wasm",
  library: "pyodide/python_stdlib.zip",
  wheel: __WHEEL__,
  snapshot: __WHEEL__.replace(/whl$/, "snapshot"),
};

/**
 * What `import "edgewise-compiler"` leaves in `globalThis`, since it knows no build of the library:
 * its version, and literal addresses of its files, which a bundler has copied.
 */
interface Installed {
  version: string;
  files: Record<PythonFile, () => string>;
}
const INSTALLED = Symbol.for("edgewise.compiler");

/** The package of what compiles models in a page. */
const COMPILER = "edgewise-compiler";

/** The start of an address on a CDN that serves every package of npm. */
const CDN = /^https:\/\/(?:[a-z]+\.jsdelivr\.net\/npm|unpkg\.com)\/(?=edgewise(?:[@/?#]|$))/;

/** The CDN that is asked for files that a page does not serve. */
const NPM = "https://cdn.jsdelivr.net/npm/";

const onCdn = (cdn: string, name: string, of = "edgewise"): string =>
  `${cdn}${of}@${VERSION}/dist/${name}`;

/** The CDN of npm that a script comes from, with a slash at its end. */
const cdnOf = (own: string): string | undefined => CDN.exec(own)?.[0];

/**
 * The address of a file of `dist/`. From a CDN of npm it names this version, because the script's
 * own address can be that of the package (`/npm/edgewise`) or of a range of versions (`@0.1`).
 *
 * @param own address of the library's script
 * @returns undefined where the script has no address that a page can load from: webpack gives it a
 *   `file:` address
 */
export function ownFile(name: string, own = ""): string | undefined {
  const cdn = cdnOf(own);
  if (cdn) return onCdn(cdn, name);
  return /^(https?|[a-z]+-extension):/.test(own) ? new URL(name, own).href : undefined;
}

/**
 * A file beside the script: where a bundler has put it, or beside the script's address; and the
 * same file in this version of Edgewise's package on a CDN of npm, for bundlers that leave it
 * behind: `loadOwn` asks for that where nothing is beside the script. Extensions take no files
 * from elsewhere.
 *
 * @param integrity its hash, as in `<script integrity>`
 * @param literal gives the address that a bundler knows
 */
export function besideOwn(
  name: string,
  own: string | undefined,
  integrity: string,
  literal?: () => string,
): OwnFile {
  const url = cdnOf(own ?? "") ? undefined : bundled(literal);
  const file = { name, url: url ?? ownFile(name, own) ?? "" };
  const elsewhere = !cdnOf(file.url) && !/^[a-z]+-extension:/.test(file.url);
  return elsewhere ? { ...file, other: { url: onCdn(NPM, name), integrity } } : file;
}

/** undefined: the bundler gives none that a page can load from. */
function bundled(literal?: () => string): string | undefined {
  if (!literal) return undefined;
  try {
    const url = new URL(literal(), baseUrl()).href; // Next.js gives paths
    return /^(https?|data|[a-z]+-extension):/.test(url) ? url : undefined;
  } catch {
    return undefined; // bundles that are classic scripts have no import.meta.url
  }
}

const each = (address: (file: PythonFile) => string): PythonFiles =>
  Object.fromEntries(
    (Object.keys(PYTHON) as PythonFile[]).map((file) => [file, address(file)]),
  ) as PythonFiles;

/**
 * Python's files: beside the script, or in the package edgewise-compiler on the CDN of npm that the
 * script comes from. Empty where the script has no address that a page can load from.
 */
export function pythonFiles(own = ""): PythonFiles {
  const cdn = cdnOf(own);
  return each((file) =>
    cdn ? onCdn(cdn, PYTHON[file], COMPILER) : (ownFile(PYTHON[file], own) ?? ""),
  );
}

/** The same on the CDN that is asked for files that a page does not serve. */
export const cdnPython = (): PythonFiles => each((file) => onCdn(NPM, PYTHON[file], COMPILER));

/**
 * Python's files, of `import "edgewise-compiler"`.
 * @returns undefined if the page has not imported it, or its bundler copies no files
 * @throws InputError if that is of another version
 */
export function installedPython(): PythonFiles | undefined {
  const found = (globalThis as { [INSTALLED]?: Installed })[INSTALLED];
  if (!found) return undefined;
  if (found.version !== VERSION)
    throw new InputError(
      `its version is ${found.version}, that of edgewise ${VERSION}`,
      COMPILER,
      `Install both in one version: npm install edgewise@${VERSION} ${COMPILER}@${VERSION}.`,
    );
  const files = each((file) => bundled(found.files[file]) ?? "");
  return Object.values(files).every(Boolean) ? files : undefined;
}
