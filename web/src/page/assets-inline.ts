// The library's own files, inside of this one: scripts as text, the engine compressed. pack.mjs
// puts it in the place of assets.ts.

import { beside, compiler, engines, worker } from "edgewise:packed";
import type { PythonUrls } from "../protocol/compiler.ts";
import type { EngineFiles } from "../protocol/loading.ts";
import type { OwnFile } from "../shared/files/own.ts";
import { besideOwn, cdnPython, pythonFiles } from "./own-files.ts";

/** Stands for a script that is inside of this file. */
const SCHEME = "edgewise-inline:";

/** As in assets.ts. */
export const assets = {
  workerUrl: `${SCHEME}worker`,
  compilerUrl: `${SCHEME}worker`,
  inlineUrl: `${SCHEME}worker`, // exports the session without a worker, too
  engineUrl: SCHEME as string | EngineFiles,
};

/** The address of this file, as a module or as a classic script; a bundle's is as good. */
const own = import.meta.url ?? (globalThis.document?.currentScript as HTMLScriptElement)?.src;

/**
 * As in assets.ts, but of the files beside this one, which few pages need: parts of the worker, and
 * engines with all kernels. The worker contains the other parts.
 */
export const parts: Record<string, OwnFile> = Object.fromEntries(
  Object.entries(beside).map(([path, [integrity, url]]) => [
    path.replace(/^.*edgewise-|\.\w+$/g, ""),
    besideOwn(path, own, integrity, url),
  ]),
);

/** As in assets.ts. */
export const python: PythonUrls = {
  files: pythonFiles(own),
  other: { files: cdnPython(), integrity: compiler },
};

const made = new Map<string, unknown>();

function once<T>(name: string, make: () => T): T {
  if (!made.has(name)) made.set(name, make());
  return made.get(name) as T;
}

/** Makes what a name of `assets` stands for, once. */
export function resolve<T>(value: T): T {
  if (typeof value !== "string" || !value.startsWith(SCHEME)) return value;
  const name = value.slice(SCHEME.length);
  return once(name, () => (name ? scriptUrl(worker) : engineFiles())) as T;
}

function scriptUrl(text: string): string {
  return URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
}

function engineFiles(): EngineFiles {
  const files: EngineFiles = {};
  const { builds, sizes, pieces, deflated } = engines;
  const packed = new Blob([Uint8Array.from(atob(deflated), (c) => c.charCodeAt(0))]);
  builds.forEach((name, index) => {
    files[name] = { packed, sizes, pieces, index };
    files[`${name}-full`] = parts[`${name}-full`]!;
  });
  files["relaxed-threads-64"] = parts["relaxed-threads-64"]!;
  return files;
}
