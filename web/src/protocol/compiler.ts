// Messages between a worker and its compiler (Python in a worker of its own).

import type { WithBuffers } from "../shared/spawn.ts";
import type { PlainError } from "./errors.ts";

/**
 * The files of Python by their names in `dist/` (own-files.ts): Pyodide's scripts, its WebAssembly
 * and standard library, Edgewise's wheel, and the snapshot of both.
 */
export type PythonFile = "loader" | "module" | "wasm" | "library" | "wheel" | "snapshot";

/** Addresses of Python's files; empty where they are not known. */
export type PythonFiles = Record<PythonFile, string>;

/** Where Python's files are. */
export interface PythonUrls {
  /** Where the page serves them. */
  files: PythonFiles;
  /** The same files elsewhere, if the page does not serve them, and their hashes. */
  other?: { files: PythonFiles; integrity: PythonFiles } | undefined;
}

/** The first message has the addresses and starts Python; any number of compilations follow. */
export type ToCompiler =
  | { python: PythonUrls; life: string; stallTimeout: number }
  | { files: [name: string, blob: Blob][]; options: Record<string, unknown> };
/** Result of a compilation: a manifest (JSON) and files by name. */
export interface Compiled {
  manifest: string;
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /**
   * Ranges read so far of each of the model's files, including those of an earlier compilation that
   * this one continued.
   */
  reads: Record<string, [number, number][]>;
  /** Duration in milliseconds of starting Python, and of compiling. */
  ms: { pyodide: number; compile: number };
}
/**
 * Messages of the compiler: progress of the start, the lock that it holds (lives.ts), completion of
 * the start, and the result of a compilation. `missing`: names of a file, of which one is enough.
 */
export type FromCompiler =
  | { alive: true }
  | { life: string }
  | { started: true }
  | ({ compiled: Compiled } & WithBuffers)
  | { error: PlainError; missing: string[] | undefined };
