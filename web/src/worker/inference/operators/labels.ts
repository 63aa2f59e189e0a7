// LabelEncoder and the maps of ONNX-ML, TfIdfVectorizer. Mirrors
// python/edgewise/compiler/ops/ml/labels.py.

import { MAX_NGRAMS } from "../../../gen/session.ts";
import type { HostOperator, NodeRun } from "../node.ts";
import type { Attribute } from "../program.ts";
import {
  ENTRY_BYTES,
  NumberTensor,
  OnnxMap,
  type RunValue,
  StringTensor,
  typed,
} from "../values.ts";
import { tensorOf } from "./strings.ts";

const NUMBER_BYTES = 32; // estimate for a number in a list, its copy and its tensor

type Element = number | bigint | string;
const CHECK = "Check what is fed; if it is right, export the model again.";

/** Flat elements of a tensor; int64 as bigint. */
async function elementsOf(n: NodeRun, v: RunValue): Promise<Element[]> {
  if (v.kind === "strings") return [...v.strings];
  if (v.kind !== "tensor") return n.fail(`its input is ${String(v)}; a tensor is expected`, CHECK);
  return v.type === "int64" || v.type === "uint64"
    ? Array.from(typed(v.type, await v.read(n.device), v.count))
    : v.numbers(n.device);
}

/** A list attribute; integers as bigint if `wide`. */
function listOf(n: NodeRun, value: Attribute, wide: boolean): Element[] {
  if (!Array.isArray(value)) return [];
  return value.map((x) =>
    typeof x === "string" || typeof x === "bigint"
      ? x
      : typeof x === "number"
        ? wide
          ? BigInt(x)
          : x
        : n.fail("an element of its list attribute is neither a number nor a string"),
  );
}

/** Type and values of the attributes keys_* or values_*. */
async function table(n: NodeRun, what: string): Promise<[type: string, values: Element[]]> {
  const t = n.attribute(`${what}_tensor`);
  if (t instanceof StringTensor || t instanceof NumberTensor)
    return [t.type, await elementsOf(n, t)];
  for (const [kind, type] of [
    ["strings", "string"],
    ["int64s", "int64"],
    ["floats", "float32"],
  ] as const) {
    const values = listOf(n, n.attribute(`${what}_${kind}`), type === "int64");
    if (values.length)
      return [type, type === "float32" ? values.map((x) => Math.fround(Number(x))) : values];
  }
  return n.fail(`it has no ${what}`, "Export the model again.");
}

/** Maps elements from keys to values. NaN equals NaN, as in a Map. */
async function labelEncoder(n: NodeRun): Promise<RunValue[]> {
  const x = n.input(0);
  if (x.kind !== "tensor" && x.kind !== "strings")
    return n.fail(`its input is ${String(x)}; a tensor is expected`, CHECK);
  let [kind, keys]: [string, Element[]] = ["", []];
  let [type, values]: [string, Element[]] = ["", []];
  if (n.unit.opset < 2) {
    const classes =
      n.texts("classes_strings") ?? n.fail("it has no classes_strings", "Export the model again.");
    const numbers = classes.map((_, i) => BigInt(i));
    [kind, keys, type, values] =
      x.kind === "strings"
        ? ["string", classes, "int64", numbers]
        : [x.type, numbers, "string", classes];
  } else {
    [kind, keys] = await table(n, "keys");
    [type, values] = await table(n, "values");
  }
  if (keys.length !== values.length || kind !== x.type)
    n.fail(
      `${keys.length} keys of type ${kind} and ${values.length} values, for ${String(x)}`,
      CHECK,
    );
  const given = n.attribute("default_tensor");
  const other: Element =
    given instanceof StringTensor || given instanceof NumberTensor
      ? (await elementsOf(n, given))[0]!
      : type === "string"
        ? n.text("default_string", "_Unused")
        : type === "int64"
          ? BigInt(n.int("default_int64", -1))
          : n.float("default_float", -0);
  const found = new Map<Element, Element>();
  keys.forEach((k, i) => {
    if (!found.has(k)) found.set(k, values[i]!);
  });
  return [
    await tensorOf(
      n,
      type,
      x.dims,
      (await elementsOf(n, x)).map((k) => found.get(k) ?? other),
    ),
  ];
}

/**
 * Converts each row of a float tensor to a map from labels, as classifiers of scikit-learn return.
 */
async function zipMap(n: NodeRun): Promise<RunValue[]> {
  const x = n.tensor(0);
  const words = n.texts("classlabels_strings");
  const names: (string | bigint)[] = words?.length
    ? words
    : (listOf(n, n.attribute("classlabels_int64s"), true) as bigint[]);
  const width = x.dims.at(-1) ?? 0;
  if ((x.rank !== 1 && x.rank !== 2) || width !== names.length)
    n.fail(`${names.length} labels for ${String(x)}`);
  n.checkRoom(ENTRY_BYTES * x.count);
  const numbers = await x.numbers(n.device);
  const maps: OnnxMap[] = [];
  for (let i = 0; i < numbers.length; i += width || 1)
    maps.push(
      n.keep(
        new OnnxMap(
          new Map(names.map((name, j) => [name, numbers[i + j]!])),
          words?.length ? "string" : "int64",
          "float32",
        ),
      ),
    );
  return [n.sequence(maps)];
}

