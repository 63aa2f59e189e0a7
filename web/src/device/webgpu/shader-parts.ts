// Shaders that language models do not run: scripts of their own, loaded for the first plan with a
// kernel of theirs.

import type { KernelShaders } from "../../gen/shaders.ts";
import { PART_OF, SHADERS } from "../../gen/shaders.ts";

type Part = (typeof PART_OF)[string];
type Loaded = Promise<{ PART: Readonly<Record<string, KernelShaders>> }>;

const LOAD: Readonly<Record<Part, () => Loaded>> = {
  images: () => import("../../gen/shaders_images.ts"),
  training: () => import("../../gen/shaders_training.ts"),
};

/** Parts with shaders of these kernels that have not been loaded. */
export function missingParts(kernels: Iterable<string>): Part[] {
  const parts = new Set<Part>();
  for (const kernel of kernels) {
    const part = PART_OF[kernel];
    if (part && !SHADERS[kernel]) parts.add(part);
  }
  return [...parts];
}

/**
 * Loads parts.
 * @throws EngineError if a script does not come
 */
export async function loadParts(parts: readonly Part[]): Promise<void> {
  for (const { PART } of await Promise.all(parts.map((part) => LOAD[part]())))
    Object.assign(SHADERS, PART);
}
