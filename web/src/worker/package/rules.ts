// Rules of manifests that follow from several fields: of slots and plans, as
// python/edgewise/compiler/manifest/rules.py has them. They are for values that agree with the
// schema.

import {
  MAX_DRAWN,
  MAX_LENGTH,
  MAX_TEMPS,
  STATE_SIZES,
  TRAINING_NAMES,
  WEIGHT_FILES,
} from "../../gen/manifest.ts";
import type {
  Cache,
  Decoder,
  Encoder,
  ManifestSlot,
  PlanFile,
  Processor,
  Seq2SeqDecoder,
  Seq2SeqPlan,
  SpeechFields,
  State,
  TrainingPlan,
  TrainingPlans,
  TrainingProgram,
} from "../../gen/schema.ts";
import type { Checker } from "./checker.ts";

/** dtype and bytes of an input or output; undefined: any number. */
type End = [dtype: string, bytes: number | undefined];
type Ends = Map<string, End>;
type Caches = ReadonlyMap<string, number>;

const MAX_SPEECH_TOKENS = 1 << 16;
const MAX_ID = 2 ** 31;

/** What plans of the package may refer to. */
export interface Contents {
  files: { has(name: string): boolean };
  weights: ReadonlyMap<string, { bytes: number }>;
  /** Bytes of the adapters' states, which the decoder's plans read. */
  adapters: Map<string, number>;
  /** Bytes of each computed slot; plans share their memory. */
  computed: Map<string, number>;
  /** Whether the package is in the page's own storage, where weights may be in other files. */
  own: boolean;
}

// ---- slots
/** Checks the file of a plan, and its slots. */
export function checkPlan(c: Checker, plan: PlanFile, at: string, contents: Contents): void {
  checkPlanFile(c, plan.file, at, contents);
  checkSlots(c, plan.slots, `${at}.slots`, contents);
}

/** Checks that the file of a plan is in the package. */
export function checkPlanFile(c: Checker, file: string, at: string, contents: Contents): void {
  if (!contents.files.has(file) || WEIGHT_FILES.includes(file))
    c.fail(`${at}.file`, `is '${file}', which is not a plan in the package`);
}

/** Checks the rules that hold for the slots of all plans; adds computed slots to `contents`. */
export function checkSlots(
  c: Checker,
  slots: readonly ManifestSlot[],
  at: string,
  contents: Contents,
): void {
  const names = new Set<string>();
  slots.forEach((slot, i) => {
    const key = `${slot.kind} ${slot.name}`;
    if (names.has(key)) c.fail(`${at}[${i}]`, `has the duplicate name '${slot.name}'`);
    names.add(key);
    checkSlot(c, slot, `${at}[${i}]`, contents);
  });
  const temps = slots.filter(({ kind }) => kind === "temp").length;
  if (temps > MAX_TEMPS) c.fail(at, `has ${temps} slots of kind 'temp'`);
}

function checkSlot(
  c: Checker,
  { name, kind, dtype, shape, bytes }: ManifestSlot,
  path: string,
  { weights, computed }: Contents,
): void {
  if (kind === "weight") {
    const weight = weights.get(name);
    if (!weight) c.fail(path, `is the weight '${name}', which is not in the package`);
    if (weight.bytes !== bytes)
      c.fail(path, `has ${bytes} bytes, the weight '${name}' has ${weight.bytes}`);
  }
  if (kind === "state") checkSize(c, dtype, shape, bytes, path);
  if (kind === "computed") {
    if (weights.has(name)) c.fail(path, `has the same name as the weight '${name}'`);
    const there = computed.get(name) ?? bytes;
    computed.set(name, there);
    if (there !== bytes) c.fail(path, `has ${bytes} bytes, but ${there} in another plan`);
  }
}

