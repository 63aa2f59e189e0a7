// A package: a manifest (JSON) and files in one container, `.edge`:
//     "EDGEWISE", u64 length of the JSON, the JSON, zeros up to a multiple of 64, data (the
//     manifest's offsets count from here)
// It may come from anywhere, so every number is checked before anything is allocated; the plans in
// it are checked by the engine.

import {
  Checker,
  parseSlots,
  product,
  tooDeep,
  type Json,
  type Slot,
  type Weight,
} from "./checker.ts";
import { PackageError } from "../../shared/errors.ts";
import {
  FORMAT,
  MAX_BATCH,
  MAX_CACHES,
  MAX_CAPACITY,
  MAX_DECODER_PLANS,
  MAX_DRAWN,
  MAX_FILE,
  MAX_KERNELS,
  MAX_LORA_RANK,
  MAX_MANIFEST,
  MAX_PROGRAMS,
  MAX_SIZE,
  MAX_VOCABULARY,
  PIECE,
  STATE_KINDS,
  STATE_SIZES,
  TASKS,
  TRAINING_NAMES,
  WEIGHT_FILES,
  WRITABLE_KINDS,
} from "../../gen/manifest.ts";
import { parseInference, type InferenceInfo } from "../inference/manifest.ts";
import { sha256 } from "../../shared/sha256.ts";
import { scatter, type Extent } from "../../shared/files/source.ts";
import type { CacheDType } from "../../protocol/loading.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { MAGIC, isMagic } from "../../shared/files/magic.ts";

const HEADER = 16;
const ALIGN = 64;
const SUM = '{"manifest_sha256":"'; // what every manifest begins with; the sum is taken with zeros in its place
const DIGITS = 64;

/**
 * A plan for `tokens` tokens at once. `registers`: numbers of those that hold the past length and
 * the last token's place.
 */
export interface PlanInfo {
  tokens: number;
  file: string;
  registers: { past: number; last: number };
  slots: Slot[];
}
/** A language model's plans. */
export interface DecoderInfo {
  /** The model has no cache: every run is given the whole text. */
  recompute: boolean;
  /** Most tokens of a sequence. */
  capacity: number;
  /** Number of logits. */
  vocabSize: number;
  /** What keys and values are kept as: "float32" or "float16". */
  cacheDtype: CacheDType;
  /** Of one sequence. */
  caches: { name: string; bytes: number }[];
  /** In the order of their tokens. */
  plans: PlanInfo[];
}
/** What the plans of a training program are for: see python/edgewise/training/program.py. */
export const TRAINING_PLANS = ["train", "accumulate", "update", "evaluate", "initialize"] as const;
/** One of them. */
export type TrainingPlan = (typeof TRAINING_PLANS)[number];
/**
 * A tensor that persists between runs, and how it begins: as a weight of the package, filled with a
 * number, or random.
 */
export interface StateInfo {
  name: string;
  kind: "parameter" | "adapter" | "buffer" | "optimizer" | "gradient" | "step";
  dtype: string;
  shape: number[];
  bytes: number;
  initial: ["constant", string] | ["fill", number] | ["uniform" | "normal", number, number];
}
/** Fields of PEFT's adapter_config.json that the program was made with. */
export interface LoraInfo {
  r: number;
  lora_alpha: number;
  use_rslora: boolean;
  [field: string]: unknown;
}
/**
 * A way to train the model: plans for a batch of `batch` rows of `sequence` tokens, and the states
 * they share.
 */
