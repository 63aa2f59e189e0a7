// String tensors. Mirrors python/edgewise/compiler/ops/host/strings.py. Operators that move
// elements run on indices instead, by the numeric implementation. (Regular expressions need an
// engine with linear time and are executed by Python.)

import { ELEMENT_BITS } from "../../../gen/session.ts";
import type { HostOperator, NodeRun } from "../node.ts";
import {
  elements,
  NumberTensor,
  REFERENCE_BYTES,
  type RunValue,
  StringTensor,
  typed,
} from "../values.ts";

/** Operators that only move elements, and the inputs that contain those (undefined: all). */
const MOVES: Readonly<Record<string, readonly number[] | undefined>> = {
  Reshape: [0],
  Squeeze: [0],
  Unsqueeze: [0],
  Flatten: [0],
  Transpose: [0],
  Slice: [0],
  Gather: [0],
  GatherElements: [0],
  GatherND: [0],
  Split: [0],
  Expand: [0],
  Tile: [0],
  Compress: [0],
  ReverseSequence: [0],
  SpaceToDepth: [0],
  DepthToSpace: [0],
  Trilu: [0],
  Where: [1, 2],
  ScatterElements: [0, 2],
  ScatterND: [0, 2],
  Concat: undefined,
};
/** The same for ai.onnx.ml. */
const MOVES_ML: Readonly<Record<string, readonly number[] | undefined>> = {
  ArrayFeatureExtractor: [0],
};
const NUMBER_BYTES = 16; // estimate for a number in a growing list
const TEXT_BYTES = 48; // estimate for a number as text
const PAIR_BYTES = 64; // estimate for a pair of strings in a list
const CHECK = "Check what is fed; if it is right, export the model again.";

/** Executes a node with string inputs that moves elements, or reads their shape. */
export async function moved(n: NodeRun): Promise<(RunValue | undefined)[]> {
  const { inputs, unit } = n;
  const looks = !unit.domain && (unit.op === "Shape" || unit.op === "Size");
  const table = unit.domain === "" ? MOVES : unit.domain === "ai.onnx.ml" ? MOVES_ML : {};
  const which = looks
    ? [0]
    : Object.hasOwn(table, unit.op)
      ? (table[unit.op] ?? [...inputs.keys()])
      : [];
  const strings: string[] = [];
  const places = inputs.map((v, i): RunValue | undefined => {
    if (v === undefined) return v;
    if (v.kind === "strings" && which.includes(i)) {
      const first = strings.length;
      for (const s of v.strings) strings.push(s);
      return n.constant(
        "int64",
        v.dims,
        v.strings.map((_, j) => first + j),
      );
    }
    if (v.kind !== "tensor" || which.includes(i))
      return n.unsupported(
        `its input ${i} is ${String(v)}`,
        "Check what is fed; if it is right, export the model with another exporter or " +
          "optimization level.",
      );
    return v;
  });
  const outs = await n.plain(places);
  if (looks) return outs;
  n.checkRoom(
    (REFERENCE_BYTES + NUMBER_BYTES) *
      outs.reduce((count, v) => count + (v ? (v as NumberTensor).count : 0), 0),
  );
  const texts: (StringTensor | undefined)[] = [];
  for (const v of outs as (NumberTensor | undefined)[]) {
    const numbers = await v?.numbers(n.device);
    texts.push(
      numbers &&
        n.keep(
          new StringTensor(
            v!.dims,
            numbers.map((i) => strings[i]!),
          ),
        ),
    );
  }
  return texts;
}

/** Broadcasts two string tensors: the shape, and pairs of strings. */
function together(n: NodeRun): [dims: number[], pairs: [string, string][]] {
  const [a, b] = [n.strings(0), n.strings(1)];
  const rank = Math.max(a.rank, b.rank);
  const padded = [a, b].map((v) => [
    ...Array.from({ length: rank - v.rank }, () => 1),
    ...v.dims,
  ]) as [number[], number[]];
  const dims = padded[0].map((d, i) => {
    const e = padded[1][i]!;
    return d === e || e === 1
      ? d
      : d === 1
        ? e
        : n.fail(
            `shapes [${a.dims.join(", ")}] and [${b.dims.join(", ")}] do not broadcast together`,
          );
  });
  if (elements(dims) >= 2 ** 31)
    n.fail(`its output would have ${elements(dims)} strings; the limit is 2^31 - 1`);
  n.checkRoom(PAIR_BYTES * elements(dims));
  const at = (of: number[], index: number) => {
    let [place, step, left] = [0, 1, index];
    for (let d = rank - 1; d >= 0; d--) {
      if (of[d] !== 1) place += (left % dims[d]!) * step;
      step *= of[d]!;
      left = Math.floor(left / dims[d]!);
    }
    return place;
  };
  return [
    dims,
    Array.from({ length: elements(dims) }, (_, i) => [
      a.strings[at(padded[0], i)]!,
      b.strings[at(padded[1], i)]!,
    ]),
  ];
}

