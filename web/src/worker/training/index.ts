// The part of the worker that trains. The worker loads it when it is first needed (parts.ts), and
// with models that can be trained.

import type { StorageFunctions } from "../../protocol/storage.ts";
import { checkpoints, deleteCheckpoint } from "../../shared/checkpoints/checkpoint.ts";

export { warm } from "../../device/warm.ts";
export { readSafetensors, safetensorsHead } from "../../shared/checkpoints/safetensors.ts";
export { adaptersOf } from "./adapters-of.ts";
export { ArtifactSession } from "./artifacts.ts";
export { estimate } from "./estimate.ts";
export { forget, keep, listKept, readKept } from "./kept.ts";
export { learnerOf } from "./learner.ts";
export { exported, mergedOnnx } from "./merge.ts";
export { preview } from "./records.ts";
export { chooseProgram } from "./run-options.ts";
export { TrainingRun } from "./trainer.ts";

/** What the page can ask for of stored checkpoints. */
export const storage: StorageFunctions<"checkpoints" | "deleteCheckpoint"> = {
  checkpoints,
  deleteCheckpoint,
};