export interface ProgramInfo {
  name: string;
  batch: number;
  sequence: number;
  /** Null: all parameters are trained. */
  lora: LoraInfo | null;
  optimizer: { type: string; lr: number; [field: string]: unknown };
  /** Null: any. */
  maxGradNorm: number | null;
  plans: Map<TrainingPlan, { file: string; slots: Slot[]; arenaBytes: number }>;
  states: Map<string, StateInfo>;
  padTokenId: number | undefined;
  eosTokenId: number | undefined;
}
/** A manifest that has been checked. */
export interface Manifest {
  /** Of the engine's kernels that it was made for. */
  tableHash: number;
  /** `text-generation` or `inference`. */
  task: string;
  /** Names of the kernels that its plans call. */
  kernels: string[];
  /** Where they lie, from the beginning of the data. */
  files: Map<string, { offset: number; bytes: number }>;
  /** Of files that are checked, in hexadecimal digits. */
  sha256: Map<string, string>;
  weights: Map<string, Weight>;
  /** Of packages for text-generation. */
  decoder: DecoderInfo | undefined;
  /** Of packages of any other model. */
  inference: InferenceInfo | undefined;
  /** By name. Empty where the package cannot train. */
  training: Map<string, ProgramInfo>;
  /** Of entries of the page's own cache: what the compiler looked at (storage.ts). */
  cache: unknown;
}

/**
 * Checks a manifest, by the same rules as python/edgewise/manifest.py. Whether a package fits into
 * a page's memory is not decided here.
 * @param text the JSON
 * @param where the package's name, for errors
 * @param dataBytes how many bytes of data there are, where known
 * @param beside weights may lie in files that are not in the package
 * /
 */
