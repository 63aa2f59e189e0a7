// The library's own files, inside of this one: scripts as text, the engine compressed. pack.mjs
// puts it in the place of assets.ts.

import { compiler, engine, worker } from "edgewise:packed";
import type { EngineFiles } from "../protocol/loading.ts";
import type { PythonPlace } from "./assets.ts";

declare const __WHEEL__: string;
declare const __CDN__: string;
declare const __PYODIDE__: string;

/** Stands for a script that is inside of this file. */
const SCHEME = "edgewise-inline:";

/** As in assets.ts. */
export const assets = {
  workerUrl: `${SCHEME}worker`,
  compilerUrl: `${SCHEME}compiler`,
  inlineUrl: `${SCHEME}worker`, // exports the session without a worker, too
  engineUrl: SCHEME as string | EngineFiles,
};

/** As in assets.ts. */
export const pythonPlaces: PythonPlace[] = [
  { pyodideUrl: __PYODIDE__, wheelUrl: __CDN__ + __WHEEL__ },
];

const scripts: Record<string, string> = { worker, compiler };
const made = new Map<string, unknown>();

function once<T>(name: string, make: () => T): T {
  if (!made.has(name)) made.set(name, make());
  return made.get(name) as T;
}

/** Makes what a name of `assets` stands for, once. */
export function resolve<T>(value: T): T {
  if (typeof value !== "string" || !value.startsWith(SCHEME)) return value;
  const name = value.slice(SCHEME.length);
  return once(name, () => (name ? scriptUrl(scripts[name]!) : engineFiles())) as T;
}

function scriptUrl(text: string): string {
  return URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
}

function engineFiles(): EngineFiles {
  const files: EngineFiles = {};
  for (const [name, packed] of Object.entries(engine)) {
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    files[name] = new Blob([bytes], { type: "application/wasm+deflate" });
  }
  for (const name of ["simd128", "relaxed-threads"])
    files[`${name}-full`] = `${__CDN__}engine/edgewise-${name}-full.wasm`;
  return files;
}
