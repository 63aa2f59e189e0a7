// Programs whose reductions use subgroups, where the GPU has them.

import { COMMON, SUBGROUPS } from "../../gen/shaders.ts";
import { in_subgroups, parts_of } from "../../logic/gpu/variants.ts";

/** A program with the reductions of subgroups; the same text where it has none. */
export function inSubgroups(text: string): string {
  return in_subgroups(text, parts_of(COMMON), parts_of(SUBGROUPS));
}