export function parseManifest(
  text: string,
  where: string,
  dataBytes: number | undefined,
  beside = false,
): Manifest {
  const c = new Checker(where);
  let json: Json;
  try {
    json = JSON.parse(text) as Json;
  } catch {
    return c.fail("the manifest", "is not JSON");
  }
  const root = c.object(json, "the manifest");
  if (tooDeep(json)) return c.fail("the manifest", "nests lists and objects too deeply");
  const format = root.get("format") ?? null;
  if (format !== FORMAT)
    c.fail(
      "its format",
      `is ${JSON.stringify(format).slice(0, 40)}, this version of Edgewise reads ${FORMAT}`,
      "Build the package again with the same version of Edgewise as the page's: `edgewise build`.",
    );
  const tableHash = c.integer(root.get("table_hash"), "table_hash", 0, 0xffff_ffff);
  const task = c.oneOf(root.get("task"), "task", TASKS);
  const kernels = c
    .list(root.has("kernels") ? root.get("kernels") : [], "kernels", MAX_KERNELS)
    .map((k) => c.text(k, "kernels"));

  const files: Manifest["files"] = new Map();
  let end = 0;
  for (const [name, value] of c.object(root.get("files"), "files")) {
    c.text(name, "the name of a file");
    const pair = c.tuple(value, `files['${name}']`, 2);
    const offset = c.integer(pair[0], `the offset of file '${name}'`);
    const bytes = c.integer(
      pair[1],
      `the size of file '${name}'`,
      0,
      name === "weights" ? MAX_SIZE : MAX_FILE,
    );
    if (dataBytes !== undefined && offset + bytes > dataBytes)
      c.fail(
        `file '${name}'`,
        `in it ends at byte ${offset + bytes} of the data, which has ${dataBytes}`,
        "The package is cut off or damaged: fetch it again.",
      );
    files.set(name, { offset, bytes });
    end = Math.max(end, offset + bytes);
  }
  if (dataBytes !== undefined && dataBytes > Math.ceil(end / ALIGN) * ALIGN)
    c.fail("the data", `ends at byte ${end}, and ${dataBytes - end} bytes follow it`);
  // No two files may share bytes: otherwise a short package could ask for any amount of memory.
  let reached = 0;
  for (const [name, { offset, bytes }] of [...files]
    .filter(([, f]) => f.bytes > 0)
    .sort((a, b) => a[1].offset - b[1].offset)) {
    if (offset < reached) c.fail(`file '${name}'`, "overlaps another one");
    reached = offset + bytes;
  }
  const digests: Manifest["sha256"] = new Map();
  for (const [name, value] of c.object(root.get("sha256"), "sha256")) {
    if (!files.has(name) || name === "weights")
      c.fail(`sha256['${name}']`, "is of a file that is not there");
    const digest = c.text(value, `sha256['${name}']`);
    if (!/^[0-9a-f]{64}$/.test(digest)) c.fail(`sha256['${name}']`, "is not a SHA-256");
    digests.set(name, digest);
  }
  for (const name of files.keys())
    if (name !== "weights" && !digests.has(name)) c.fail("sha256", `lacks the file '${name}'`);

  const weights: Manifest["weights"] = new Map();
  c.list(root.get("weights"), "weights").forEach((value, i) => {
    const w = c.object(value, `weights[${i}]`);
    const name = c.text(w.get("name"), `weights[${i}].name`);
    const file = c.text(w.get("file"), `weights[${i}].file`);
    const offset = c.integer(w.get("offset"), `weights[${i}].offset`);
    const bytes = c.integer(w.get("bytes"), `weights[${i}].bytes`);
    // Files that are not in the package are the model's own, beside it: their sizes are checked
    // when they are read.
    const inside = files.get(file);
    if (!inside && (!beside || WEIGHT_FILES.includes(file)))
      c.fail(`weights[${i}]`, `lies in the file '${file}', which is not in the package`);
    if (inside && !WEIGHT_FILES.includes(file))
      c.fail(`weights[${i}]`, `lies in the file '${file}', which is not one of weights`);
    if (inside && offset + bytes > inside.bytes)
      c.fail(
        `weights[${i}]`,
        `ends at byte ${offset + bytes} of the file '${file}', which has ${inside.bytes}`,
      );
    if (weights.has(name)) c.fail(`weights[${i}]`, `has the name '${name}' of another one`);
    let sums: string[] | undefined;
    if (file === "weights" || w.has("sums"))
      sums = c.tuple(w.get("sums"), `weights[${i}].sums`, Math.ceil(bytes / PIECE)).map((sum) => {
        if (!/^[0-9a-f]{16}$/.test(c.text(sum, `weights[${i}].sums`)))
          c.fail(`weights[${i}].sums`, "is not a list of sums");
        return sum as string;
      });
    weights.set(name, { name, file, offset, bytes, ...(sums ? { sums } : {}) });
  });
  reached = 0;
  let before = "";
  for (const { name, file, offset, bytes } of [...weights.values()]
    .filter((w) => w.bytes > 0 && files.has(w.file))
    .sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : a.offset - b.offset))) {
    if (file === before && offset < reached) c.fail(`the weight '${name}'`, "overlaps another one");
    [before, reached] = [file, offset + bytes];
  }

  const computed = new Map<string, number>();
  const training = parseTraining(c, root.get("training"), files, weights, computed);
  // The states that plans of the decoder read are those of adapters; their names are one program's.
  const adapters = new Map<string, number>();
  for (const program of training.values())
    for (const state of program.states.values())
      if (state.kind === "adapter") {
        if (adapters.has(state.name))
          c.fail(
            `training '${program.name}'`,
            `has the adapter '${state.name}' of another program`,
          );
        adapters.set(state.name, state.bytes);
      }
  const inference =
    task === "inference"
      ? parseInference(c, root.get("inference"), files, weights, computed, beside)
      : undefined;
  const decoder = inference
    ? undefined
    : parseDecoder(c, root.get("decoder"), files, weights, adapters, computed);
  return {
    tableHash,
    task,
    kernels,
    files,
    sha256: digests,
    weights,
    decoder,
    inference,
    training,
    cache: root.get("cache"),
  };
}

function planFile(
  c: Checker,
  json: Json | undefined,
  at: string,
  files: Manifest["files"],
): string {
  const file = c.text(json, at);
  if (!files.has(file) || WEIGHT_FILES.includes(file))
    c.fail(at, `is '${file}', which is no plan in the package`);
  return file;
}

