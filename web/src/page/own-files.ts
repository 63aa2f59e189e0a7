// Where the files that belong to the library are, given the address of its script.

import { PYODIDE, VERSION } from "../shared/version.ts";

declare const __WHEEL__: string;

/** Python's files, for pages that compile models: Pyodide's folder, and the wheel. */
export interface PythonFiles {
  pyodideUrl: string | undefined;
  wheelUrl: string | undefined;
}

/** The start of an address on a CDN that serves every package of npm. */
const CDN = /^https:\/\/(?:[a-z]+\.jsdelivr\.net\/npm|unpkg\.com)\/(?=edgewise(?:[@/?#]|$))/;

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
  if (cdn) return `${cdn}edgewise@${VERSION}/dist/${name}`;
  return /^(https?|[a-z]+-extension):/.test(own) ? new URL(name, own).href : undefined;
}

/** Python's files: beside the script, or Pyodide's own package on a CDN of npm. */
export function pythonFiles(own = ""): PythonFiles {
  const cdn = cdnOf(own);
  return {
    pyodideUrl: cdn ? `${cdn}pyodide@${PYODIDE}/` : ownFile("pyodide/", own),
    wheelUrl: ownFile(__WHEEL__, own),
  };
}