// characters for which Python's str.isspace is true
const SPACE =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACES = new RegExp(`[${SPACE}]+`);
const LEADING = new RegExp(`^[${SPACE}]+`);

/** Removes trailing white space. A regular expression would take quadratic time. */
function trimmedEnd(text: string): string {
  let end = text.length;
  while (end && SPACES.test(text[end - 1]!)) end--;
  return text.slice(0, end);
}

const PIECES = 4096; // interval of memory checks

/**
 * Splits a text at delimiters (undefined: runs of white space).
 * @param most maximum number of splits
 * @param check called with the number of pieces, at intervals of PIECES
 */
export function pieces(
  text: string,
  delimiter: string | undefined,
  most: number,
  check: (count: number) => void = () => undefined,
): string[] {
  if (!text) return [];
  let left = delimiter === undefined ? text.replace(LEADING, "") : text;
  const out: string[] = [];
  while (out.length < most) {
    const at = delimiter === undefined ? left.search(SPACES) : left.indexOf(delimiter);
    if (at < 0) break;
    out.push(left.slice(0, at));
    if (out.length % PIECES === 0) check(out.length);
    left =
      delimiter === undefined
        ? left.slice(at).replace(LEADING, "")
        : left.slice(at + delimiter.length);
  }
  if (delimiter === undefined) left = trimmedEnd(left);
  return delimiter === undefined && !left ? out : [...out, left];
}

/** Splits strings along a new last dimension, padded with "", and returns the numbers of pieces. */
function split(n: NodeRun): RunValue[] {
  const x = n.strings(0);
  const delimiter = n.text("delimiter", "") || undefined;
  const most = n.attribute("maxsplit") === undefined ? Infinity : n.int("maxsplit", 0);
  let before = 0; // pieces of the preceding strings
  const check = (count: number): void => n.checkRoom(REFERENCE_BYTES * (before + count));
  const all = x.strings.map((s) => {
    const made = pieces(s, delimiter, most < 0 ? Infinity : most, check);
    before += made.length;
    return made;
  });
  const width = all.reduce((w, p) => Math.max(w, p.length), 0);
  n.checkRoom(REFERENCE_BYTES * width * all.length); // one long row makes all rows long
  return [
    n.keep(
      new StringTensor(
        [...x.dims, width],
        all.flatMap((p) => [...p, ...Array.from({ length: width - p.length }, () => "")]),
      ),
    ),
    n.constant(
      "int64",
      x.dims,
      all.map((p) => p.length),
    ),
  ];
}

function normalize(n: NodeRun): RunValue[] {
  const x = n.strings(0);
  if ((x.rank !== 1 && x.rank !== 2) || (x.rank === 2 && x.dims[0] !== 1))
    n.fail(`its input has the shape [${x.dims.join(", ")}]; [C] or [1, C] is expected`);
  n.checkRoom(2 * x.hostBytes);
  const change = n.text("case_change_action", "NONE");
  const cased = n.int("is_case_sensitive", 0) !== 0;
  const turn = {
    NONE: (s: string) => s,
    LOWER: (s: string) => s.toLowerCase(),
    UPPER: (s: string) => s.toUpperCase(),
  }[change];
  if (!turn) return n.fail(`its case_change_action is '${change.slice(0, 40)}'`, CHECK);
  const stop = new Set((n.texts("stopwords") ?? []).map((s) => (cased ? s : s.toLowerCase())));
  const left = x.strings.filter((s) => !stop.has(cased ? s : s.toLowerCase())).map(turn);
  const out = left.length ? left : [""];
  return [n.keep(new StringTensor(x.rank === 1 ? [out.length] : [1, out.length], out))];
}