function parseTraining(
  c: Checker,
  json: Json | undefined,
  files: Manifest["files"],
  weights: Manifest["weights"],
  computed: Map<string, number>,
): Manifest["training"] {
  const programs: Manifest["training"] = new Map();
  if (json === undefined) return programs;
  c.list(json, "training", MAX_PROGRAMS).forEach((value, p) => {
    const at = `training[${p}]`;
    const root = c.object(value, at);
    const name = c.text(root.get("name"), `${at}.name`);
    if (programs.has(name)) c.fail(at, `has the name '${name}' of another one`);
    if (root.get("task") !== "causal_lm") c.fail(`${at}.task`, "is not 'causal_lm'");
    const batch = c.integer(root.get("batch"), `${at}.batch`, 1, MAX_BATCH);
    const sequence = c.integer(root.get("sequence"), `${at}.sequence`, 2, MAX_CAPACITY);

    const states: ProgramInfo["states"] = new Map();
    c.list(root.get("states"), `${at}.states`).forEach((entry, s) => {
      const path = `${at}.states[${s}]`;
      const state = c.object(entry, path);
      const stateName = c.text(state.get("name"), `${path}.name`);
      const kind = c.oneOf(state.get("kind"), `${path}.kind`, STATE_KINDS);
      const dtype = c.text(state.get("dtype"), `${path}.dtype`);
      const shape = c.shape(state.get("shape"), `${path}.shape`);
      const bytes = c.integer(state.get("bytes"), `${path}.bytes`);
      if (
        product(shape) * (Object.hasOwn(STATE_SIZES, dtype) ? STATE_SIZES[dtype]! : NaN) !==
        bytes
      )
        c.fail(
          path,
          `has ${bytes} bytes, which are not those of ${dtype.slice(0, 40)} [${shape.join(", ")}]`,
        );
      const how = c.list(state.get("initial"), `${path}.initial`, 3);
      let initial: StateInfo["initial"];
      if (how[0] === "constant") {
        initial = ["constant", c.text(how[1], `${path}.initial[1]`)];
        if (!weights.has(initial[1]))
          c.fail(path, `begins as the weight '${initial[1]}', which is not in the package`);
      } else if (how[0] === "fill") initial = ["fill", c.number(how[1], `${path}.initial[1]`)];
      else if (how[0] === "uniform" || how[0] === "normal")
        initial = [
          how[0],
          c.number(how[1], `${path}.initial[1]`),
          c.integer(how[2], `${path}.initial[2]`, 0, MAX_DRAWN),
        ];
      else c.fail(`${path}.initial`, "is none of 'constant', 'fill', 'uniform' and 'normal'");
      if (states.has(stateName)) c.fail(path, `has the name '${stateName}' of another one`);
      states.set(stateName, {
        name: stateName,
        kind: kind as StateInfo["kind"],
        dtype,
        shape,
        bytes,
        initial,
      });
    });

    const plans: ProgramInfo["plans"] = new Map();
    const described = c.object(root.get("plans"), `${at}.plans`);
    for (const kind of TRAINING_PLANS) {
      const path = `${at}.plans.${kind}`;
      const plan = c.object(described.get(kind), path);
      const file = planFile(c, plan.get("file"), `${path}.file`, files);
      const arenaBytes = c.integer(plan.get("arena_bytes"), `${path}.arena_bytes`);
      const ids = 8 * batch * sequence;
      const inputs: Record<string, [string, number]> = {
        input_ids: ["int64", ids],
        labels: ["int64", ids],
        learning_rate: ["float32", 4],
        gradient_scale: ["float32", 4],
        seed: ["int64", 8],
      };
      const slots = parseSlots(c, plan.get("slots"), `${path}.slots`, weights, computed);
      slots.forEach((slot, s) => {
        const where = `${path}.slots[${s}]`;
        if (slot.kind === "state" && states.get(slot.name)?.bytes !== slot.bytes)
          c.fail(
            where,
            `is the state '${slot.name}' of ${slot.bytes} bytes, which ${at}.states does not have`,
          );
        if (slot.kind === "cache") c.fail(where, "is a cache, which training has not");
        if (slot.kind === "input") {
          const known = Object.hasOwn(inputs, slot.name) ? inputs[slot.name] : undefined;
          if (!known || slot.dtype !== known[0] || slot.bytes !== known[1])
            c.fail(
              where,
              `is an input '${slot.name}' (${slot.dtype.slice(0, 40)}, ${slot.bytes} bytes) ` +
                "that training does not feed",
            );
        }
        if (
          slot.kind === "output" &&
          (slot.name !== "loss" || slot.dtype !== "float32" || slot.bytes !== 4)
        )
          c.fail(where, "is not the one output 'loss', float32");
      });
      const names = new Set(
        slots.filter((s) => s.kind === "input" || s.kind === "output").map((s) => s.name),
      );
      for (const one of TRAINING_NAMES[kind]!) if (!names.has(one)) c.fail(path, `lacks '${one}'`);
      plans.set(kind, { file, slots, arenaBytes });
    }

    const optimizer = c.object(root.get("optimizer"), `${at}.optimizer`);
    const type = c.text(optimizer.get("type"), `${at}.optimizer.type`);
    const lr = c.number(optimizer.get("lr"), `${at}.optimizer.lr`);
    let lora: LoraInfo | null = null;
    if (root.get("lora") !== null && root.get("lora") !== undefined) {
      const config = c.object(root.get("lora"), `${at}.lora`);
      const r = c.integer(config.get("r"), `${at}.lora.r`, 1, MAX_LORA_RANK);
      lora = {
        ...Object.fromEntries(config),
        r,
        lora_alpha: c.number(config.get("lora_alpha"), `${at}.lora.lora_alpha`),
        use_rslora: config.get("use_rslora") === true,
      };
    }
    const token = (field: string) => {
      const id = root.get(field);
      return id === null || id === undefined
        ? undefined
        : c.integer(id, `${at}.${field}`, 0, MAX_VOCABULARY);
    };
    const norm = root.get("max_grad_norm");
    programs.set(name, {
      name,
      batch,
      sequence,
      lora,
      optimizer: { ...Object.fromEntries(optimizer), type, lr },
      maxGradNorm:
        norm === null || norm === undefined ? null : c.number(norm, `${at}.max_grad_norm`),
      plans,
      states,
      padTokenId: token("pad_token_id"),
      eosTokenId: token("eos_token_id"),
    });
  });
  return programs;
}

