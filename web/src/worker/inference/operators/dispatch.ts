// Execution of nodes that are not part of a plan.

import { UnsupportedOp } from "../../../shared/errors.ts";
import type { NodeRun } from "../node.ts";
import type { NodeUnit } from "../program.ts";
import { type RunValue, retain } from "../values.ts";
import { HOST_OPERATORS } from "./index.ts";
import { moved } from "./strings.ts";

/**
 * Executes a node: by the model's function, the operator's implementation here, Python, moving
 * strings, or a plan of the node alone; the first that handles its inputs.
 */
export async function outputsOf(run: NodeRun): Promise<(RunValue | undefined)[]> {
  const { unit, inputs } = run;
  if (!unit.known) {
    if (!unit.function) unknownOperator(unit);
    const origin = { parent: run.program.name, node: unit.nodes[0], function: true };
    const program = await run.driver.library.program(JSON.stringify(origin), () => origin);
    const given = inputs.filter((v) => v !== undefined);
    const outs = await run.driver.call(
      program,
      new Map(program.inputs.map((name, i) => [name, retain(given[i]!)])),
      undefined,
    );
    return outs.map((v) => run.keep(v));
  }
  const operator = HOST_OPERATORS.get(unit.domain ? `${unit.domain}.${unit.op}` : unit.op);
  const outs = await operator?.(run);
  if (outs) return outs;
  if (!operator && unit.host) return run.python();
  if (inputs.some((v) => v && v.kind !== "tensor")) return moved(run);
  return run.plain(inputs);
}

/** @throws UnsupportedOp */
function unknownOperator(unit: NodeUnit): never {
  throw new UnsupportedOp(
    `the operator ${unit.domain ? `${unit.domain}.` : ""}${unit.op} (opset ${unit.opset}) ` +
      "is not supported",
    unit.where,
    "`edgewise inspect` lists what a model needs; another exporter, opset or optimization " +
      "level may avoid it.",
  );
}
