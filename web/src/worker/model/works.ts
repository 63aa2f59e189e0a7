// The plans of a model by which `auto` chooses a device.

import type { Work } from "../../device/webgpu/probe.ts";
import type { ManifestSlot } from "../../gen/schema.ts";
import type { Manifest } from "../package/manifest.ts";

/** Runs of the plan for one more token for one of that which reads a text. */
const TOKENS = 32;
/** Runs of a graph that refines a picture for one of the others. */
const STEPS = 20;

interface PlanFile {
  file: string;
  slots: readonly ManifestSlot[];
}

/**
 * The plans by which a device is chosen, as often as they run: of each kind, that for the largest
 * input, and that for one token. None where they are not for a GPU.
 * @param files plans by name
 */
export function worksOf(
  { target, decoder, seq2seq, programs, inference, training }: Manifest,
  files: ReadonlyMap<string, Uint8Array>,
): Work[] {
  const works: Work[] = [];
  const add = (of: PlanFile | undefined, times: number): void => {
    const plan = of && files.get(of.file);
    if (plan) works.push({ plan, kinds: of.slots.map(({ kind }) => kind), times });
  };
  if (target !== "webgpu") return works;
  if (decoder) {
    add(decoder.plans[0], TOKENS);
    if (decoder.plans.length > 1) add(decoder.plans.at(-1), 1);
  }
  if (seq2seq) {
    const source = seq2seq.encoder.plans.at(-1);
    add(source?.run, 1);
    add(source?.cross, 1);
    add(
      seq2seq.plans.find(({ kind }) => kind === "step"),
      TOKENS,
    );
  }
  for (const [name, { plans }] of programs ?? []) add(plans.at(-1), name === "unet" ? STEPS : 1);
  for (const { plans } of training.values()) add(plans.get("train") ?? plans.get("accumulate"), 1);
  for (const plan of lastOfParts(inference?.plans ?? [])) add(plan, 1);
  return works;
}

/** Of each part of a model the latest plan. */
function lastOfParts<T extends { part: string }>(plans: readonly T[]): T[] {
  return [...new Map(plans.map((plan) => [plan.part, plan])).values()];
}