function parseDecoder(
  c: Checker,
  json: Json | undefined,
  files: Manifest["files"],
  weights: Manifest["weights"],
  adapters: Map<string, number>,
  computed: Map<string, number>,
): DecoderInfo {
  const root = c.object(json, "decoder");
  const capacity = c.integer(root.get("capacity"), "decoder.capacity", 1, MAX_CAPACITY);
  const vocabSize = c.integer(root.get("vocab_size"), "decoder.vocab_size", 1, MAX_VOCABULARY);
  const recompute = root.get("recompute");
  if (typeof recompute !== "boolean")
    return c.fail("decoder.recompute", "is neither true nor false");
  if (root.get("logits_type") !== "float32") c.fail("decoder.logits_type", "is not 'float32'");

  const cacheDtype = c.oneOf(
    root.has("cache_dtype") ? root.get("cache_dtype") : "float32",
    "decoder.cache_dtype",
    ["float32", "float16"],
  ) as CacheDType;
  const [lora, saved] = [root.get("lora") ?? null, root.get("saved") ?? null];
  if (lora !== null) c.object(lora, "decoder.lora");
  if (saved !== null && c.list(saved, "decoder.saved").length)
    c.fail("decoder.saved", "is not empty: packages hold adapters alone");
  const caches = new Map<string, number>();
  c.list(root.get("caches"), "decoder.caches", MAX_CACHES).forEach((value, i) => {
    const cache = c.object(value, `decoder.caches[${i}]`);
    const name = c.text(cache.get("name"), `decoder.caches[${i}].name`);
    if (caches.has(name)) c.fail(`decoder.caches[${i}]`, `has the name '${name}' of another one`);
    caches.set(name, c.integer(cache.get("bytes"), `decoder.caches[${i}].bytes`));
  });
  if (recompute !== !caches.size)
    c.fail("decoder.recompute", "says otherwise whether there are caches");

  const plans = c
    .list(root.get("plans"), "decoder.plans", MAX_DECODER_PLANS)
    .map((value, p): PlanInfo => {
      const at = `decoder.plans[${p}]`;
      const plan = c.object(value, at);
      const tokens = c.integer(plan.get("tokens"), `${at}.tokens`, 1, capacity);
      const file = planFile(c, plan.get("file"), `${at}.file`, files);
      const registers = c.object(plan.get("registers"), `${at}.registers`);
      const past = c.integer(registers.get("past"), `${at}.registers.past`, 0, 0);
      const last = c.integer(registers.get("last"), `${at}.registers.last`, 1, 1);
      if (registers.size !== 2) c.fail(`${at}.registers`, "has others than 'past' and 'last'");
      let inputs = 0;
      let outputs = 0;
      const slots = parseSlots(c, plan.get("slots"), `${at}.slots`, weights, computed);
      slots.forEach(({ name, kind, dtype, bytes }, s) => {
        const path = `${at}.slots[${s}]`;
        if (kind === "weight") return;
        if (kind === "state") {
          if (weights.has(name)) c.fail(path, `has the name of the weight '${name}'`);
          if (adapters.get(name) !== bytes)
            c.fail(
              path,
              `is the state '${name}' of ${bytes} bytes, which no adapter in 'training' has`,
            );
        } else if (kind === "cache") {
          if (caches.get(name) !== bytes)
            c.fail(
              path,
              `is the cache '${name}' of ${bytes} bytes, which decoder.caches does not have`,
            );
        } else if (kind === "computed") {
          if (caches.has(name)) c.fail(path, `has the name of the cache '${name}'`);
        } else if (kind === "input") {
          if (name !== "input_ids" || dtype !== "int64" || bytes !== 8 * tokens || ++inputs > 1)
            c.fail(path, `is not the one input 'input_ids', int64 [1, ${tokens}]`);
        } else if (
          name !== "logits" ||
          dtype !== "float32" ||
          bytes !== 4 * vocabSize ||
          ++outputs > 1
        )
          c.fail(path, `is not the one output 'logits', float32 [1, ${vocabSize}]`);
      });
      if (!inputs || !outputs) c.fail(at, "lacks the input 'input_ids' or the output 'logits'");
      return { tokens, file, registers: { past, last }, slots };
    });
  plans.sort((a, b) => a.tokens - b.tokens);
  if (!plans.length) c.fail("decoder.plans", "has no plan");
  if (recompute && plans.at(-1)!.tokens !== capacity)
    c.fail("decoder.plans", "has no plan for as many tokens as a sequence may have");
  plans.forEach(
    (plan, i) =>
      i &&
      plan.tokens === plans[i - 1]!.tokens &&
      c.fail("decoder.plans", `has two plans for ${plan.tokens} tokens`),
  );
  return {
    recompute,
    capacity,
    vocabSize,
    cacheDtype,
    caches: Array.from(caches, ([name, bytes]) => ({ name, bytes })),
    plans,
  };
}