/** As C's printf("%.*g"). */
function general(x: number, digits: number): string {
  if (x === 0) return Object.is(x, -0) ? "-0" : "0";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e") as [string, string];
  const e = Number(exponent);
  const short = (s: string) => (s.includes(".") ? s.replace(/\.?0+$/, "") : s);
  if (e < -4 || e >= digits)
    return `${short(mantissa)}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
  return short(x.toFixed(Math.max(0, digits - 1 - e)));
}

/**
 * Formats a number as onnxruntime does: 1 rather than 1.0, exponents from 1e+08 on; but with the
 * fewest digits that identify the number.
 */
export function textOf(type: string, x: number | bigint): string {
  if (typeof x === "bigint" || !/float/.test(type)) return String(x);
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "INF" : "-INF";
  for (let digits = 1; digits < 18; digits++) {
    const short: number = Number(x.toPrecision(digits));
    if (short === x || (type !== "float64" && Math.fround(short) === x))
      return general(short, Math.max(digits, 8));
  }
  return String(x);
}

const FLOAT = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;

function float(text: string): number | undefined {
  const t = trimmedEnd(text.replace(LEADING, ""));
  if (FLOAT.test(t)) return Number(t);
  const word = /^([+-]?)(inf|infinity|nan)$/i.exec(t);
  return word
    ? word[2]!.toLowerCase() === "nan"
      ? NaN
      : word[1] === "-"
        ? -Infinity
        : Infinity
    : undefined;
}

/** Parses a number; integers are exact. */
function numberOf(n: NodeRun, type: string, text: string): number | bigint {
  const none = () =>
    n.fail(`the string '${text.slice(0, 50)}' is not a number`, "Check what is fed.");
  if (/float/.test(type)) return float(text) ?? none();
  const t = trimmedEnd(text.replace(LEADING, ""));
  if (type === "bool")
    return /^(true|false)$/i.test(t)
      ? t.toLowerCase() === "true"
        ? 1
        : 0
      : (float(text) ?? none()) !== 0
        ? 1
        : 0;
  const whole = /^[+-]?\d+$/.test(t) ? BigInt(t.replace("+", "")) : undefined;
  const near = whole === undefined ? float(text) : 0;
  if (near === undefined || !Number.isFinite(near)) return none();
  const x = whole ?? BigInt(Math.trunc(near));
  const bits = BigInt(ELEMENT_BITS[type] ?? 0);
  const [low, high] = type.startsWith("u")
    ? [0n, (1n << bits) - 1n]
    : [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n];
  return x >= low && x <= high ? x : n.fail(`${x} does not fit its type`, "Check what is fed.");
}

/** Makes a numeric or string tensor. Integers may be bigint. */
export async function tensorOf(
  n: NodeRun,
  type: string,
  dims: readonly number[],
  values: readonly (number | bigint | string)[],
): Promise<NumberTensor | StringTensor> {
  if (type === "string") return n.keep(new StringTensor(dims, values.map(String)));
  if (type === "int64")
    return n.keep(
      new NumberTensor(
        type,
        dims,
        new Uint8Array(BigInt64Array.from(values, (x) => BigInt(x)).buffer),
      ),
    );
  if (type === "uint64")
    return n.keep(
      new NumberTensor(
        type,
        dims,
        new Uint8Array(BigUint64Array.from(values, (x) => BigInt(x)).buffer),
      ),
    );
  const numbers = values.map(Number);
  if (type !== "float16" && type !== "bfloat16") return n.constant(type, dims, numbers);
  const [half] = await n.driver.single(
    "Identity",
    "",
    [n.constant("float32", dims, numbers)],
    [true],
    {},
    { dtype: type },
  );
  return n.keep(half as NumberTensor);
}

const CODES = [
  "",
  "float32",
  "uint8",
  "int8",
  "uint16",
  "int16",
  "int32",
  "int64",
  "string",
  "bool",
  "float16",
  "float64",
  "uint32",
  "uint64",
  "",
  "",
  "bfloat16",
];

async function cast(n: NodeRun): Promise<RunValue[] | undefined> {
  const x = n.input(0);
  const to = CODES[n.int("to", 1)] ?? "";
  if (x.kind === "strings") {
    if (to === "string") return [x];
    n.checkRoom(NUMBER_BYTES * x.count);
    if (!to) return n.unsupported(`a cast of strings to the type ${n.int("to", 1)}`);
    return [
      await tensorOf(
        n,
        to,
        x.dims,
        x.strings.map((s) => numberOf(n, to, s)),
      ),
    ];
  }
  if (to !== "string") return undefined;
  const t = n.tensor(0);
  n.checkRoom((REFERENCE_BYTES + NUMBER_BYTES + TEXT_BYTES) * t.count);
  const wide = t.type === "int64" || t.type === "uint64";
  const values: ArrayLike<number | bigint> = wide
    ? typed(t.type, await t.read(n.device), t.count)
    : await t.numbers(n.device);
  return [
    n.keep(
      new StringTensor(
        t.dims,
        Array.from(values, (v) => textOf(t.type, v)),
      ),
    ),
  ];
}

export const STRINGS: Record<string, HostOperator> = {
  Equal: (n) => {
    if (!n.inputs.some((v) => v?.kind === "strings")) return undefined;
    const [dims, pairs] = together(n);
    return [
      n.constant(
        "bool",
        dims,
        pairs.map(([a, b]) => (a === b ? 1 : 0)),
      ),
    ];
  },
  StringConcat: (n) => {
    const [dims, pairs] = together(n);
    n.checkRoom(
      pairs.reduce((bytes, [a, b]) => bytes + REFERENCE_BYTES + 2 * (a.length + b.length), 0),
    );
    return [
      n.keep(
        new StringTensor(
          dims,
          pairs.map(([a, b]) => a + b),
        ),
      ),
    ];
  },
  StringSplit: split,
  StringNormalizer: normalize,
  Cast: cast,
  ConstantOfShape: async (n) => {
    const value = n.attribute("value");
    if (!(value instanceof StringTensor)) return undefined;
    const dims = await n.numbers(0);
    if (dims.some((d) => d < 0) || elements(dims) >= 2 ** 24)
      n.fail(`its input has the shape [${dims.join(", ")}]`);
    n.checkRoom(REFERENCE_BYTES * elements(dims));
    return [
      n.keep(
        new StringTensor(
          dims,
          Array.from({ length: elements(dims) }, () => value.strings[0]!),
        ),
      ),
    ];
  },
};
