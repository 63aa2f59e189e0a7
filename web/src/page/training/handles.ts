// Maps a pipeline to its worker.

import type { AdapterInfo } from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import type { Client } from "../client.ts";

/** A pipeline's worker, its model there, and its adapters as of the last call. */
export interface Handle {
  client: Client;
  model: number;
  adapters: AdapterInfo[];
  /** Of a pipeline that learns from pairs: makes of records what its worker reads. */
  prepare?(records: unknown, where: string, signal?: AbortSignal): Promise<unknown>;
}
/** The handle of each pipeline. */
export const handles = new WeakMap<object, Handle>();

export function handleOf(model: unknown): Handle {
  const found = typeof model === "function" ? handles.get(model) : undefined;
  if (!found)
    throw new InputError(
      "it is not a text-generation pipeline",
      "model",
      "Give what `await pipeline('text-generation', ...)` returned, or a pipeline of " +
        "automatic-speech-recognition, text2text-generation, translation, summarization or " +
        "image-text-to-text.",
    );
  return found;
}