/** A package of which the manifest has been read. */
export interface OpenPackage {
  manifest: Manifest;
  /** The files that are read whole: all but `weights`. Filled by `finish`. */
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /**
   * Reads on to the end: fills `files`, and hands over the ranges that are wanted of each file in
   * the package.
   */
  finish(wanted: Map<string, Extent[]>): Promise<void>;
}

/** Every plan of a manifest: its file and its slots. */
function plansOf({
  decoder,
  inference,
  training,
}: Manifest): { file: string; slots: readonly Slot[] }[] {
  return [
    ...(decoder?.plans ?? []),
    ...(inference?.plans ?? []).filter((p) => p.file),
    ...[...training.values()].flatMap(({ plans }) => [...plans.values()]),
  ];
}

/**
 * Compares the slots that a manifest describes with those in the plan's bytes (core/engine.h): as
 * many, of the same sizes, and none writable that several plans or sequences read.
 * @throws PackageError
 * /
 */
function checkSlotTable(
  plan: Uint8Array,
  slots: readonly Slot[],
  where: string,
  file: string,
): void {
  const c = new Checker(where);
  if (plan.length < 56 || String.fromCharCode(...plan.subarray(0, 8)) !== "EDGEPLN1")
    c.fail(`file '${file}'`, "in it is no plan");
  const view = new DataView(plan.buffer, plan.byteOffset, plan.length);
  const [count, at] = [view.getUint32(16, true), Number(view.getBigUint64(48, true))];
  if (count !== slots.length || at + 16 * count > plan.length)
    c.fail(`file '${file}'`, `in it has ${count} slots, the manifest describes ${slots.length}`);
  slots.forEach(({ name, kind, bytes }, i) => {
    const [found, flags] = [
      view.getBigUint64(at + 16 * i, true),
      view.getUint32(at + 16 * i + 8, true),
    ];
    if (found !== BigInt(bytes))
      c.fail(
        `slot '${name.slice(0, 100)}' of '${file}'`,
        `has ${found} bytes, the manifest says ${bytes}`,
      );
    if (flags & 1 && !WRITABLE_KINDS.includes(kind))
      c.fail(
        `slot '${name.slice(0, 100)}' of '${file}'`,
        `can be written, though it is of the kind '${kind}'`,
      );
  });
}

