// Operators that a session runs itself, between plans, by "domain.name" or name:
// python/edgewise/ops has the same (`@op.host`). What is not here and not compiled, Python runs.

import type { HostOperator } from "../node.ts";
import { CONTROL } from "./control.ts";
import { LABELS } from "./labels.ts";
import { SELECTION } from "./selection.ts";
import { SEQUENCES } from "./sequences.ts";
import { STRINGS } from "./strings.ts";

/** A function for each. */
export const HOST_OPERATORS: ReadonlyMap<string, HostOperator> = new Map(
  Object.entries({ ...CONTROL, ...SEQUENCES, ...SELECTION, ...STRINGS, ...LABELS }),
);
