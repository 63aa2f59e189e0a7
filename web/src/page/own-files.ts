// Where the files that belong to the library are, given the address of its script.

import type { OwnFile } from "../shared/files/own.ts";
import { PYODIDE, VERSION } from "../shared/version.ts";
import { baseUrl } from "./realm.ts";

declare const __WHEEL__: string;

/** Python's files, for pages that compile models: Pyodide's folder, and the wheel. */
export interface PythonFiles {
  pyodideUrl: string | undefined;
  wheelUrl: string | undefined;
}

/** The start of an address on a CDN that serves every package of npm. */
const CDN = /^https:\/\/(?:[a-z]+\.jsdelivr\.net\/npm|unpkg\.com)\/(?=edgewise(?:[@/?#]|$))/;

/** The CDN that is asked for files that a page does not serve. */
const NPM = "https://cdn.jsdelivr.net/npm/";

const onCdn = (cdn: string, name: string): string => `${cdn}edgewise@${VERSION}/dist/${name}`;

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

/** Python's files: beside the script, or Pyodide's own package on a CDN of npm. */
export function pythonFiles(own = ""): PythonFiles {
  const cdn = cdnOf(own);
  return {
    pyodideUrl: cdn ? `${cdn}pyodide@${PYODIDE}/` : ownFile("pyodide/", own),
    wheelUrl: ownFile(__WHEEL__, own),
  };
}
