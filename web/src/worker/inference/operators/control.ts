// If, Loop, Scan. Mirrors python/edgewise/compiler/ops/host/control_flow.py.

import type { HostOperator, NodeRun } from "../node.ts";
import type { Subgraph } from "../program.ts";
import { elements, NumberTensor, type RunValue, release, retain, StringTensor } from "../values.ts";

type Declared = Subgraph["outputs"][number];

async function branch(n: NodeRun): Promise<RunValue[]> {
  const { call } = await n.body((await n.number(0)) ? "then_branch" : "else_branch");
  return (await call([])).map((v) => n.keep(v));
}

/**
 * Stacks the slices of a loop's output. Without iterations: an empty tensor of the declared type
 * and shape (unknown sizes are 0).
 */
function stacked(
  n: NodeRun,
  values: readonly RunValue[],
  { dtype, shape }: Declared,
): NumberTensor | StringTensor {
  if (values.length) {
    const wrong = values.find((v) => v.kind !== "tensor" && v.kind !== "strings");
    if (wrong) n.fail(`${String(wrong)} cannot be a slice of a tensor`, "Export the model again.");
    return n.stack(values);
  }
  const dims = [0, ...(shape ?? []).map((d) => Math.max(d, 0))];
  return n.keep(
    dtype === "string"
      ? new StringTensor(dims, [])
      : new NumberTensor(dtype || "float32", dims, new Uint8Array(0)),
  );
}

async function loop(n: NodeRun): Promise<RunValue[]> {
  const { outputs, call } = await n.body("body");
  const trips = n.has(0) ? await n.number(0) : Infinity;
  let goes = n.has(1) ? (await n.number(1)) !== 0 : true;
  let carried = n.inputs.slice(2) as RunValue[];
  if (outputs.length < 1 + carried.length || carried.some((v) => v === undefined))
    n.fail(
      `its body returns ${outputs.length} values for ${carried.length} loop-carried values`,
      "Export the model again.",
    );
  for (const v of carried) retain(v); // the loop holds one reference of each carried value
  const collected: RunValue[][] = outputs.slice(1 + carried.length).map(() => []);
  for (let i = 0; i < trips && goes; i++) {
    await n.trip();
    const [condition, ...outs] = await call([
      NumberTensor.of("int64", [], [i]),
      NumberTensor.of("bool", [], [1]),
      ...carried,
    ]);
    if (condition?.kind !== "tensor" || condition.count !== 1)
      n.fail(`its body's condition is ${String(condition)}`, "Export the model again.");
    goes = (await condition.numbers(n.device))[0] !== 0;
    release(condition);
    carried = outs.slice(0, carried.length);
    outs.slice(carried.length).forEach((v, j) => collected[j]!.push(v));
  }
  for (const v of carried) n.keep(v);
  const made = collected.map((values, j) => stacked(n, values, outputs[1 + carried.length + j]!));
  for (const values of collected) for (const v of values) release(v);
  return [...carried, ...made];
}

function list(n: NodeRun, name: string, count: number): number[] {
  const values = n.ints(name) ?? Array.from({ length: count }, () => 0);
  if (values.length !== count)
    n.fail(
      `its attribute '${name}' is ${values.join(", ")}, for ${count} tensors`,
      "Export the model again.",
    );
  return values;
}

interface Body {
  outputs: readonly Declared[];
  call(values: RunValue[]): Promise<RunValue[]>;
}

/**
 * Scan without a batch dimension: state variables, then tensors that are sliced along an axis. The
 * body maps states and slices to states and slices.
 */
async function scanned(
  n: NodeRun,
  { outputs, call }: Body,
  inputs: readonly (RunValue | undefined)[],
  count: number,
  length?: number,
): Promise<RunValue[]> {
  if (!(count > 0 && count <= inputs.length) || inputs.some((v) => v === undefined))
    n.fail(`its num_scan_inputs is ${count}, but it has ${inputs.length} inputs`);
  let states = inputs.slice(0, -count) as RunValue[];
  const tensors = (inputs.slice(-count) as RunValue[]).map((v) =>
    v.kind === "tensor" ? v : n.fail(`it scans ${String(v)}; a tensor of numbers is expected`),
  );
  const outs = outputs.length - states.length;
  if (outs < 0)
    n.fail(
      `its body returns ${outputs.length} values for ${states.length} states`,
      "Export the model again.",
    );
  const { rows, size } = await scannedRows(n, tensors, length);
  const steps = rows[0]!.length;
  for (const v of states) retain(v);
  const collected: RunValue[][] = Array.from({ length: outs }, () => []);
  for (let i = 0; i < steps; i++) {
    await n.trip();
    const got = await call([...states, ...rows.map((r) => retain(r[i]!))]);
    states = got.slice(0, states.length);
    for (const [j, v] of got.slice(states.length).entries()) collected[j]!.push(v);
  }
  for (const v of states) n.keep(v);
  const declared = outputs.slice(states.length);
  return [...states, ...(await scanOutputs(n, collected, declared, size))];
}