function map(n: NodeRun): OnnxMap {
  const x = n.input(0);
  return x.kind === "map" ? x : n.fail(`its input is ${String(x)}; a map is expected`, CHECK);
}

/** The values of a map in the order of a vocabulary; 0 for missing keys. */
async function dictVectorizer(n: NodeRun): Promise<RunValue[]> {
  const x = map(n);
  const strings = n.texts("string_vocabulary");
  const words = strings?.length
    ? strings
    : (listOf(n, n.attribute("int64_vocabulary"), true) as bigint[]);
  return [
    await tensorOf(
      n,
      x.value,
      [1, words.length],
      words.map((w) => x.entries.get(w) ?? (x.value === "string" ? "" : 0)),
    ),
  ];
}

/**
 * The values of a map in the order of its keys: all of them, or with map_form SPARSE at the indices
 * given by the keys, below max_map.
 */
async function castMap(n: NodeRun): Promise<RunValue[]> {
  const x = map(n);
  const to = { TO_FLOAT: "float32", TO_INT64: "int64", TO_STRING: "string" }[
    n.text("cast_to", "TO_FLOAT")
  ];
  if (x.key !== "int64" || !to)
    return n.fail(
      `its input is ${String(x)}; a map with integer keys is expected; it casts to ` +
        `${n.text("cast_to", "TO_FLOAT").slice(0, 40)}`,
      CHECK,
    );
  const convert = (v: Element): Element => {
    if (to === "string") return String(v);
    const number = Number(v);
    if (typeof v === "string" && (!v.trim() || Number.isNaN(number)))
      return n.fail(`the string '${v.slice(0, 50)}' is not a number`, "Check what is fed.");
    return to === "int64" ? (typeof v === "bigint" ? v : BigInt(Math.trunc(number))) : number;
  };
  if (n.text("map_form", "DENSE") === "DENSE") {
    const keys = [...x.entries.keys()].sort((a, b) => (a < b ? -1 : 1));
    return [
      await tensorOf(
        n,
        to,
        [1, keys.length],
        keys.map((k) => convert(x.entries.get(k)!)),
      ),
    ];
  }
  const size = n.int("max_map", 1);
  if (
    !(size > 0 && size <= 2 ** 24) ||
    [...x.entries.keys()].some((k) => !((k as bigint) >= 0n && (k as bigint) < BigInt(size)))
  )
    n.fail(`its keys are not below max_map = ${size}`, CHECK);
  n.checkRoom(NUMBER_BYTES * size);
  return [
    await tensorOf(
      n,
      to,
      [1, size],
      Array.from({ length: size }, (_, k) => {
        const v = x.entries.get(BigInt(k));
        return v !== undefined ? convert(v) : to === "string" ? "0.f" : 0;
      }),
    ),
  ];
}

/**
 * Counts the n-grams of a pool in each row, where elements are adjacent or separated by up to
 * max_skip_count others.
 */
async function tfIdf(n: NodeRun): Promise<RunValue[]> {
  const x = n.input(0);
  if (x.kind !== "tensor" && x.kind !== "strings")
    return n.fail(`its input is ${String(x)}; a tensor is expected`, CHECK);
  const low = n.int("min_gram_length", 0);
  const high = n.int("max_gram_length", 0);
  const skips = n.int("max_skip_count", 0);
  const mode = n.text("mode", "");
  const starts = n.ints("ngram_counts") ?? [];
  const places = n.ints("ngram_indexes") ?? [];
  const texts = n.texts("pool_strings");
  const pool: Element[] = texts?.length ? texts : listOf(n, n.attribute("pool_int64s"), false);
  const weights = listOf(n, n.attribute("weights"), false).map(Number);
  if (
    (x.rank !== 1 && x.rank !== 2) ||
    !(low >= 1 && low <= high) ||
    !(skips >= 0 && skips <= 1 << 16) ||
    !["TF", "IDF", "TFIDF"].includes(mode) ||
    !pool.length ||
    !places.length ||
    starts.length < high
  )
    n.fail(
      `its input is ${String(x)}, its n-gram lengths are ${low} to ${high} and its mode is ` +
        `'${mode.slice(0, 40)}'`,
    );
  const grams = gramsOf(n, pool, starts);
  if (
    grams.size !== places.length ||
    (weights.length && weights.length !== places.length) ||
    places.some((p) => p < 0 || p >= 2 ** 28)
  )
    n.fail(`${grams.size} n-grams for ${places.length} places`, "Export the model again.");
  const width = places.reduce((w, p) => Math.max(w, p), 0) + 1;
  const elements = (await elementsOf(n, x)).map(String);
  const columns = x.dims.at(-1) ?? 0;
  const rows = x.rank === 1 ? 1 : x.dims[0]!;
  n.checkRoom(NUMBER_BYTES * rows * width);
  const range = { low, high, skips };
  checkLookups(n, rows, columns, range);
  const out = new Float64Array(rows * width);
  for (let r = 0; r < rows; r++)
    countGrams(elements.slice(r * columns, (r + 1) * columns), grams, range).forEach((count, g) => {
      const w = weights.length ? weights[g]! : 1;
      out[r * width + places[g]!] =
        mode === "TF" ? count : mode === "IDF" ? (count ? w : 0) : count * w;
    });
  return [await tensorOf(n, "float32", x.rank === 1 ? [width] : [rows, width], [...out])];
}

