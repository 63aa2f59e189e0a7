// A package: a manifest (JSON) and files in one container, `.edge`:
//     "EDGEWISE", u64 length of the JSON, the JSON, zeros up to a multiple of 64, data (the manifest's offsets count from here)
// It may come from anywhere, so every number is checked before anything is allocated; the plans in it are checked by the engine.

import { Checker, MAX_MEMORY, parseSlot, type Json, type Slot, type Weight } from "./checker.ts";
import { PackageError } from "./errors.ts";
import { parseInference, type InferenceInfo } from "./inference/manifest.ts";
import { megabytes } from "./engine.ts";
import { sha256 } from "./sha256.ts";
import { scatter, type ByteSource, type Extent } from "./source.ts";

export type { Slot, Weight };

/** What packages begin with. */
export const MAGIC = "EDGEWISE";
const HEADER = 16;
const ALIGN = 64;
const MAX_JSON = 64 << 20;
const MAX_FILE = 1 << 30; // of the files that are read whole: plans, tokenizer, configs

/** A plan for `tokens` tokens at once. `registers`: numbers of those that hold the past length and the last token's place. */
export interface PlanInfo { tokens: number; file: string; registers: { past: number; last: number }; slots: Slot[] }
/** What keys and values of attention can be kept as. */
export type CacheDType = "float32" | "float16";
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
/** A tensor that persists between runs, and how it begins: as a weight of the package, filled with a number, or random. */
export interface StateInfo {
  name: string;
  kind: "parameter" | "adapter" | "buffer" | "optimizer" | "gradient" | "step";
  dtype: string;
  shape: number[];
  bytes: number;
  initial: ["constant", string] | ["fill", number] | ["uniform" | "normal", number, number];
}
/** Fields of PEFT's adapter_config.json that the program was made with. */
export interface LoraInfo { r: number; lora_alpha: number; use_rslora: boolean; [field: string]: unknown }
/** A way to train the model: plans for a batch of `batch` rows of `sequence` tokens, and the states they share. */
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

const STATE_KINDS = new Set(["parameter", "adapter", "buffer", "optimizer", "gradient", "step"]);
const BYTES: Record<string, number> = { float32: 4, int64: 8, int32: 4, float16: 2, bfloat16: 2, int8: 1, uint8: 1 };

/**
 * Checks a manifest.
 * @param text the JSON
 * @param where the package's name, for errors
 * @param dataBytes how many bytes of data there are, where known
 */