/** Checks the bytes of a state. */
function checkSize(
  c: Checker,
  dtype: string,
  shape: readonly number[],
  bytes: number,
  path: string,
): void {
  const size = Object.hasOwn(STATE_SIZES, dtype) ? STATE_SIZES[dtype]! : Number.NaN;
  if (product(shape) * size !== bytes)
    c.fail(
      path,
      `has ${bytes} bytes, which do not match ${dtype.slice(0, 40)} [${shape.join(", ")}]`,
    );
}

/** Product of dimensions. */
export function product(shape: readonly number[]): number {
  return shape.reduce((n, d) => n * d, 1);
}

// ---- language models
/** Bytes of each cache. */
function cachesOf(c: Checker, caches: readonly Cache[], at: string): Map<string, number> {
  const found = new Map<string, number>();
  caches.forEach(({ name, bytes }, i) => {
    if (found.has(name)) c.fail(`${at}[${i}]`, `has the duplicate name '${name}'`);
    found.set(name, bytes);
  });
  return found;
}

/** Checks `decoder`, the part of a package of task "text-generation". */
export function checkDecoder(c: Checker, decoder: Decoder, contents: Contents): void {
  const { capacity, recompute, vocab_size: vocabulary } = decoder;
  if ((decoder.saved ?? null) !== null && c.list(decoder.saved, "decoder.saved").length)
    c.fail("decoder.saved", "is not empty: packages hold adapters only");
  if ((decoder.lora ?? null) !== null) c.object(decoder.lora, "decoder.lora");
  const caches = cachesOf(c, decoder.caches, "decoder.caches");
  if (recompute !== !caches.size) c.fail("decoder.recompute", "contradicts decoder.caches");
  const counts: number[] = [];
  decoder.plans.forEach((plan, i) => {
    const at = `decoder.plans[${i}]`;
    const { tokens } = plan;
    c.integer(tokens, `${at}.tokens`, 1, capacity);
    if (counts.includes(tokens)) c.fail("decoder.plans", `has two plans for ${tokens} tokens`);
    counts.push(tokens);
    checkPlan(c, plan, at, contents);
    if (Object.keys(plan.registers).length !== 2)
      c.fail(`${at}.registers`, "has registers other than 'past' and 'last'");
    const kinds = new Set<string>();
    plan.slots.forEach((slot, s) => {
      const path = `${at}.slots[${s}]`;
      kinds.add(slot.kind);
      checkDecoderSlot(c, slot, path, contents, caches);
      if (slot.kind === "input" && !is(slot, "input_ids", "int64", 8 * tokens))
        c.fail(path, `is not the one input 'input_ids', int64 [1, ${tokens}]`);
      if (slot.kind === "output" && !is(slot, "logits", "float32", 4 * vocabulary))
        c.fail(path, `is not the one output 'logits', float32 [1, ${vocabulary}]`);
    });
    if (!kinds.has("input") || !kinds.has("output"))
      c.fail(at, "lacks the input 'input_ids' or the output 'logits'");
  });
  if (!counts.length) c.fail("decoder.plans", "has no plan");
  if (recompute && Math.max(...counts) !== capacity)
    c.fail("decoder.plans", `has no plan for ${capacity} tokens`);
}

/** Checks slots that are bound to adapters' states or to caches. */
function checkDecoderSlot(
  c: Checker,
  { name, kind, bytes }: ManifestSlot,
  path: string,
  { weights, adapters }: Contents,
  caches: Caches,
): void {
  if (kind === "state" && weights.has(name))
    c.fail(path, `has the same name as the weight '${name}'`);
  if (kind === "state" && adapters.get(name) !== bytes)
    c.fail(path, `is the state '${name}' of ${bytes} bytes, which no adapter in 'training' has`);
  if (kind === "cache" && caches.get(name) !== bytes)
    c.fail(path, `is the cache '${name}' of ${bytes} bytes, which decoder.caches does not have`);
  if (kind === "computed" && caches.has(name))
    c.fail(path, `has the same name as the cache '${name}'`);
}

