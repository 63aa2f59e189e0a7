// What the browser's storage has, and its removal. Pages rarely need it, so a worker does it: one
// that runs for a model and has nothing to do, or one that is made for the call.

import type { CachedModel, NamedModel, StorageCalls } from "../protocol/storage.ts";
import type { CheckpointInfo } from "../shared/checkpoints/checkpoint.ts";
import { idleClient, startClient } from "./client.ts";
import { full } from "./env.ts";

/** Which models a call concerns. */
export interface CachedModelOptions {
  /** Revision on a hub. Default: every revision. */
  revision?: string;
}

async function ask<C extends keyof StorageCalls>(
  call: C,
  ...args: Parameters<StorageCalls[C]>
): Promise<ReturnType<StorageCalls[C]>> {
  const idle = idleClient();
  const client = idle ?? (await startClient());
  try {
    return (await client.call("storage", { call, args })) as ReturnType<StorageCalls[C]>;
  } catch (e) {
    if (!idle || idle.alive) throw e;
  } finally {
    if (!idle) client.end();
  }
  return ask(call, ...args); // its owner has ended it meanwhile: all of these can be said twice
}

const named = (model: string, revision?: string): NamedModel => ({
  model,
  url: full(model),
  revision,
});

/**
 * The models in the browser's storage for this site: downloaded files (`env.cacheFiles`) and
 * compiled plans (`env.cachePlans`). Names follow `scan_cache_dir` of huggingface_hub and
 * `ModelRegistry` of transformers.js.
 */
export const models = {
  /**
   * Lists the stored models.
   * @returns one entry per model and revision, the latest loaded first
   */
  list: (): Promise<CachedModel[]> => ask("list"),

  /**
   * Whether all files that a load of the model reads are stored.
   * @param model id on a hub, or address, as given to `pipeline` or `InferenceSession.create`
   * @param options `dtype`: precision, by default any; `revision`: by default any
   */
  has: async (
    model: string,
    { dtype = "auto", revision }: CachedModelOptions & { dtype?: string } = {},
  ): Promise<boolean> => ask("has", named(model, revision), dtype),

  /**
   * Deletes the files and compiled plans of a model. Adapters and checkpoints stay.
   * @param model id on a hub, or address; {@link CachedModel.id} of `list`
   * @returns bytes freed; 0 if nothing was stored
   * @throws StorageError if a pipeline or session uses the model, in this tab or another one
   */
  delete: async (model: string, { revision }: CachedModelOptions = {}): Promise<number> =>
    ask("delete", named(model, revision)),

  /** Bytes of all stored files and compiled plans; contents that models share count once. */
  size: (): Promise<number> => ask("size"),
};

/**
 * Bytes that Edgewise holds in the browser's storage for this site: compiled models
 * (`plans`) and downloaded files (`files`). Adapters and checkpoints are not included.
 * `models.list` has the sizes of each model.
 */
export const cacheBytes = (): Promise<{ plans: number; files: number }> => ask("cacheBytes");

/**
 * Deletes compiled models and downloaded files from the browser's storage for this site. Adapters
 * and checkpoints stay: see `forgetAdapter` and `deleteCheckpoint`. `models.delete` deletes one
 * model.
 */
export const clearCache = (): Promise<void> => ask("clearCache");

/** Lists the checkpoints in the browser's storage, newest first. */
export const checkpoints = (): Promise<CheckpointInfo[]> => ask("checkpoints");

/**
 * Deletes a checkpoint from the browser's storage, if it exists.
 * @throws InputError if the name is invalid
 */
export const deleteCheckpoint = (name: string): Promise<void> => ask("deleteCheckpoint", name);