/**
 * Reads the head of a package from a source and checks the manifest. The rest is read by `finish`,
 * in one pass.
 * @param beside weights may lie in files that are not in the package, as in what a page compiled
 *   for itself /
 */
export async function openPackage(source: ByteSource, beside = false): Promise<OpenPackage> {
  await source.open();
  const where = source.name;
  const cut = () =>
    new PackageError(
      "the file ends too early",
      where,
      "The package is cut off: fetch or build it again.",
    );
  const stream = source.stream();
  let head: Uint8Array = new Uint8Array(0);
  const read = async (bytes: number) => {
    const parts = [head];
    let have = head.length;
    while (have < bytes) {
      const { done, value } = await stream.next();
      if (done) throw have >= 8 || isMagic(head) ? cut() : notPackage(where);
      parts.push(value.slice());
      have += value.length;
      if (have >= 8 && parts[0]!.length < 8) {
        parts.splice(0, parts.length, concat(parts, have));
        if (!isMagic(parts[0]!)) throw notPackage(where);
      }
    }
    head = concat(parts, have);
  };
  try {
    await read(HEADER);
    if (!isMagic(head)) throw notPackage(where);
    const view = new DataView(head.buffer, head.byteOffset);
    const length = view.getBigUint64(8, true);
    if (
      length > BigInt(MAX_MANIFEST) ||
      (source.size !== undefined && length > BigInt(source.size - HEADER))
    )
      throw new PackageError(
        `its manifest is said to have ${length} bytes`,
        where,
        "The package is cut off or damaged: fetch or build it again.",
      );
    const dataAt = Math.ceil((HEADER + Number(length)) / ALIGN) * ALIGN;
    await read(HEADER + Number(length));
    let text: string;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
        head.subarray(HEADER, HEADER + Number(length)),
      );
    } catch {
      throw new PackageError(
        "its manifest is not UTF-8",
        where,
        "The package is damaged: fetch or build it again.",
      );
    }
    const manifest = parseManifest(
      text,
      where,
      source.size === undefined ? undefined : Math.max(0, source.size - dataAt),
      beside,
    );
    if (signed(text) !== text)
      throw new PackageError(
        "its manifest is not what its checksum says",
        where,
        "The package is damaged: fetch or build it again.",
      );
    const files = new Map<string, Uint8Array<ArrayBuffer>>();
    const finish = async (wanted: Map<string, Extent[]>) => {
      const extents: Extent[] = [];
      let end = head.length;
      for (const [name, { offset, bytes }] of manifest.files) {
        end = Math.max(end, dataAt + offset + bytes);
        for (const e of wanted.get(name) ?? [])
          extents.push({ start: dataAt + offset + e.start, bytes: e.bytes, write: e.write });
        if (name === "weights") continue;
        const target = new Uint8Array(bytes);
        files.set(name, target);
        extents.push({
          start: dataAt + offset,
          bytes,
          write: (chunk, at) => target.set(chunk, at),
        });
      }
      const reached = await scatter(prepend(head, stream), 0, extents, end + (1 << 20));
      if (reached < end) throw cut();
      for (const [name, digest] of manifest.sha256) {
        const bytes = files.get(name);
        if (bytes && sha256(bytes) !== digest)
          throw new PackageError(
            `file '${name}' in it is not what its checksum says`,
            where,
            "The package is damaged: fetch or build it again.",
          );
      }
      for (const { file, slots } of plansOf(manifest))
        checkSlotTable(files.get(file)!, slots, where, file);
    };
    return { manifest, files, finish };
  } catch (e) {
    await stream.return(undefined);
    throw e;
  }
}