function is(slot: ManifestSlot, name: string, dtype: string, bytes: number): boolean {
  return slot.name === name && slot.dtype === dtype && slot.bytes === bytes;
}

// ---- encoder-decoder models
/** Checks `encoder` and `decoder` of a package. */
export function checkSeq2Seq(
  c: Checker,
  encoder: Encoder,
  decoder: Seq2SeqDecoder,
  contents: Contents,
): void {
  const caches = cachesOf(c, decoder.caches, "decoder.caches");
  const cross = cachesOf(c, decoder.cross, "decoder.cross");
  for (const name of cross.keys())
    if (caches.has(name)) c.fail("decoder.cross", `has '${name}' as well`);
  const positions = checkEncoder(c, encoder, contents, cross);
  const { capacity } = decoder;
  const kinds = new Set<string>();
  decoder.plans.forEach((plan, i) => {
    const at = `decoder.plans[${i}]`;
    const { kind, tokens } = plan;
    c.integer(tokens, `${at}.tokens`, 1, capacity);
    if (kind === "step" && tokens !== 1) c.fail(`${at}.tokens`, "is not 1");
    if (kinds.has(`${kind} ${tokens}`))
      c.fail("decoder.plans", `has two plans '${kind}' for ${tokens} tokens`);
    kinds.add(`${kind} ${tokens}`);
    if (Object.keys(plan.registers).length !== 3)
      c.fail(`${at}.registers`, "has registers other than 'past', 'last' and 'source'");
    checkPlan(c, plan, at, contents);
    const ends = endsOf(plan, decoder.vocab_size, positions);
    const frames = kind === "align" ? positions : 0;
    checkBound(c, plan.slots, at, new Map([...caches, ...cross]), ends, frames);
  });
  for (const [wanted, tokens] of [["step", 1] as const, ["first", capacity] as const])
    if (!kinds.has(`${wanted} ${tokens}`))
      c.fail("decoder.plans", `has no plan '${wanted}' for ${tokens} tokens`);
}

/** Inputs and outputs of a decoder's plan. */
function endsOf({ kind, tokens }: Seq2SeqPlan, vocabulary: number, positions: number): Ends {
  const ends: Ends = new Map([["input input_ids", ["int64", 8 * tokens]]]);
  if (kind === "align") {
    ends.set("input rows", ["float32", 4 * tokens]);
    ends.set("output alignment", ["float32", 4 * tokens * positions]);
  } else ends.set("output logits", ["float32", 4 * vocabulary]);
  return ends;
}

/** Checks the encoder's plans; returns the most positions of its output. */
function checkEncoder(c: Checker, encoder: Encoder, contents: Contents, cross: Caches): number {
  let most = 0;
  const { input: name, masked } = encoder;
  const count = name === "encoder_hidden_states" ? 1 : 2; // 1: a program is the encoder
  encoder.plans.forEach((entry, i) => {
    const at = `encoder.plans[${i}]`;
    const { size, plans } = entry;
    most = Math.max(most, c.integer(entry.positions, `${at}.positions`, 1, size));
    c.tuple(plans, `${at}.plans`, count);
    const ends: Ends = new Map();
    ends.set(`input ${name}`, name === "input_ids" ? ["int64", 8 * size] : ["float32", undefined]);
    if (masked) ends.set("input attention_mask", ["int64", 8 * size]);
    let hidden: number | undefined;
    plans.forEach((plan, k) => {
      const last = k === count - 1;
      const path = `${at}.plans[${k}]`;
      checkPlan(c, plan, path, contents);
      const kind = last ? "input" : "output";
      const slot = hiddenOf(c, plan, path, kind, hidden);
      hidden = slot.bytes;
      const allowed: Ends = new Map(last ? [] : ends);
      allowed.set(`${kind} ${slot.name}`, ["float32", hidden]);
      checkBound(c, plan.slots, path, last ? cross : new Map(), allowed, 0);
    });
  });
  if (!most) c.fail("encoder.plans", "has no plan");
  return most;
}

