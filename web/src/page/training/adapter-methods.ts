// Methods of a pipeline that load, save and select adapters.

import type { AdapterInfo, KeptAdapter } from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import { optionsOf } from "../../shared/inputs.ts";
import { full } from "../env.ts";
import { askToPersist } from "../persist.ts";
import type { Handle } from "./handles.ts";

/** What a model card, README.md, says of the base. Default: what the files of the model say. */
export interface CardOptions {
  /** Its id on the hub. */
  base_model?: string;
  /** Its license, as the hub names it: "apache-2.0". */
  license?: string;
}

/** Options of {@link AdapterMethods.exportAdapter}. */
export interface AdapterExportOptions extends CardOptions {
  format: "gguf" | "mlx" | "peft";
  /** Type of the numbers of a GGUF file. Default: "f32". */
  quantization?: "f16" | "f32";
  /** config.json of the base, where the model was loaded from a package without it. */
  files?: File | Iterable<File>;
  signal?: AbortSignal;
}

/** Options of {@link AdapterMethods.exportModel}. */
export interface ModelExportOptions extends CardOptions {
  format: "gguf" | "safetensors" | "mlx";
  /**
   * Type of the matrices; "q8_0" and "q4_0" in a GGUF file alone, where the embedding and the
   * output layer then have 8 bits. Default: "f16" in a GGUF file, else that of the .onnx file's
   * float weights.
   */
  quantization?: "f32" | "f16" | "q8_0" | "q4_0";
  /**
   * The .onnx file with the texts of its folder, or its address; required if the model was loaded
   * from a package.
   */
  files?: string | URL | File | Iterable<File>;
  signal?: AbortSignal;
}

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
   * Exports an adapter for another library, beside whose own copy of the base it is used: "gguf",
   * one adapter.gguf for llama.cpp's `--lora`; "mlx", two files for mlx_lm's `--adapter-path`;
   * "peft", PEFT's files under transformers' names also where the .onnx file has other ones. Made
   * by Python in the page (`env.pyodideUrl`). Mirrors `edgewise.convert_adapter`. Beside the files
   * of "mlx" and "peft" is a model card, README.md, with the run of this visit.
   * @throws UnsupportedField if the format has nothing for a part of the adapter or its base
   */
  exportAdapter(name: string, options: AdapterExportOptions): Promise<File[]>;
  /**
   * Exports the model, with an adapter merged into its weights, for another library: "gguf", one
   * model.gguf of llama.cpp, tokenizer included; "safetensors" and "mlx", the files of a folder
   * that transformers or mlx_lm loads, with a model card, README.md. Made by Python in the page.
   * Mirrors `edgewise.merge_adapter`.
   * @param name of the adapter; null: the model as it is
   * @throws UnsupportedField if the format has nothing for a part of the model
   */
  exportModel(name: string | null, options: ModelExportOptions): Promise<File[]>;
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

/** Adapters of a pipeline that learns from pairs. */
export type PairAdapterMethods = Omit<
  AdapterMethods,
  "exportAdapter" | "exportModel" | "mergedOnnx"
>;

/** Implements {@link PairAdapterMethods}. */
export function pairAdapterMethods(handle: Handle): PairAdapterMethods {
  const all = adapterMethods(handle) as Partial<AdapterMethods>;
  for (const name of ["exportAdapter", "exportModel", "mergedOnnx"] as const) delete all[name];
  return all as PairAdapterMethods;
}

/** What the worker gets of files or an address. */
function given(
  files: string | URL | File | Iterable<File> | undefined,
): { name: string; blob: Blob }[] | string | undefined {
  if (files === undefined) return undefined;
  if (typeof files === "string" || files instanceof URL) return full(String(files));
  return filesOf(files);
}

/** @throws InputError if they are no files */
function filesOf(files: File | Blob | Iterable<File | Blob>): { name: string; blob: Blob }[] {
  const given = (files as unknown) instanceof Blob ? [files as Blob] : files;
  const iterable = typeof given === "object" && given !== null && Symbol.iterator in given;
  const list: unknown[] = iterable ? Array.from(given) : [given];
  return list.map((blob) => {
    if (!(blob instanceof Blob))
      throw new InputError("it is no file", "files", "Give a File, several, or a FileList.");
    return { name: blob instanceof File ? blob.name : "adapter_model.safetensors", blob };
  });
}

/** Implements {@link AdapterMethods} by calls to the worker. */
export function adapterMethods(handle: Handle): AdapterMethods {
  const { client, model } = handle;
  const exported = async (
    name: string | null,
    options: AdapterExportOptions | ModelExportOptions,
    alone: boolean,
  ): Promise<File[]> => {
    const { format, quantization = null, base_model, license, files, signal } = optionsOf(options);
    const of = { base_model, license };
    const request = { model, name, format, quantization, ...of, alone, files: given(files) };
    const made = await client.call("adapter_export", request, { signal });
    return made.map((f) => new File([f.blob], f.name));
  };
  const list = async (call: Promise<AdapterInfo[]>): Promise<void> =>
    void (handle.adapters = await call);
  return {
    get adapters() {
      return handle.adapters;
    },
    async loadAdapter(name, files) {
      const given = files === undefined ? undefined : filesOf(files);
      await list(client.call("adapter_load", { model, files: given, name }));
      return handle.adapters.find((a) => a.name === name)!;
    },
    setAdapter: (name, scale = 1) => list(client.call("adapter_use", { model, name, scale })),
    async saveAdapter(name) {
      return (await client.call("adapter_save", { model, name })).map(
        (f) => new File([f.blob], f.name, { type: f.blob.type }),
      );
    },
    async mergedOnnx(name, onnx, options) {
      const { signal } = optionsOf(options);
      const files = given(onnx);
      return new File(
        [await client.call("adapter_merge", { model, name, files }, { signal })],
        "model.onnx",
      );
    },
    exportAdapter: (name, options) => exported(name, options, true),
    exportModel: (name, options) => exported(name, options, false),
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