async function* prepend(
  head: Uint8Array,
  rest: AsyncGenerator<Uint8Array<ArrayBuffer>>,
): AsyncGenerator<Uint8Array> {
  try {
    yield head;
    yield* rest;
  } finally {
    await rest.return(undefined);
  }
}

function notPackage(where: string): PackageError {
  return new PackageError(
    "it is not an Edgewise package",
    where,
    "A package is made by `edgewise build model-dir -o model.edge`; check that the address " +
      "is the file's own and not that of a web page.",
  );
}

function concat(parts: Uint8Array[], bytes: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** A manifest's JSON with its own SHA-256, taken with zeros in its place, at its beginning. */
function signed(text: string): string {
  const rest = text.slice(SUM.length + DIGITS);
  return SUM + sha256(SUM + "0".repeat(DIGITS) + rest) + rest;
}

/**
 * Makes a package: the inverse of `openPackage`, for the page's cache. `manifest.files` and
 * `manifest.sha256` are made here.
 */
export function makePackage(
  manifest: Record<string, unknown>,
  files: Map<string, Uint8Array<ArrayBuffer>>,
): Blob {
  const table: Record<string, [number, number]> = {};
  const digests: Record<string, string> = {};
  const parts: BlobPart[] = [];
  let at = 0;
  for (const [name, bytes] of files) {
    table[name] = [at, bytes.length];
    digests[name] = sha256(bytes);
    const padded = Math.ceil(bytes.length / ALIGN) * ALIGN;
    parts.push(bytes, new Uint8Array(padded - bytes.length));
    at += padded;
  }
  const { manifest_sha256: _, ...rest } = manifest;
  const json = new TextEncoder().encode(
    signed(
      JSON.stringify({
        manifest_sha256: "0".repeat(DIGITS),
        ...rest,
        format: FORMAT,
        files: table,
        sha256: digests,
      }),
    ),
  );
  const head = new Uint8Array(Math.ceil((HEADER + json.length) / ALIGN) * ALIGN);
  head.set(new TextEncoder().encode(MAGIC));
  new DataView(head.buffer).setBigUint64(8, BigInt(json.length), true);
  head.set(json, HEADER);
  return new Blob([head, ...parts]);
}
