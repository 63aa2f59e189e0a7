// Sequences and optionals. Mirrors python/edgewise/compiler/ops/host/sequence.py and optional.py.

import type { HostOperator, NodeRun } from "../node.ts";
import { Nothing, type NumberTensor, type RunValue, type Sequence } from "../values.ts";

const MAX_PARTS = 1 << 12;
const CHECK = "Check what is fed; if it is right, export the model again.";

function sequence(n: NodeRun, i = 0): Sequence {
  const v = n.inputs[i];
  return v?.kind === "sequence"
    ? v
    : n.fail(`its input ${i} is ${String(v ?? "missing")}; a sequence is expected`, CHECK);
}

/** The index given by input i; `otherwise` if it is absent. */
async function position(
  n: NodeRun,
  i: number,
  length: number,
  otherwise: number | undefined,
  extra = 0,
): Promise<number> {
  const at = n.has(i) ? await n.number(i) : otherwise;
  if (at === undefined || !Number.isInteger(at) || !(at >= -length && at < length + extra))
    return n.fail(
      `its index ${String(at)} is out of range for a sequence of ${length} elements`,
      CHECK,
    );
  return at < 0 ? at + length : at;
}

/** Element type of a tensor; "" for other values. */
function typeOf(v: RunValue | undefined): string {
  return v && (v.kind === "tensor" || v.kind === "strings") ? v.type : "";
}

async function split(n: NodeRun): Promise<RunValue[]> {
  const x = n.input(0);
  if (x.kind === "strings") return n.unsupported("splitting a tensor of strings");
  const tensor = n.tensor(0);
  const axis = n.axis(n.int("axis", 0), tensor.rank);
  const length = tensor.dims[axis]!;
  let keep = n.int("keepdims", 1) !== 0;
  let sizes: number[] = Array.from({ length: n.has(1) ? 0 : length }, () => 1);
  if (n.has(1)) {
    keep = true;
    sizes = await n.numbers(1);
    if (n.tensor(1).rank === 0) {
      // equal parts; the last one may be smaller
      const size = sizes[0]!;
      if (!(size >= 1)) n.fail(`its split is ${size}; a positive number is expected`);
      sizes = Array.from({ length: Math.ceil(length / size) }, (_, i) =>
        Math.min(size, length - i * size),
      );
    }
  }
  if (
    sizes.reduce((a, b) => a + b, 0) !== length ||
    sizes.some((s) => s < 0) ||
    sizes.length > MAX_PARTS
  )
    n.fail(
      `its split [${sizes.join(", ").slice(0, 198)}] does not divide a dimension of ${length}`,
    );
  if (!sizes.length) return [n.sequence([])];
  const parts = await n.ops(
    "Split",
    [tensor, n.constant("int64", [sizes.length], sizes)],
    { axis },
    sizes.length,
  );
  return [
    n.sequence(
      keep
        ? parts
        : parts.map((v) =>
            n.reshaped(
              v,
              v.dims.filter((_, d) => d !== axis),
            ),
          ),
    ),
  ];
}

async function concat(n: NodeRun): Promise<RunValue[]> {
  const { items } = sequence(n);
  const first = items[0];
  if (!first) return n.fail("its sequence is empty", CHECK);
  const tensors = items.map(
    (v): NumberTensor => (v.kind === "tensor" ? v : n.unsupported(`a sequence of ${String(v)}`)),
  );
  const fresh = n.int("new_axis", 0) !== 0;
  const axis = n.axis(n.int("axis", 0), tensors[0]!.rank, fresh ? 1 : 0);
  const inputs = fresh
    ? tensors.map((v) => n.reshaped(v, [...v.dims.slice(0, axis), 1, ...v.dims.slice(axis)]))
    : tensors;
  return [await n.op("Concat", inputs, { axis })];
}

/**
 * Applies the body to each element of the first sequence, with the corresponding elements of other
 * sequences; tensors are passed to every call.
 */
async function map(n: NodeRun): Promise<RunValue[]> {
  const { outputs, call } = await n.body("body");
  const first = sequence(n);
  const others = n.inputs.slice(1).map((v) => v ?? n.fail("an input is missing"));
  if (others.some((v) => v.kind === "sequence" && v.length < first.length))
    n.fail(`a sequence has fewer elements than the first, ${first.length}`, CHECK);
  const out: RunValue[][] = outputs.map(() => []);
  for (const [i, x] of first.items.entries()) {
    await n.trip();
    const values = [x, ...others.map((v) => (v.kind === "sequence" ? v.at(i)! : v))];
    for (const v of values) v.refs++;
    (await call(values)).forEach((v, j) => out[j]?.push(n.keep(v)));
  }
  return out.map((items) => n.sequence(items));
}

export const SEQUENCES: Record<string, HostOperator> = {
  Identity: (n) => [...n.inputs],
  SequenceEmpty: (n) => [n.sequence([])],
  SequenceConstruct: (n) => {
    const { inputs } = n;
    if (!inputs.length || inputs.some((v) => v === undefined || typeOf(v) !== typeOf(inputs[0])))
      n.fail(
        `its inputs are ${inputs.map(String).join(", ") || "missing"}`,
        "They must be present and have one type; export the model again.",
      );
    return [n.sequence(inputs as RunValue[])];
  },
  SequenceAt: async (n) => {
    const s = sequence(n);
    return [s.at(await position(n, 1, s.length, undefined))];
  },
  SequenceLength: (n) => [n.constant("int64", [], [sequence(n).length])],
  SequenceInsert: async (n) => {
    const s = sequence(n);
    const x = n.input(1);
    if (s.length && typeOf(x) !== typeOf(s.at(0)))
      n.fail(`${String(x)} cannot be inserted into a sequence of ${String(s.at(0))}`, CHECK);
    const at = await position(n, 2, s.length, s.length, 1);
    if (at === s.length) return [n.keep(s.withLast(x))];
    n.copies(s.length);
    const { items } = s;
    return [n.sequence([...items.slice(0, at), x, ...items.slice(at)])];
  },
  SequenceErase: async (n) => {
    const s = sequence(n);
    n.copies(s.length);
    const { items } = s;
    const at = await position(n, 1, items.length, items.length - 1);
    return [n.sequence(items.filter((_, i) => i !== at))];
  },
  SplitToSequence: split,
  ConcatFromSequence: concat,
  SequenceMap: map,
  Optional: (n) => [n.inputs[0] ?? n.keep(new Nothing())],
  OptionalGetElement: (n) => [
    !n.has(0) || n.inputs[0]!.kind === "nothing"
      ? n.fail("the optional has no value", CHECK)
      : n.inputs[0],
  ],
  OptionalHasElement: (n) => [
    n.constant("bool", [], [n.has(0) && n.inputs[0]!.kind !== "nothing" ? 1 : 0]),
  ],
};
