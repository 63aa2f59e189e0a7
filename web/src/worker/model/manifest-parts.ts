// What a manifest says of a model: its key, and how it can be trained.

import type { ModelInfo } from "../../protocol/loading.ts";
import { sha256 } from "../../shared/sha256.ts";
import { NOTES } from "../package/container.ts";
import type { Manifest } from "../package/manifest.ts";

/** The parts of a package that training needs: plans and notes. */
export function trainingFiles(
  { training }: Manifest,
  files: ReadonlyMap<string, Uint8Array>,
): Map<string, Uint8Array> {
  const plans = new Map<string, Uint8Array>();
  if (files.has(NOTES)) plans.set(NOTES, files.get(NOTES)!);
  for (const { plans: of } of training.values())
    for (const { file } of of.values()) plans.set(file, files.get(file)!);
  return plans;
}

/** Identifies a model by the names and sizes of its weights. */
export function keyOf({ weights }: Manifest): string {
  const sizes = Array.from(weights.values(), ({ name, bytes }) => [name, bytes]);
  return sha256(JSON.stringify(sizes)).slice(0, 16);
}

/** The ways in which a model can be trained. */
export function waysOf({ training }: Manifest): ModelInfo["training"] {
  return Array.from(training.values(), (p) => ({
    adapter: p.lora ? "lora" : "full",
    batch: p.batch,
    sequence: p.sequence,
    learning_rate: p.optimizer.lr,
    optimizer: p.optimizer.type,
    ...(p.lora ? { r: p.lora.r, lora_alpha: p.lora.lora_alpha } : {}),
  }));
}
