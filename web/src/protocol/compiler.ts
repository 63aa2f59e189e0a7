// Messages between a worker and its compiler (Python in a worker of its own).

import type { PlainError } from "./errors.ts";

/** First the addresses, and Python starts; then any number of compilations. */
export type ToCompiler =
  | {
      pyodideUrl: string;
      wheelUrl: string;
      snapshotUrl: string;
      life: string;
      stallTimeout: number;
    }
  | { files: [name: string, blob: Blob][]; options: Record<string, unknown> };
/** What Python made: a manifest (JSON) and files by name. */
export interface Compiled {
  manifest: string;
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /**
   * The ranges that have been read so far of each file of the model, also of those given to an
   * earlier compilation that this one went on with.
   */
  reads: Record<string, [number, number][]>;
  /** Milliseconds: starting Python, and compiling. */
  ms: { pyodide: number; compile: number };
}
/**
 * What it posts: a sign of progress of the start, the lock that it holds (lives.ts), that Python
 * has started, and how a compilation ended.
 */
export type FromCompiler =
  | { alive: true }
  | { life: string }
  | { started: true }
  | { compiled: Compiled }
  | { error: PlainError; missing: string | undefined };