/**
 * The slices of scanned tensors in order of iteration, at most `length` of each.
 * @returns `size`: the number of slices of a whole tensor
 */
async function scannedRows(
  n: NodeRun,
  tensors: readonly NumberTensor[],
  length: number | undefined,
): Promise<{ rows: NumberTensor[][]; size: number }> {
  const count = tensors.length;
  const axes = list(n, "scan_input_axes", count).map((a, i) => n.axis(a, tensors[i]!.rank));
  const back = list(n, n.unit.opset < 9 ? "directions" : "scan_input_directions", count);
  const size = tensors[0]!.dims[axes[0]!]!;
  if (tensors.some((v, i) => v.dims[axes[i]!] !== size))
    n.fail(
      `it scans ${tensors.join(", ")} along axes ${axes.join(", ")}, which have different lengths`,
    );
  const steps = length ?? size;
  if (!(steps >= 0 && steps <= size))
    n.fail(`its sequence length is ${steps}; 0 to ${size} is expected`);
  const rows: NumberTensor[][] = [];
  for (const [i, tensor] of tensors.entries()) {
    const a = axes[i]!;
    const v = a
      ? await n.op("Transpose", [tensor], {
          perm: [a, ...tensor.dims.keys()].filter((d, j) => !j || d !== a),
        })
      : tensor;
    if (!v.data) n.driver.place(v); // the slices share its memory
    const slices = v.rows(n.unit.where).slice(0, steps);
    for (const s of slices) n.keep(s);
    rows.push(back[i] ? slices.reverse() : slices);
  }
  return { rows, size };
}

/** Stacks the collected slices of each scan output, and moves the axis where it belongs. */
async function scanOutputs(
  n: NodeRun,
  collected: readonly RunValue[][],
  declared: readonly Declared[],
  size: number,
): Promise<RunValue[]> {
  const axes = list(n, "scan_output_axes", collected.length);
  const back = list(n, "scan_output_directions", collected.length);
  const result: RunValue[] = [];
  for (const [j, values] of collected.entries()) {
    const first = values[0];
    const all = [...values];
    // a shorter sequence is padded with zeros
    if (first?.kind === "tensor" && values.length < size) {
      const zeros = n.keep(new NumberTensor(first.type, first.dims, new Uint8Array(first.bytes)));
      for (let i = values.length; i < size; i++) all.push(zeros);
    }
    const y = stacked(n, back[j] ? all.reverse() : all, declared[j]!);
    for (const v of values) release(v);
    const axis = n.axis(axes[j]!, y.rank);
    const perm = Array.from({ length: y.rank }, (_, d) => (d < axis ? d + 1 : d === axis ? 0 : d));
    result.push(axis && elements(y.dims) ? await n.op("Transpose", [y], { perm }) : y);
  }
  return result;
}

async function scan(n: NodeRun): Promise<RunValue[]> {
  const count = n.int("num_scan_inputs", 0);
  const body = await n.body("body");
  if (n.unit.opset >= 9) return scanned(n, body, n.inputs, count);
  // Opset 8: all inputs have a leading batch dimension, and sequences of a batch may differ in
  // length.
  const inputs = n.inputs
    .slice(1)
    .map((v) =>
      v?.kind === "tensor" && v.rank
        ? v
        : n.fail("its inputs are not tensors with a batch dimension"),
    );
  const batch = inputs[0]?.dims[0] ?? 0;
  const lengths = n.has(0) ? await n.numbers(0) : undefined;
  if (
    !batch ||
    inputs.some((v) => v.dims[0] !== batch) ||
    (lengths && lengths.length !== batch) ||
    !(count > 0 && count <= inputs.length)
  )
    n.fail(`its inputs ${inputs.join(", ")} have different batch sizes`);
  const columns = inputs.map((v) => {
    if (!v.data) n.driver.place(v);
    return v.rows(n.unit.where).map((r) => n.keep(r));
  });
  const each: RunValue[][] = [];
  for (let i = 0; i < batch; i++)
    each.push(
      await scanned(
        n,
        body,
        columns.map((c) => c[i]!),
        count,
        lengths?.[i],
      ),
    );
  return each[0]!.map((_, j) => n.stack(each.map((values) => values[j]!)));
}

export const CONTROL: Record<string, HostOperator> = {
  If: branch,
  Loop: loop,
  Scan: scan,
  Constant: (n) => n.fail("its value cannot be read", "Export the model again."),
};