export function parseManifest(text: string, where: string, dataBytes: number | undefined): Manifest {
  const c = new Checker(where);
  let json: Json;
  try {
    json = JSON.parse(text) as Json;
  } catch {
    return c.fail("the manifest", "is not JSON");
  }
  const root = c.object(json, "the manifest");
  const format = root.get("format") ?? null;
  if (format !== 1)
    throw new PackageError(`its format is ${JSON.stringify(format)?.slice(0, 40)}; this version of Edgewise reads format 1`, where, "Build the package again with the same version of Edgewise as the page's.");
  const tableHash = c.integer(root.get("table_hash"), "table_hash", 0, 0xffff_ffff);
  const task = c.text(root.get("task"), "task");
  const kernels = c.list(root.get("kernels") ?? [], "kernels", 1000).map((k) => c.text(k, "kernels"));

  const files: Manifest["files"] = new Map();
  const end = dataBytes ?? Number.MAX_SAFE_INTEGER;
  for (const [name, value] of c.object(root.get("files"), "files")) {
    const pair = c.list(value, `files[${JSON.stringify(name)}]`, 2);
    const offset = c.integer(pair[0], `the offset of file '${name}'`, 0, Number.MAX_SAFE_INTEGER);
    const bytes = c.integer(pair[1], `the size of file '${name}'`, 0, name === "weights" ? Number.MAX_SAFE_INTEGER : MAX_FILE);
    if (offset + bytes > end) {
      throw new PackageError(`file '${name}' in it ends at byte ${offset + bytes} of the data, which has ${end}`, where, "The package is cut off or damaged: fetch it again.");
    }
    files.set(name, { offset, bytes });
  }
  // No two files may share bytes: otherwise a short package could ask for any amount of memory.
  let reached = 0;
  for (const [name, { offset, bytes }] of [...files].filter(([, f]) => f.bytes > 0).sort((a, b) => a[1].offset - b[1].offset)) {
    if (offset < reached) c.fail(`file '${name}'`, "overlaps another one");
    reached = offset + bytes;
  }
  const digests: Manifest["sha256"] = new Map();
  const digestsJson = root.get("sha256");
  if (digestsJson !== undefined)
    for (const [name, value] of c.object(digestsJson, "sha256")) {
      if (!files.has(name)) c.fail(`sha256['${name}']`, "is of a file that is not there");
      const digest = c.text(value, `sha256['${name}']`);
      if (!/^[0-9a-f]{64}$/.test(digest)) c.fail(`sha256['${name}']`, "is not a SHA-256");
      digests.set(name, digest);
    }

  const weights: Manifest["weights"] = new Map();
  let total = 0;
  c.list(root.get("weights"), "weights").forEach((value, i) => {
    const w = c.object(value, `weights[${i}]`);
    const name = c.text(w.get("name"), `weights[${i}].name`);
    const file = c.text(w.get("file"), `weights[${i}].file`);
    const offset = c.integer(w.get("offset"), `weights[${i}].offset`, 0, Number.MAX_SAFE_INTEGER);
    const bytes = c.integer(w.get("bytes"), `weights[${i}].bytes`, 0, MAX_MEMORY);
    // Files that are not in the package are the model's own, beside it: their sizes are checked when they are read.
    const inside = files.get(file);
    if (!inside && file === "weights") c.fail(`weights[${i}]`, "lies in the file 'weights', which is not there");
    if (inside && offset + bytes > inside.bytes) c.fail(`weights[${i}]`, `ends at byte ${offset + bytes} of the file '${file}', which has ${inside.bytes}`);
    if (weights.has(name)) c.fail(`weights[${i}]`, `has the name '${name}' of another one`);
    weights.set(name, { name, file, offset, bytes });
    total += bytes;
  });
  if (total > MAX_MEMORY) c.fail("weights", `take ${megabytes(total)} together; a page has at most 4096 MB`);

  const training = parseTraining(c, root.get("training"), files, weights);
  // The states that plans of the decoder read are those of adapters; their names are one program's.
  const adapters = new Map<string, number>();
  for (const program of training.values())
    for (const state of program.states.values())
      if (state.kind === "adapter") {
        if (adapters.has(state.name)) c.fail(`training '${program.name}'`, `has the adapter '${state.name}' of another program`);
        adapters.set(state.name, state.bytes);
      }
  const inference = task === "inference" ? parseInference(c, root.get("inference"), files, weights) : undefined;
  const decoder = inference ? undefined : parseDecoder(c, root.get("decoder"), files, weights, adapters);
  return { tableHash, task, kernels, files, sha256: digests, weights, decoder, inference, training, cache: root.get("cache") };
}

