// Validation of an encoder-decoder model in a manifest, by the rules of
// python/edgewise/compiler/manifest/seq2seq.py.

import {
  MAX_CAPACITY,
  MAX_DECODER_PLANS,
  MAX_LENGTH,
  MAX_VOCABULARY,
  RUNS,
  SOURCES,
} from "../../gen/manifest.ts";
import { type Checker, type Json, type ManifestSlot, parseSlots } from "./checker.ts";
import type { Manifest, Seq2SeqInfo, Seq2SeqPlan, SourcePlans } from "./manifest.ts";
import { parseCaches } from "./parse-decoder.ts";
import { planFile } from "./plan-file.ts";

/** {"input name" or "output name": dtype and bytes, undefined for any number}. */
type Ends = Map<string, [dtype: string, bytes: number | undefined]>;
type Caches = ReadonlyMap<string, number>;

/** What plans are checked against. */
export interface Parts {
  files: Manifest["files"];
  weights: Manifest["weights"];
  computed: Map<string, number>;
}

/**
 * Parses and checks `encoder` and `decoder` of a package.
 * @throws PackageError
 */
export function parseSeq2Seq(c: Checker, root: Map<string, Json>, parts: Parts): Seq2SeqInfo {
  const decoder = c.object(root.get("decoder"), "decoder");
  const capacity = c.integer(decoder.get("capacity"), "decoder.capacity", 2, MAX_CAPACITY);
  const vocabSize = c.integer(decoder.get("vocab_size"), "decoder.vocab_size", 1, MAX_VOCABULARY);
  if (decoder.get("logits_type") !== "float32") c.fail("decoder.logits_type", "is not 'float32'");
  c.oneOf(
    decoder.has("cache_dtype") ? decoder.get("cache_dtype") : "float32",
    "decoder.cache_dtype",
    ["float32", "float16"],
  );
  const caches = parseCaches(c, decoder, "caches");
  const cross = parseCaches(c, decoder, "cross");
  for (const name of cross.keys())
    if (caches.has(name)) c.fail("decoder.cross", `has '${name}' as well`);
  const encoder = parseEncoder(c, root.get("encoder"), cross, parts);
  const positions = Math.max(...encoder.plans.map((p) => p.positions));
  const kinds = new Set<string>();
  const plans = c
    .list(decoder.get("plans"), "decoder.plans", MAX_DECODER_PLANS)
    .map((entry, i): Seq2SeqPlan => {
      const at = `decoder.plans[${i}]`;
      const plan = c.object(entry, at);
      const kind = c.oneOf(plan.get("kind"), `${at}.kind`, RUNS) as Seq2SeqPlan["kind"];
      const tokens = c.integer(plan.get("tokens"), `${at}.tokens`, 1, capacity);
      if (kind === "step" && tokens !== 1) c.fail(`${at}.tokens`, "is not 1");
      if (kinds.has(`${kind} ${tokens}`))
        c.fail("decoder.plans", `has two plans '${kind}' for ${tokens} tokens`);
      kinds.add(`${kind} ${tokens}`);
      const file = planFile(c, plan.get("file"), `${at}.file`, parts.files);
      checkRegisters(c, plan, at);
      const ends: Ends = new Map([["input input_ids", ["int64", 8 * tokens]]]);
      if (kind === "align") {
        ends.set("input rows", ["float32", 4 * tokens]);
        ends.set("output alignment", ["float32", 4 * tokens * positions]);
      } else ends.set("output logits", ["float32", 4 * vocabSize]);
      const slots = parseSlots(c, plan.get("slots"), `${at}.slots`, parts.weights, parts.computed);
      checkSlots(
        c,
        slots,
        at,
        `${at}.slots`,
        new Map([...caches, ...cross]),
        ends,
        kind === "align" ? positions : 0,
      );
      return { kind, tokens, file, slots };
    });
  for (const [kind, tokens] of [
    ["step", 1],
    ["first", capacity],
  ] as const)
    if (!kinds.has(`${kind} ${tokens}`))
      c.fail("decoder.plans", `has no plan '${kind}' for ${tokens} tokens`);
  return { capacity, vocabSize, caches, cross, encoder, plans };
}

