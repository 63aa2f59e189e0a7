// Adapters in the browser's private files (OPFS), for the next visit: one safetensors file each, its config in the metadata, under the
// key of the model that they belong to.

import { InputError } from "../errors.ts";
import type { Model } from "../load.ts";
import { folder, openFolder, storageError, writeFile } from "../storage.ts";
import { checkName } from "./adapters.ts";

const FOLDER = "adapters";

/** An adapter that is kept in this browser. */
export interface KeptAdapter {
  /** For `loadAdapter(name)`. */
  name: string;
  /** Of its tensors' file. */
  bytes: number;
  /** When it was kept, in milliseconds since 1970. */
  saved: number;
}

const fileOf = (model: Model, name: string, end: string): string => `${model.key}.${encodeURIComponent(name)}.${end}`;

/** Writes an adapter. Returns its bytes. */
export async function keep(model: Model, name: string): Promise<number> {
  const files = model.adapters.save(name);
  const bytes = files.reduce((sum, f) => sum + f.blob.size, 0);
  try {
    const dir = await openFolder(FOLDER);
    // The config first: an adapter is there once its tensors are.
    for (const { name: file, blob } of [...files].reverse()) await writeFile(dir, fileOf(model, name, file), blob);
    return bytes;
  } catch (e) {
    throw storageError(e, `adapter '${name}'`, bytes, "It is still in use here, and can be downloaded.");
  }
}

const NAMES = ["adapter_model.safetensors", "model.safetensors", "adapter_config.json"];

/** Those that belong to a model, the newest first. */
export async function listKept(model: Model): Promise<KeptAdapter[]> {
  const dir = await folder(FOLDER, false);
  const list: KeptAdapter[] = [];
  if (!dir) return list;
  for await (const entry of (dir as unknown as { values(): AsyncIterable<FileSystemHandle> }).values()) {
    const end = NAMES.slice(0, 2).find((n) => entry.name.startsWith(`${model.key}.`) && entry.name.endsWith(`.${n}`));
    if (!end) continue;
    const file = await (entry as FileSystemFileHandle).getFile();
    list.push({ name: decodeURIComponent(entry.name.slice(model.key.length + 1, -end.length - 1)), bytes: file.size, saved: file.lastModified });
  }
  return list.sort((a, b) => b.saved - a.saved);
}

/** The files of one that is kept. @throws InputError: there is none */
export async function readKept(model: Model, name: string): Promise<{ name: string; blob: Blob }[]> {
  checkName(name);
  const dir = await folder(FOLDER, false);
  const files: { name: string; blob: Blob }[] = [];
  for (const file of NAMES) {
    try {
      files.push({ name: file, blob: await (await dir!.getFileHandle(fileOf(model, name, file))).getFile() });
    } catch {
      // It has only one of the two, or none.
    }
  }
  if (!files.some((f) => f.name.endsWith(".safetensors"))) throw new InputError(`no adapter '${name}' of this model is kept in this browser`, "adapters", "See keptAdapters().");
  return files;
}

/** Removes one that is kept, if there is one. */
export async function forget(model: Model, name: string): Promise<void> {
  checkName(name);
  const dir = await folder(FOLDER, false);
  for (const file of NAMES) await dir?.removeEntry(fileOf(model, name, file)).catch(() => undefined);
}