function parseTraining(c: Checker, json: Json | undefined, files: Manifest["files"], weights: Manifest["weights"]): Manifest["training"] {
  const programs: Manifest["training"] = new Map();
  if (json === undefined) return programs;
  c.list(json, "training", 16).forEach((value, p) => {
    const at = `training[${p}]`;
    const root = c.object(value, at);
    const name = c.text(root.get("name"), `${at}.name`);
    if (programs.has(name)) c.fail(at, `has the name '${name}' of another one`);
    if (root.get("task") !== "causal_lm") c.fail(`${at}.task`, "is not 'causal_lm'");
    const batch = c.integer(root.get("batch"), `${at}.batch`, 1, 1 << 20);
    const sequence = c.integer(root.get("sequence"), `${at}.sequence`, 2, 1 << 24);

    const states: ProgramInfo["states"] = new Map();
    let total = 0;
    c.list(root.get("states"), `${at}.states`).forEach((entry, s) => {
      const path = `${at}.states[${s}]`;
      const state = c.object(entry, path);
      const stateName = c.text(state.get("name"), `${path}.name`);
      const kind = c.text(state.get("kind"), `${path}.kind`);
      if (!STATE_KINDS.has(kind)) c.fail(`${path}.kind`, `is '${kind.slice(0, 40)}'`);
      const dtype = c.text(state.get("dtype"), `${path}.dtype`);
      const shape = c.shape(state.get("shape"), `${path}.shape`);
      const bytes = c.integer(state.get("bytes"), `${path}.bytes`, 0, MAX_MEMORY);
      if (shape.reduce((a, b) => a * b, 1) * (BYTES[dtype] ?? NaN) !== bytes) c.fail(path, `has ${bytes} bytes, which are not those of ${dtype.slice(0, 40)} [${shape.join(", ")}]`);
      const how = c.list(state.get("initial"), `${path}.initial`, 3);
      let initial: StateInfo["initial"];
      if (how[0] === "constant") {
        initial = ["constant", c.text(how[1], `${path}.initial[1]`)];
        if (!weights.has(initial[1])) c.fail(path, `begins as the weight '${initial[1]}', which is not in the package`);
      } else if (how[0] === "fill") initial = ["fill", c.number(how[1], `${path}.initial[1]`)];
      else if (how[0] === "uniform" || how[0] === "normal") initial = [how[0], c.number(how[1], `${path}.initial[1]`), c.integer(how[2], `${path}.initial[2]`, 0, 1 << 30)];
      else c.fail(`${path}.initial`, "is none of 'constant', 'fill', 'uniform' and 'normal'");
      if (states.has(stateName)) c.fail(path, `has the name '${stateName}' of another one`);
      states.set(stateName, { name: stateName, kind: kind as StateInfo["kind"], dtype, shape, bytes, initial });
      total += bytes;
    });
    if (total > MAX_MEMORY) c.fail(`${at}.states`, `take ${megabytes(total)} together; a page has at most 4096 MB`);

    const plans: ProgramInfo["plans"] = new Map();
    const described = c.object(root.get("plans"), `${at}.plans`);
    for (const kind of TRAINING_PLANS) {
      const path = `${at}.plans.${kind}`;
      const plan = c.object(described.get(kind), path);
      const file = c.text(plan.get("file"), `${path}.file`);
      if (!files.has(file)) c.fail(`${path}.file`, `is '${file}', which is not in the package`);
      const arenaBytes = c.integer(plan.get("arena_bytes"), `${path}.arena_bytes`, 0, Number.MAX_SAFE_INTEGER);
      const ids = 8 * batch * sequence;
      const inputs: Record<string, [string, number]> = { input_ids: ["int64", ids], labels: ["int64", ids], learning_rate: ["float32", 4], gradient_scale: ["float32", 4], seed: ["int64", 8] };
      const slots = c.list(plan.get("slots"), `${path}.slots`).map((entry, s): Slot => {
        const slot = parseSlot(c, entry, `${path}.slots[${s}]`, weights);
        const where = `${path}.slots[${s}]`;
        if (slot.kind === "state" && states.get(slot.name)?.bytes !== slot.bytes) c.fail(where, `is the state '${slot.name}' of ${slot.bytes} bytes, which ${at}.states does not have`);
        if (slot.kind === "cache") c.fail(where, "is a cache, which training has not");
        if (slot.kind === "input") {
          const known = Object.hasOwn(inputs, slot.name) ? inputs[slot.name] : undefined;
          if (!known || slot.dtype !== known[0] || slot.bytes !== known[1]) c.fail(where, `is an input '${slot.name}' (${slot.dtype.slice(0, 40)}, ${slot.bytes} bytes) that training does not feed`);
        }
        if (slot.kind === "output" && (slot.name !== "loss" || slot.dtype !== "float32" || slot.bytes !== 4)) c.fail(where, "is not the one output 'loss', float32");
        return slot;
      });
      const names = new Set(slots.filter((s) => s.kind === "input" || s.kind === "output").map((s) => s.name));
      const wanted = { train: ["input_ids", "labels", "learning_rate", "loss"], accumulate: ["input_ids", "labels", "loss"], update: ["learning_rate", "gradient_scale"], evaluate: ["input_ids", "labels", "loss"], initialize: [] }[kind];
      for (const one of wanted) if (!names.has(one)) c.fail(path, `lacks '${one}'`);
      plans.set(kind, { file, slots, arenaBytes });
    }

    const optimizer = c.object(root.get("optimizer"), `${at}.optimizer`);
    const type = c.text(optimizer.get("type"), `${at}.optimizer.type`);
    const lr = c.number(optimizer.get("lr"), `${at}.optimizer.lr`);
    let lora: LoraInfo | null = null;
    if (root.get("lora") !== null && root.get("lora") !== undefined) {
      const config = c.object(root.get("lora"), `${at}.lora`);
      const r = c.integer(config.get("r"), `${at}.lora.r`, 1, 1 << 16);
      lora = { ...Object.fromEntries(config), r, lora_alpha: c.number(config.get("lora_alpha"), `${at}.lora.lora_alpha`), use_rslora: config.get("use_rslora") === true };
    }
    const token = (field: string) => {
      const id = root.get(field);
      return id === null || id === undefined ? undefined : c.integer(id, `${at}.${field}`, 0, 1 << 24);
    };
    const norm = root.get("max_grad_norm");
    programs.set(name, { name, batch, sequence, lora, optimizer: { ...Object.fromEntries(optimizer), type, lr }, maxGradNorm: norm === null || norm === undefined ? null : c.number(norm, `${at}.max_grad_norm`),
      plans, states, padTokenId: token("pad_token_id"), eosTokenId: token("eos_token_id") });
  });
  return programs;
}

