// The key of a compiled package in the browser's storage.

import { COMPILER } from "../../shared/version.ts";

/**
 * What decides about a compiled package: this compiler, the engine's table of kernels, and `what`:
 * the model and how it was to be compiled.
 */
export function compiledKey(tableHash: number, what: Record<string, unknown>): string {
  return JSON.stringify({ compiler: COMPILER, table: tableHash, ...what });
}
