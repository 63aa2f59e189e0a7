// Operators that a session executes between plans, by "domain.name" or name.
// python/edgewise/compiler/ops has the same operators (`@op.host`); those that are not here are
// executed by Python.

import type { HostOperator } from "../node.ts";
import { CONTROL } from "./control.ts";
import { LABELS } from "./labels.ts";
import { SELECTION } from "./selection.ts";
import { SEQUENCES } from "./sequences.ts";
import { STRINGS } from "./strings.ts";

/** Implementations by operator. */
export const HOST_OPERATORS: ReadonlyMap<string, HostOperator> = new Map(
  Object.entries({ ...CONTROL, ...SEQUENCES, ...SELECTION, ...STRINGS, ...LABELS }),
);
