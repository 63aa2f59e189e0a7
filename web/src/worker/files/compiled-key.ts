// The key of a compiled package in the browser's storage.

import { COMPILER } from "../../shared/version.ts";

/**
 * The key of a compiled package: the compiler, the engine's kernel table, and `what`: the model and
 * the compilation options.
 */
export function compiledKey(tableHash: number, what: Record<string, unknown>): string {
  return JSON.stringify({ compiler: COMPILER, table: tableHash, ...what });
}
