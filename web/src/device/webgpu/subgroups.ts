// Programs whose reductions use subgroups, where the GPU has them. The twin of
// python/edgewise/compiler/gpu/subgroups.py.

import { COMMON, SUBGROUPS } from "../../gen/shaders.ts";
import { partsOf } from "./variants.ts";

const LANE = "@builtin(local_invocation_index) lane: u32";
const BUILT_IN =
  `${LANE}, @builtin(subgroup_id) subgroup_: u32, @builtin(num_subgroups) subgroups_: u32)` +
  " { subgroup = subgroup_; subgroups = subgroups_; ";

/** A program with the reductions of subgroups; the same text where it has none. */
export function inSubgroups(text: string): string {
  const common = partsOf(COMMON);
  let found = text;
  let own = "";
  for (const [name, form] of partsOf(SUBGROUPS)) {
    if (form.startsWith("var<private>")) own += `${form}\n`;
    else if (common.has(name)) found = found.replace(common.get(name)!, () => form);
  }
  return found === text
    ? text
    : `enable subgroups;\n${own}${found.replace(`${LANE}) { `, BUILT_IN)}`;
}
