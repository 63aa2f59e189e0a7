// Validation of the decoder in a manifest.

import { MAX_CACHES, MAX_CAPACITY, MAX_DECODER_PLANS, MAX_VOCABULARY } from "../../gen/manifest.ts";
import type { CacheDType } from "../../protocol/loading.ts";
import { type Checker, type Json, type ManifestSlot, parseSlots } from "./checker.ts";
import type { DecoderInfo, Manifest, PlanEntry } from "./manifest.ts";
import { planFile } from "./plan-file.ts";

/**
 * Parses and checks the decoder of a language model.
 * @throws PackageError
 */
export function parseDecoder(
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
    c.fail("decoder.saved", "is not empty: packages hold adapters only");
  const caches = parseCaches(c, root, "caches");
  if (recompute !== !caches.size) c.fail("decoder.recompute", "contradicts decoder.caches");

  const known: DecoderFacts = { capacity, vocabSize, caches, adapters, weights };
  const plans = c
    .list(root.get("plans"), "decoder.plans", MAX_DECODER_PLANS)
    .map((plan, i) => parseDecoderPlan(c, plan, `decoder.plans[${i}]`, known, files, computed));
  plans.sort((a, b) => a.tokens - b.tokens);
  if (!plans.length) c.fail("decoder.plans", "has no plan");
  if (recompute && plans.at(-1)!.tokens !== capacity)
    c.fail("decoder.plans", `has no plan for ${capacity} tokens`);
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

/** What plans are checked against. */
interface DecoderFacts {
  capacity: number;
  vocabSize: number;
  caches: ReadonlyMap<string, number>;
  adapters: ReadonlyMap<string, number>;
  weights: Manifest["weights"];
}

function parseDecoderPlan(
  c: Checker,
  json: Json | undefined,
  at: string,
  known: DecoderFacts,
  files: Manifest["files"],
  computed: Map<string, number>,
): PlanEntry {
  const plan = c.object(json, at);
  const tokens = c.integer(plan.get("tokens"), `${at}.tokens`, 1, known.capacity);
  const file = planFile(c, plan.get("file"), `${at}.file`, files);
  const registers = c.object(plan.get("registers"), `${at}.registers`);
  const past = c.integer(registers.get("past"), `${at}.registers.past`, 0, 0);
  const last = c.integer(registers.get("last"), `${at}.registers.last`, 1, 1);
  if (registers.size !== 2) c.fail(`${at}.registers`, "has registers other than 'past' and 'last'");
  const slots = parseSlots(c, plan.get("slots"), `${at}.slots`, known.weights, computed);
  slots.forEach((slot, i) => checkSlot(c, slot, `${at}.slots[${i}]`, { ...known, tokens }));
  for (const [kind, what] of [
    ["input", `input 'input_ids', int64 [1, ${tokens}]`],
    ["output", `output 'logits', float32 [1, ${known.vocabSize}]`],
  ]) {
    const [first, second] = slots.flatMap((slot, n) => (slot.kind === kind ? [n] : []));
    if (first === undefined) c.fail(at, "lacks the input 'input_ids' or the output 'logits'");
    if (second !== undefined) c.fail(`${at}.slots[${second}]`, `is not the one ${what}`);
  }
  return { tokens, file, registers: { past, last }, slots };
}

/** Checks that the decoder can bind a slot. */
function checkSlot(
  c: Checker,
  { name, kind, dtype, bytes }: ManifestSlot,
  path: string,
  known: DecoderFacts & { tokens: number },
): void {
  if (kind === "weight" || kind === "temp") return;
  if (kind === "state") {
    if (known.weights.has(name)) c.fail(path, `has the same name as the weight '${name}'`);
    if (known.adapters.get(name) !== bytes)
      c.fail(path, `is the state '${name}' of ${bytes} bytes, which no adapter in 'training' has`);
  } else if (kind === "cache") {
    if (known.caches.get(name) !== bytes)
      c.fail(path, `is the cache '${name}' of ${bytes} bytes, which decoder.caches does not have`);
  } else if (kind === "computed") {
    if (known.caches.has(name)) c.fail(path, `has the same name as the cache '${name}'`);
  } else if (kind === "input") {
    if (name !== "input_ids" || dtype !== "int64" || bytes !== 8 * known.tokens)
      c.fail(path, `is not the one input 'input_ids', int64 [1, ${known.tokens}]`);
  } else if (name !== "logits" || dtype !== "float32" || bytes !== 4 * known.vocabSize)
    c.fail(path, `is not the one output 'logits', float32 [1, ${known.vocabSize}]`);
}

/** Bytes of each cache in a field of `decoder`. */
export function parseCaches(
  c: Checker,
  decoder: Map<string, Json>,
  field: string,
): Map<string, number> {
  const caches = new Map<string, number>();
  c.list(decoder.get(field), `decoder.${field}`, MAX_CACHES).forEach((entry, i) => {
    const at = `decoder.${field}[${i}]`;
    const cache = c.object(entry, at);
    const name = c.text(cache.get("name"), `${at}.name`);
    if (caches.has(name)) c.fail(at, `has the duplicate name '${name}'`);
    caches.set(name, c.integer(cache.get("bytes"), `${at}.bytes`));
  });
  return caches;
}
