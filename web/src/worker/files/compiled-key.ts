// The key of a compiled package in the browser's storage.

import { sha256 } from "../../shared/sha256.ts";
import { COMPILER } from "../../shared/version.ts";

/**
 * The key of a compiled package: the compiler, the engine's kernel table, and `what`: the model and
 * the compilation options.
 * @param model `ModelAddress.key`, for a model at an address
 */
export function compiledKey(tableHash: number, what: Record<string, unknown>, model = ""): string {
  return model + JSON.stringify({ compiler: COMPILER, table: tableHash, ...what });
}

/** The file of a compiled package: its name begins with the key of the model, if it has one. */
export function compiledFile(key: string): string {
  const [model] = key.split("{", 1);
  return `${model && `${model}-`}${sha256(key)}.edge`;
}