/**
 * The slot that is the encoder's output.
 * @param kind "output" of the encoder, or "input"
 * @param hidden bytes of the encoder's output, if known
 */
function hiddenOf(
  c: Checker,
  { slots }: PlanFile,
  path: string,
  kind: string,
  hidden: number | undefined,
): ManifestSlot {
  const [found, more] = slots.filter((slot) => slot.kind === kind);
  if (!found || more || found.dtype !== "float32")
    throw c.fail(path, `has not one ${kind} of float32`);
  if (hidden !== undefined && found.bytes !== hidden)
    c.fail(
      `${path}.slots[${slots.indexOf(found)}]`,
      `has not the ${hidden} bytes of the encoder's output`,
    );
  return found;
}

/**
 * Checks that a host can bind the slots of a plan.
 * @param caches that it may read or write
 * @param ends inputs and outputs, all of which it has
 * @param frames if not 0, there is also the input `frames`, of at least so many int64
 */
function checkBound(
  c: Checker,
  slots: readonly ManifestSlot[],
  at: string,
  caches: Caches,
  ends: Ends,
  frames: number,
): void {
  const missing = new Set(ends.keys());
  if (frames) missing.add("input frames");
  slots.forEach(({ name, kind, dtype, bytes }, i) => {
    const path = `${at}.slots[${i}]`;
    if (kind === "state") c.fail(path, "is a state, which such a plan cannot have");
    if (kind === "cache" && caches.get(name) !== bytes)
      c.fail(path, `is the cache '${name}' of ${bytes} bytes, which the decoder does not have`);
    if (kind === "computed" && caches.has(name))
      c.fail(path, `has the same name as the cache '${name}'`);
    if (kind !== "input" && kind !== "output") return;
    const end = `${kind} ${name}`;
    missing.delete(end);
    if (frames && end === "input frames") {
      if (dtype !== "int64" || bytes % 8 || bytes < 8 * frames)
        c.fail(path, `is not int64 of at least ${frames}`);
      return;
    }
    const want = ends.get(end);
    if (!want || dtype !== want[0] || (want[1] !== undefined && want[1] !== bytes))
      c.fail(path, `is the ${end}, ${dtype.slice(0, 40)} of ${bytes} bytes, which no host knows`);
  });
  const [lacks] = [...missing].sort();
  if (lacks) c.fail(at, `lacks the ${lacks}`);
}

// ---- training
/** Checks `training`; adds the programs' adapters to `contents`. */
export function checkTraining(
  c: Checker,
  programs: readonly TrainingProgram[],
  contents: Contents,
): void {
  const names = new Set<string>();
  programs.forEach((program, i) => {
    const at = `training[${i}]`;
    if (names.has(program.name)) c.fail(at, `has the duplicate name '${program.name}'`);
    names.add(program.name);
    const states = checkStates(c, program.states, `${at}.states`, contents);
    for (const kind of Object.keys(TRAINING_NAMES) as (keyof TrainingPlans)[])
      checkTrainingPlan(c, program, kind, at, states, contents);
    for (const { kind, name, bytes } of program.states)
      if (kind === "adapter") {
        if (contents.adapters.has(name))
          c.fail(`training '${program.name}'`, `has the adapter '${name}' of another program`);
        contents.adapters.set(name, bytes);
      }
  });
}

/** Bytes of each state. */
function checkStates(
  c: Checker,
  states: readonly State[],
  at: string,
  contents: Contents,
): Map<string, number> {
  const found = new Map<string, number>();
  states.forEach((state, i) => {
    const path = `${at}[${i}]`;
    checkSize(c, state.dtype, state.shape, state.bytes, path);
    checkInitial(c, state, path, contents);
    if (found.has(state.name)) c.fail(path, `has the duplicate name '${state.name}'`);
    found.set(state.name, state.bytes);
  });
  return found;
}