/** Lengths of n-grams, and the maximum number of skipped elements between theirs. */
interface GramRange {
  low: number;
  high: number;
  skips: number;
}

/** Numbers of the n-grams of a pool. `starts`: where those of length 1, 2, ... begin. */
function gramsOf(
  n: NodeRun,
  pool: readonly Element[],
  starts: readonly number[],
): Map<string, number> {
  const bounds = [...starts, pool.length];
  const grams = new Map<string, number>();
  for (let length = 1; length <= starts.length; length++) {
    const [begin, end] = [bounds[length - 1]!, bounds[length]!];
    if (!(begin >= 0 && begin <= end && end <= pool.length) || (end - begin) % length)
      n.fail(
        `its pool of ${pool.length} elements does not match its ngram_counts ` +
          `[${starts.join(", ")}]`,
        "Export the model again.",
      );
    for (let i = begin; i < end; i += length)
      grams.set(JSON.stringify(pool.slice(i, i + length).map(String)), grams.size);
  }
  return grams;
}

/** Limits the work of `countGrams`. */
function checkLookups(
  n: NodeRun,
  rows: number,
  columns: number,
  { low, high, skips }: GramRange,
): void {
  const furthest = (length: number): number =>
    length > 1 ? Math.min(skips + 1, Math.floor((columns - 1) / (length - 1))) : 1;
  let looked = 0;
  for (let length = low; length <= Math.min(high, columns); length++)
    for (let step = 1; step <= furthest(length); step++)
      looked += rows * Math.max(columns - (length - 1) * step, 0);
  if (looked > MAX_NGRAMS)
    n.fail(
      `it would look up ${looked} n-grams, with up to ${skips} skipped elements between theirs`,
    );
}

/** How often each n-gram occurs in a row. */
function countGrams(
  row: readonly string[],
  grams: ReadonlyMap<string, number>,
  { low, high, skips }: GramRange,
): Float64Array {
  const counts = new Float64Array(grams.size);
  for (let length = low; length <= high; length++)
    for (
      let step = 1;
      step <= (length > 1 ? skips : 0) + 1 && (length - 1) * step < row.length;
      step++
    )
      for (let i = 0; i < row.length - (length - 1) * step; i++) {
        const g = grams.get(JSON.stringify(Array.from({ length }, (_, j) => row[i + j * step])));
        if (g !== undefined) counts[g]!++;
      }
  return counts;
}

/** Maps strings to integers or integers to strings. */
async function categoryMapper(n: NodeRun): Promise<RunValue[]> {
  const x = n.input(0);
  const numbers = listOf(n, n.attribute("cats_int64s"), true) as bigint[];
  const names = n.texts("cats_strings") ?? [];
  if (
    numbers.length !== names.length ||
    (x.kind !== "strings" && !(x.kind === "tensor" && x.type === "int64"))
  )
    return n.fail(`its categories do not match ${String(x)}`, CHECK);
  if (x.kind === "strings") {
    const found = new Map(names.map((s, i) => [s, numbers[i]!]));
    return [
      await tensorOf(
        n,
        "int64",
        x.dims,
        x.strings.map((s) => found.get(s) ?? BigInt(n.int("default_int64", -1))),
      ),
    ];
  }
  const found = new Map(numbers.map((i, at) => [i, names[at]!]));
  return [
    await tensorOf(
      n,
      "string",
      x.dims,
      (await elementsOf(n, x)).map(
        (i) => found.get(i as bigint) ?? n.text("default_string", "_Unused"),
      ),
    ),
  ];
}

export const LABELS: Record<string, HostOperator> = {
  "ai.onnx.ml.LabelEncoder": labelEncoder,
  "ai.onnx.ml.ZipMap": zipMap,
  "ai.onnx.ml.DictVectorizer": dictVectorizer,
  "ai.onnx.ml.CastMap": castMap,
  "ai.onnx.ml.TfIdfVectorizer": tfIdf,
  "ai.onnx.ml.CategoryMapper": categoryMapper,
};
