// What the page asks of the browser's storage.

import type { CheckpointInfo } from "../shared/checkpoints/checkpoint.ts";

/** A stored file of a model. */
export interface CachedFile {
  /** Path in the model's folder, such as `onnx/model_q4.onnx`. */
  file: string;
  /** Its address. */
  url: string;
  /** Bytes that are stored. */
  size_on_disk: number;
  /** Whether all of it is stored; the download of a partial file is resumed. */
  complete: boolean;
  /** When it was downloaded. */
  last_modified: Date;
}

/** A model in the browser's storage. */
export interface CachedModel {
  /** Id on a hub (`org/name`), or the address of the model's folder or package. */
  id: string;
  /** Revision on a hub; undefined for other models. */
  revision: string | undefined;
  /** Precisions of which all files are stored, as in {@link PipelineOptions}. */
  dtypes: string[];
  /** Downloaded files. */
  files: CachedFile[];
  /**
   * Bytes of its files and its compiled plans. Files with equal contents are stored once, but count
   * in the size of each model that has them.
   */
  size_on_disk: number;
  /** When it was loaded for the last time; undefined if it was never loaded completely. */
  last_accessed: Date | undefined;
}

/** A model by its id or its address; `url`: the address in full. */
export interface NamedModel {
  model: string;
  url: string;
  revision: string | undefined;
}

/** What the worker does with the storage. */
export interface StorageCalls {
  /** The stored models, the latest loaded first. */
  list(): CachedModel[];
  /** Whether all files of a load are stored. `dtype` "auto": of any. */
  has(model: NamedModel, dtype: string): boolean;
  /** Deletes a model's files and plans. Returns the bytes freed. */
  delete(model: NamedModel): number;
  /** Bytes of all files and plans. */
  size(): number;
  cacheBytes(): { plans: number; files: number };
  clearCache(): void;
  checkpoints(): CheckpointInfo[];
  deleteCheckpoint(name: string): void;
}

/** Its functions, which may also return promises. */
export type StorageFunctions<K extends keyof StorageCalls> = {
  [C in K]: (
    ...args: Parameters<StorageCalls[C]>
  ) => ReturnType<StorageCalls[C]> | Promise<ReturnType<StorageCalls[C]>>;
};

/** Message of the page. */
export interface StorageCall {
  call: keyof StorageCalls;
  args: unknown[];
}
