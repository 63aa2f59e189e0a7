// The methods of a pipeline that load, keep and choose adapters.

import type { AdapterInfo, KeptAdapter } from "../../protocol/training.ts";
import type { Handle } from "./handles.ts";

/**
 * What a pipeline has for adapters: several on one model, one in use at a time, changed without
 * compiling anything.
 */
export interface AdapterMethods {
  /** Those that were trained or loaded, as of the last call. */
  readonly adapters: readonly AdapterInfo[];
  /**
   * Reads an adapter: PEFT's adapter_model.safetensors (float32, float16 or bfloat16) and
   * adapter_config.json, in any order; or, without files, one that `keepAdapter` kept under this
   * name. Its rank may be lower than the model was compiled with. `setAdapter` then uses it. Throws
   * ModelError for damaged files and those of other models, InputError.
   */
  loadAdapter(name: string, files?: File | Blob | Iterable<File>): Promise<AdapterInfo>;
  /**
   * Generation uses this adapter, its effect multiplied with `scale` (default 1; of a full training
   * 1 alone); null: the model as it was. @throws InputError: there is none of this name
   */
  setAdapter(name: string | null, scale?: number): Promise<void>;
  /**
   * An adapter as files: adapter_model.safetensors and adapter_config.json in PEFT's layout; of a
   * full training one model.safetensors (float32). @throws InputError: there is none of this name
   */
  saveAdapter(name: string): Promise<File[]>;
  /**
   * The model's .onnx file with the adapter merged into it, as any runtime runs it; beside
   * quantized weights it stands as nodes. Python in the page makes it (`env.pyodideUrl`). A model
   * that came from a package needs the .onnx file that it was built from, or its address.
   */
  mergedOnnx(
    name: string,
    onnx?: string | URL | File | Iterable<File>,
    options?: { signal?: AbortSignal },
  ): Promise<File>;
  /** @throws InputError: there is none, it is being trained, or the new name is taken or none */
  renameAdapter(name: string, to: string): Promise<void>;
  /** Forgets it; one that is in use is put out of use. What `keepAdapter` kept stays. */
  removeAdapter(name: string): Promise<void>;
  /**
   * Keeps it in this browser's storage (OPFS) for the next visit. Returns its bytes. Throws
   * StorageError where there is no room.
   */
  keepAdapter(name: string): Promise<number>;
  /** Those that are kept in this browser and belong to this model, the newest first. */
  keptAdapters(): Promise<KeptAdapter[]>;
  /** Removes one of them, if there is one of this name. */
  forgetAdapter(name: string): Promise<void>;
}

/** The methods of a pipeline. */
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
            ? new URL(onnx, globalThis.document?.baseURI ?? globalThis.location?.href).href
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
    keepAdapter: (name) => client.call("adapter_keep", { model, name }),
    keptAdapters: () => client.call("adapter_kept", { model }),
    forgetAdapter: (name) => client.call("adapter_forget", { model, name }),
  };
}