function parseDecoder(c: Checker, json: Json | undefined, files: Manifest["files"], weights: Manifest["weights"], adapters: Map<string, number>): DecoderInfo {
  const root = c.object(json, "decoder");
  const capacity = c.integer(root.get("capacity"), "decoder.capacity", 1, 1 << 24);
  const vocabSize = c.integer(root.get("vocab_size"), "decoder.vocab_size", 1, 1 << 24);
  const recompute = root.get("recompute") === true;
  if (root.get("logits_type") !== "float32") c.fail("decoder.logits_type", "is not 'float32'");

  const cacheDtype = (root.get("cache_dtype") ?? "float32") as CacheDType;
  if (cacheDtype !== "float32" && cacheDtype !== "float16") c.fail("decoder.cache_dtype", "is neither 'float32' nor 'float16'");
  const caches = new Map<string, number>();
  let total = 0;
  c.list(root.get("caches"), "decoder.caches", 100_000).forEach((value, i) => {
    const cache = c.object(value, `decoder.caches[${i}]`);
    const name = c.text(cache.get("name"), `decoder.caches[${i}].name`);
    if (caches.has(name)) c.fail(`decoder.caches[${i}]`, `has the name '${name}' of another one`);
    const bytes = c.integer(cache.get("bytes"), `decoder.caches[${i}].bytes`, 0, MAX_MEMORY);
    caches.set(name, bytes);
    total += bytes;
  });
  if (total > MAX_MEMORY) c.fail("decoder.caches", `take ${megabytes(total)} together`);

  const computed = new Map<string, number>();
  const plans = c.list(root.get("plans"), "decoder.plans", 64).map((value, p): PlanInfo => {
    const at = `decoder.plans[${p}]`;
    const plan = c.object(value, at);
    const tokens = c.integer(plan.get("tokens"), `${at}.tokens`, 1, capacity);
    const file = c.text(plan.get("file"), `${at}.file`);
    if (!files.has(file)) c.fail(`${at}.file`, `is '${file}', which is not in the package`);
    const registers = c.object(plan.get("registers"), `${at}.registers`);
    const past = c.integer(registers.get("past"), `${at}.registers.past`, 0, 1023);
    const last = c.integer(registers.get("last"), `${at}.registers.last`, 0, 1023);
    let inputs = 0;
    let outputs = 0;
    const slots = c.list(plan.get("slots"), `${at}.slots`).map((entry, s): Slot => {
      const path = `${at}.slots[${s}]`;
      const slot = parseSlot(c, entry, path, weights);
      const { name, kind, dtype, bytes } = slot;
      if (kind === "weight") return slot;
      if (kind === "state") {
        if (adapters.get(name) !== bytes) c.fail(path, `is the state '${name}' of ${bytes} bytes, which no adapter in 'training' has`);
      } else if (kind === "cache") {
        if (!caches.has(name)) c.fail(path, `is the cache '${name}', which decoder.caches does not have`);
        if (caches.get(name)! < bytes) c.fail(path, `needs ${bytes} bytes of the cache '${name}', which has ${caches.get(name)}`);
      } else if (kind === "computed") {
        if (weights.has(name) || caches.has(name)) c.fail(path, `has the name of a weight or cache, '${name}'`);
        if ((computed.get(name) ?? bytes) !== bytes) c.fail(path, `has ${bytes} bytes, but ${computed.get(name)} in another plan`);
        computed.set(name, bytes);
      } else if (kind === "input") {
        if (name !== "input_ids" || dtype !== "int64" || bytes !== 8 * tokens || ++inputs > 1) c.fail(path, `is not the one input 'input_ids', int64 [1, ${tokens}]`);
      } else if (name !== "logits" || dtype !== "float32" || bytes !== 4 * vocabSize || ++outputs > 1) c.fail(path, `is not the one output 'logits', float32 [1, ${vocabSize}]`);
      return slot;
    });
    if (!inputs || !outputs) c.fail(at, "lacks the input 'input_ids' or the output 'logits'");
    return { tokens, file, registers: { past, last }, slots };
  });
  plans.sort((a, b) => a.tokens - b.tokens);
  if (!plans.length || (!recompute && plans[0]!.tokens !== 1)) c.fail("decoder.plans", "lacks a plan for one token");
  if (recompute && caches.size) c.fail("decoder.caches", "are there, though 'recompute' says that there are none");
  plans.forEach((plan, i) => i && plan.tokens === plans[i - 1]!.tokens && c.fail("decoder.plans", `has two plans for ${plan.tokens} tokens`));
  let memory = 0;
  for (const bytes of computed.values()) memory += bytes;
  if (memory > MAX_MEMORY) c.fail("decoder.plans", `compute ${megabytes(memory)} of constants`);
  return { recompute, capacity, vocabSize, cacheDtype, caches: Array.from(caches, ([name, bytes]) => ({ name, bytes })), plans };
}