/** Checks ["constant", weight], ["fill", value], or [distribution, scale, stream]. */
function checkInitial(c: Checker, state: State, path: string, { weights }: Contents): void {
  const at = `${path}.initial`;
  const [method, first, second] = c.list(state.initial, at, 3);
  if (method === "constant") {
    const name = c.text(first, `${at}[1]`);
    if (!weights.has(name))
      c.fail(path, `is initialized from the weight '${name}', which is not in the package`);
  } else if (method === "fill" || method === "uniform" || method === "normal") {
    c.number(first, `${at}[1]`);
    if (method !== "fill") c.integer(second, `${at}[2]`, 0, MAX_DRAWN);
  } else c.fail(at, "is not one of 'constant', 'fill', 'uniform' and 'normal'");
}

/** Checks a plan of a program. `at`: the program's path. */
function checkTrainingPlan(
  c: Checker,
  program: TrainingProgram,
  kind: keyof TrainingPlans,
  at: string,
  states: ReadonlyMap<string, number>,
  contents: Contents,
): void {
  const plan: TrainingPlan = program.plans[kind];
  const path = `${at}.plans.${kind}`;
  checkPlan(c, plan, path, contents);
  const ids = 8 * program.batch * program.sequence;
  const inputs = new Map([
    ["input_ids", `int64 ${ids}`],
    ["labels", `int64 ${ids}`],
    ["learning_rate", "float32 4"],
    ["gradient_scale", "float32 4"],
    ["seed", "int64 8"],
  ]);
  const present = new Set<string>();
  plan.slots.forEach((slot, i) => {
    const where = `${path}.slots[${i}]`;
    const { name, kind: of, dtype, bytes } = slot;
    if (of === "state" && states.get(name) !== bytes)
      c.fail(where, `is the state '${name}' of ${bytes} bytes, which ${at}.states does not have`);
    if (of === "cache") c.fail(where, "is a cache, which training does not have");
    if (of === "input" && inputs.get(name) !== `${dtype} ${bytes}`) {
      const what = `is an input '${name}' (${dtype.slice(0, 40)}, ${bytes} bytes)`;
      c.fail(where, `${what} that training does not feed`);
    }
    if (of === "output" && !is(slot, "loss", "float32", 4))
      c.fail(where, "is not the one output 'loss', float32");
    if (of === "input" || of === "output") present.add(name);
  });
  for (const name of TRAINING_NAMES[kind]!) if (!present.has(name)) c.fail(path, `lacks '${name}'`);
}

// ---- processors
/** Checks `processor.speech`. */
function checkSpeech(c: Checker, speech: SpeechFields, at: string): void {
  c.integer(speech.most, `${at}.most`, speech.least, MAX_SPEECH_TOKENS);
  if (speech.length !== undefined) {
    const [low, high] = c.tuple(speech.frames, `${at}.frames`, 2);
    const least = c.integer(low, `${at}.frames[0]`, 0, MAX_LENGTH);
    c.integer(high, `${at}.frames[1]`, least, MAX_LENGTH);
  }
  const path = `${at}.vocabulary`;
  const lists = speech.type === "piper";
  const vocabulary = c.object(speech.vocabulary, path);
  for (const [unit, ids] of vocabulary)
    for (const id of lists ? c.list(ids, `${path}['${unit}']`) : [ids])
      c.integer(id, `${path}['${unit}']`, -MAX_ID, MAX_ID);
  if (lists) for (const mark of "^_$") if (!vocabulary.has(mark)) c.fail(path, `has no '${mark}'`);
}

/** Checks `processor` of a manifest. */
export function checkProcessor(c: Checker, processor: Processor): void {
  if (processor.speech) checkSpeech(c, processor.speech, "processor.speech");
}
