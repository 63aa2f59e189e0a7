// Operators with data-dependent output sizes. Mirrors
// python/edgewise/compiler/ops/host/data_dependent.py. A kernel writes to a buffer for the longest
// possible result and counts; the used part is returned.

import type { HostOperator, NodeRun } from "../node.ts";
import { elements, NumberTensor, type RunValue, StringTensor } from "../values.ts";

const MAX = 2 ** 28; // maximum number of elements of such a buffer

function empty(n: NodeRun, dims: number[]): NumberTensor {
  return n.keep(new NumberTensor("int64", dims, new Uint8Array(0)));
}

async function nonZero(n: NodeRun): Promise<RunValue[]> {
  const x = n.tensor(0);
  if (x.rank > 6 || x.rank * x.count > MAX) n.unsupported(`NonZero of ${String(x)}`);
  if (!x.rank) return [empty(n, [0, (await n.number(0)) ? 1 : 0])];
  if (!x.count) return [empty(n, [x.rank, 0])];
  const [y, count] = await n.ops("NonZero", [x], {}, 2, "edgewise");
  return [n.front(y!, [x.rank, (await count!.numbers(n.device))[0]!])];
}

async function compress(n: NodeRun): Promise<RunValue[] | undefined> {
  if (n.inputs[0]?.kind === "strings") return undefined;
  const given = n.tensor(0);
  let c = n.tensor(1);
  if (c.type !== "bool" || c.rank !== 1)
    n.fail(`its condition is ${String(c)}; a list of bools is expected`);
  const flat = n.attribute("axis") === undefined;
  const x = flat ? n.reshaped(given, [given.count]) : given;
  const axis = flat ? 0 : n.axis(n.int("axis", 0), x.rank);
  if (c.count > x.dims[axis]!) c = n.front(c, [x.dims[axis]!]);
  let places = empty(n, [0]);
  if (c.count) {
    const [y, count] = await n.ops("NonZero", [c], {}, 2, "edgewise");
    places = n.front(y!, [(await count!.numbers(n.device))[0]!]);
  }
  return [await n.op("Gather", [x, places], { axis })];
}

async function unique(n: NodeRun): Promise<RunValue[]> {
  const given = n.input(0);
  let words: string[] | undefined;
  let x: NumberTensor;
  if (given.kind === "strings") {
    words = [...new Set(given.strings)].sort(byCodePoint);
    const place = new Map(words.map((w, i) => [w, i]));
    x = n.constant(
      "int64",
      given.dims,
      given.strings.map((s) => place.get(s)!),
    );
  } else x = n.tensor(0);
  const flat = n.attribute("axis") === undefined;
  if (flat) x = n.reshaped(x, [x.count]);
  const axis = flat ? 0 : n.axis(n.int("axis", 0), x.rank);
  const size = x.dims[axis]!;
  const cols = elements(x.dims.filter((_, i) => i !== axis));
  if (!size || !cols) {
    if (size) n.unsupported(`${size} rows without elements`);
    return [
      words ? n.keep(new StringTensor(x.dims, [])) : x,
      ...[0, 0, 0].map(() => empty(n, [0])),
    ];
  }
  const rows = axis
    ? await n.op("Transpose", [x], {
        perm: [axis, ...x.dims.keys()].filter((d, j) => !j || d !== axis),
      })
    : x;
  const [first, inverse, counts, count] = await n.ops(
    "Unique",
    [n.reshaped(rows, [size, cols])],
    { sorted: n.int("sorted", 1) },
    4,
    "edgewise",
  );
  const found = (await count!.numbers(n.device))[0]!;
  const firsts = n.front(first!, [found]);
  const y = await n.op("Gather", [x, firsts], { axis });
  const places = words && (await y.numbers(n.device));
  return [
    places
      ? n.keep(
          new StringTensor(
            y.dims,
            places.map((i) => words![i]!),
          ),
        )
      : y,
    firsts,
    inverse!,
    n.front(counts!, [found]),
  ];
}

/** Compares by code points, as Python sorts. */
export function byCodePoint(a: string, b: string): number {
  const [x, y] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < Math.min(x.length, y.length); i++)
    if (x[i] !== y[i]) return x[i]!.codePointAt(0)! - y[i]!.codePointAt(0)!;
  return x.length - y.length;
}

async function suppression(n: NodeRun): Promise<RunValue[]> {
  const [boxes, scores] = [n.tensor(0), n.tensor(1)];
  for (const v of [boxes, scores])
    if (v.type !== "float32") n.unsupported(`its input is ${String(v)}; only float32 is supported`);
  if (
    boxes.rank !== 3 ||
    scores.rank !== 3 ||
    boxes.dims[2] !== 4 ||
    boxes.dims[0] !== scores.dims[0] ||
    boxes.dims[1] !== scores.dims[2]
  )
    n.fail(`its boxes ${String(boxes)} and scores ${String(scores)} are incompatible`);
  const [wanted, iou, score] = (await Promise.all(
    [2, 3, 4].map((i) => (n.has(i) ? n.number(i) : 0)),
  )) as [number, number, number];
  if (!(iou >= 0 && iou <= 1)) n.fail(`its iou_threshold is ${iou}; 0 to 1 is expected`);
  const most = Math.min(Math.max(wanted, 0), boxes.dims[1]!);
  if (!most || !scores.count) return [empty(n, [0, 3])];
  if (scores.dims[0]! * scores.dims[1]! * most * 3 > MAX)
    n.unsupported(`up to ${most} boxes for each of ${String(scores)}`);
  const attrs = { most, center: n.int("center_point_box", 0), limited: n.has(4) ? 1 : 0 };
  const [selected, count] = await n.ops(
    "NonMaxSuppression",
    [boxes, scores],
    { ...attrs, iou, score },
    2,
    "edgewise",
  );
  return [n.front(selected!, [(await count!.numbers(n.device))[0]!, 3])];
}

export const SELECTION: Record<string, HostOperator> = {
  NonZero: nonZero,
  Compress: compress,
  Unique: unique,
  NonMaxSuppression: suppression,
};