/** A package of which the manifest has been read. */
export interface OpenPackage {
  manifest: Manifest;
  /** The files that are read whole: all but `weights`. Filled by `finish`. */
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /** Reads on to the end: fills `files`, and hands over the ranges that are wanted of each file in the package. */
  finish(wanted: Map<string, Extent[]>): Promise<void>;
}

/** Reads the head of a package from a source and checks the manifest. The rest is read by `finish`, in one pass. */
export async function openPackage(source: ByteSource): Promise<OpenPackage> {
  await source.open();
  const where = source.name;
  const cut = () => new PackageError("the file ends too early", where, "The package is cut off: fetch or build it again.");
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
    if (length > BigInt(MAX_JSON) || (source.size !== undefined && length > BigInt(source.size - HEADER)))
      throw new PackageError(`its manifest is said to have ${length} bytes`, where, "The package is cut off or damaged: fetch or build it again.");
    const dataAt = Math.ceil((HEADER + Number(length)) / ALIGN) * ALIGN;
    await read(HEADER + Number(length));
    let text: string;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(head.subarray(HEADER, HEADER + Number(length)));
    } catch {
      throw new PackageError("its manifest is not UTF-8", where, "The package is damaged: fetch or build it again.");
    }
    const manifest = parseManifest(text, where, source.size === undefined ? undefined : Math.max(0, source.size - dataAt));
    const files = new Map<string, Uint8Array<ArrayBuffer>>();
    const finish = async (wanted: Map<string, Extent[]>) => {
      const extents: Extent[] = [];
      let end = head.length;
      for (const [name, { offset, bytes }] of manifest.files) {
        end = Math.max(end, dataAt + offset + bytes);
        for (const e of wanted.get(name) ?? []) extents.push({ start: dataAt + offset + e.start, bytes: e.bytes, write: e.write });
        if (name === "weights") continue;
        const target = new Uint8Array(bytes);
        files.set(name, target);
        extents.push({ start: dataAt + offset, bytes, write: (chunk, at) => target.set(chunk, at) });
      }
      const reached = await scatter(prepend(head, stream), 0, extents, end + (1 << 20));
      if (reached < end) throw cut();
      for (const [name, digest] of manifest.sha256) {
        const bytes = files.get(name);
        if (bytes && sha256(bytes) !== digest)
          throw new PackageError(`file '${name}' in it is not what its checksum says`, where, "The package is damaged: fetch or build it again.");
      }
    };
    return { manifest, files, finish };
  } catch (e) {
    await stream.return(undefined);
    throw e;
  }
}

async function* prepend(head: Uint8Array, rest: AsyncGenerator<Uint8Array<ArrayBuffer>>): AsyncGenerator<Uint8Array> {
  try {
    yield head;
    yield* rest;
  } finally {
    await rest.return(undefined);
  }
}

/** Whether a file begins as a package does. */
export function isMagic(bytes: Uint8Array): boolean {
  return bytes.length >= 8 && String.fromCharCode(...bytes.subarray(0, 8)) === MAGIC;
}

function notPackage(where: string): PackageError {
  return new PackageError("it is not an Edgewise package", where, "A package is made by `edgewise build model-dir -o model.edge`; check that the address is the file's own and not that of a web page.");
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

/** Makes a package: the inverse of `openPackage`, for the page's cache. `manifest.files` and `manifest.sha256` are made here. */
export function makePackage(manifest: Record<string, unknown>, files: Map<string, Uint8Array<ArrayBuffer>>): Blob {
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
  const json = new TextEncoder().encode(JSON.stringify({ ...manifest, files: table, sha256: digests }));
  const head = new Uint8Array(Math.ceil((HEADER + json.length) / ALIGN) * ALIGN);
  head.set(new TextEncoder().encode(MAGIC));
  new DataView(head.buffer).setBigUint64(8, BigInt(json.length), true);
  head.set(json, HEADER);
  return new Blob([head, ...parts]);
}
