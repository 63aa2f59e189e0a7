// Methods of a pipeline that load, save and select adapters.

import type { AdapterInfo, KeptAdapter } from "../../protocol/training.ts";
import { full } from "../env.ts";
import { askToPersist } from "../persist.ts";
import type { Handle } from "./handles.ts";

/**
 * Adapters of a pipeline. A model can hold several, of which at most one is active; switching needs
 * no compilation.
 */
export interface AdapterMethods {
  /** Adapters that were trained or loaded, as of the last call. */
  readonly adapters: readonly AdapterInfo[];
  /**
   * Loads an adapter: PEFT's adapter_model.safetensors (float32, float16 or bfloat16) and
   * adapter_config.json, in any order; without files, the adapter that `keepAdapter` stored under
   * this name. Its rank may be lower than the compiled rank. Call `setAdapter` to use it.
   * @throws ModelError if files are damaged
   * @throws InputError if they belong to another model
   */
  loadAdapter(name: string, files?: File | Blob | Iterable<File>): Promise<AdapterInfo>;
  /**
   * Selects the adapter that generation uses; null selects the base model.
   * @param scale factor of the adapter's effect; fully trained parameters support 1 only. Default:
   *   1
   * @throws InputError if there is no adapter of this name
   */
  setAdapter(name: string | null, scale?: number): Promise<void>;
  /**
   * Exports an adapter: adapter_model.safetensors and adapter_config.json in PEFT's layout, or, if
   * all parameters were trained, one model.safetensors (float32).
   * @throws InputError if there is no adapter of this name
   */
  saveAdapter(name: string): Promise<File[]>;
  /**
   * The model's .onnx file with the adapter merged into its weights, for any runtime. Adapters of
   * quantized weights are added as nodes instead. Made by Python in the page (`env.pyodideUrl`).
   * @param onnx the .onnx file or its address; required if the model was loaded from a package
   */
  mergedOnnx(
    name: string,
    onnx?: string | URL | File | Iterable<File>,
    options?: { signal?: AbortSignal },
  ): Promise<File>;
  /**
   * Renames an adapter.
   * @throws InputError if there is no such adapter, it is being trained, or `to` is taken or
   *   invalid
   */
  renameAdapter(name: string, to: string): Promise<void>;
  /** Removes an adapter, deselecting it if active. A copy stored by `keepAdapter` stays. */
  removeAdapter(name: string): Promise<void>;
  /**
   * Stores an adapter in the browser's storage for the next visit.
   * @returns its size in bytes
   * @throws StorageError if there is not enough space
   */
  keepAdapter(name: string): Promise<number>;
  /** Adapters of this model in the browser's storage, newest first. */
  keptAdapters(): Promise<KeptAdapter[]>;
  /** Deletes an adapter from the browser's storage, if it is there. */
  forgetAdapter(name: string): Promise<void>;
}

/** Implements {@link AdapterMethods} by calls to the worker. */
export function adapterMethods(handle: Handle): AdapterMethods {
  const { client, model } = handle;
  const list = async (call: Promise<AdapterInfo[]>): Promise<void> =>
    void (handle.adapters = await call);
  return {
    get adapters() {
      return handle.adapters;
    },
    async loadAdapter(name, files) {
      const given =
        files === undefined
          ? undefined
          : Array.from(files instanceof Blob ? [files as File] : files, (blob) => ({
              name: blob instanceof File ? blob.name : "adapter_model.safetensors",
              blob: blob as Blob,
            }));
      await list(client.call("adapter_load", { model, files: given, name }));
      return handle.adapters.find((a) => a.name === name)!;
    },
    setAdapter: (name, scale = 1) => list(client.call("adapter_use", { model, name, scale })),
    async saveAdapter(name) {
      return (await client.call("adapter_save", { model, name })).map(
        (f) => new File([f.blob], f.name, { type: f.blob.type }),
      );
    },
    async mergedOnnx(name, onnx, { signal } = {}) {
      const files =
        onnx === undefined
          ? undefined
          : typeof onnx === "string" || onnx instanceof URL
            ? full(String(onnx))
            : Array.from(onnx instanceof Blob ? [onnx as File] : onnx, (blob) => ({
                name: blob.name,
                blob: blob as Blob,
              }));
      return new File(
        [await client.call("adapter_merge", { model, name, files }, { signal })],
        "model.onnx",
      );
    },
    renameAdapter: (name, to) => list(client.call("adapter_rename", { model, name, to })),
    removeAdapter: (name) => list(client.call("adapter_remove", { model, name })),
    keepAdapter(name) {
      askToPersist();
      return client.call("adapter_keep", { model, name });
    },
    keptAdapters: () => client.call("adapter_kept", { model }),
    forgetAdapter: (name) => client.call("adapter_forget", { model, name }),
  };
}