function parseEncoder(
  c: Checker,
  json: Json | undefined,
  cross: Caches,
  parts: Parts,
): Seq2SeqInfo["encoder"] {
  const encoder = c.object(json, "encoder");
  const input = c.oneOf(encoder.get("input"), "encoder.input", SOURCES);
  const flag = (field: string): boolean => {
    const value = encoder.get(field);
    return typeof value === "boolean"
      ? value
      : c.fail(`encoder.${field}`, "is neither true nor false");
  };
  const [masked, fixed] = [flag("masked"), flag("fixed")];
  const plans = c
    .list(encoder.get("plans"), "encoder.plans", MAX_DECODER_PLANS)
    .map((value, i): SourcePlans => {
      const at = `encoder.plans[${i}]`;
      const entry = c.object(value, at);
      const size = c.integer(entry.get("size"), `${at}.size`, 1, MAX_LENGTH);
      const positions = c.integer(entry.get("positions"), `${at}.positions`, 1, size);
      const ends: Ends = new Map();
      ends.set(
        `input ${input}`,
        input === "input_ids" ? ["int64", 8 * size] : ["float32", undefined],
      );
      if (masked) ends.set("input attention_mask", ["int64", 8 * size]);
      let hidden: number | undefined;
      const count = input === "encoder_hidden_states" ? 1 : 2; // then a program is the encoder
      const found = c.tuple(entry.get("plans"), `${at}.plans`, count).map((part, i) => {
        const k = i + 2 - count;
        const path = `${at}.plans[${i}]`;
        const plan = c.object(part, path);
        const file = planFile(c, plan.get("file"), `${path}.file`, parts.files);
        const where = `${path}.slots`;
        const slots = parseSlots(c, plan.get("slots"), where, parts.weights, parts.computed);
        const kind = k ? "input" : "output";
        const [found, more] = slots.filter((slot) => slot.kind === kind);
        if (!found || more || found.dtype !== "float32")
          throw c.fail(path, `has not one ${kind} of float32`);
        if (hidden !== undefined && found.bytes !== hidden)
          c.fail(
            `${where}[${slots.indexOf(found)}]`,
            `has not the ${hidden} bytes of the encoder's output`,
          );
        hidden = found.bytes;
        const allowed: Ends = new Map(k ? [] : ends);
        allowed.set(`${kind} ${found.name}`, ["float32", hidden]);
        checkSlots(c, slots, path, where, k ? cross : new Map(), allowed, 0);
        return { file, slots };
      });
      return { size, positions, run: count > 1 ? found[0] : undefined, cross: found.at(-1)! };
    });
  if (!plans.length) c.fail("encoder.plans", "has no plan");
  return { input, masked, fixed, plans: plans.sort((a, b) => a.size - b.size) };
}

/** Register 0 is `past`, 1 is `last` and 2 is `source`. */
function checkRegisters(c: Checker, plan: Map<string, Json>, at: string): void {
  const registers = c.object(plan.get("registers"), `${at}.registers`);
  ["past", "last", "source"].forEach((name, i) => {
    c.integer(registers.get(name), `${at}.registers.${name}`, i, i);
  });
  if (registers.size !== 3)
    c.fail(`${at}.registers`, "has registers other than 'past', 'last' and 'source'");
}

/**
 * Checks that a host can bind the slots.
 * @param ends inputs and outputs, all of which the plan has
 * @param frames if not 0, there is also the input `frames`, of at least so many int64
 */
function checkSlots(
  c: Checker,
  slots: readonly ManifestSlot[],
  at: string,
  where: string,
  caches: Caches,
  ends: Ends,
  frames: number,
): void {
  const missing = new Set(ends.keys());
  if (frames) missing.add("input frames");
  slots.forEach(({ name, kind, dtype, bytes }, i) => {
    const path = `${where}[${i}]`;
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
