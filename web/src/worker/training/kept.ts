// Storage of adapters in the browser, by the key of the model that they belong to. Each save
// writes a new file, KEY.NAME.GENERATION.safetensors, with the adapter's config and a checksum of
// all bytes in its metadata; older files are removed afterwards. Whenever the tab is killed, the
// newest intact file has the tensors and config of a single save.

import type { KeptAdapter } from "../../protocol/training.ts";
import { readSafetensors, safetensorsHead } from "../../shared/checkpoints/safetensors.ts";
import { dataBegin, sumOfFile, withSum } from "../../shared/checkpoints/sum.ts";
import { InputError } from "../../shared/errors.ts";
import { storageError } from "../../shared/files/cached.ts";
import { folder, openFolder, removeFrom } from "../../shared/files/folders.ts";
import type { Folder } from "../../shared/files/stored.ts";
import { checkAdapterName } from "./adapter-config.ts";
import type { Adapters } from "./adapters.ts";

const FOLDER = "adapters";
const CONFIG = "edgewise_config"; // metadata entry with adapter_config.json
/** Endings of files of earlier versions, which a new save replaces. */
const SEPARATE = ["adapter_model.safetensors", "model.safetensors", "adapter_config.json"];

/** The part of a model that is needed here. */
interface Owner {
  key: string;
}
interface Save {
  file: string;
  name: string;
  generation: number;
}

const prefixOf = (model: Owner, name: string): string =>
  `${model.key}.${encodeURIComponent(name)}.`;

/** All files of a model's adapters, newest first. Those of earlier versions have generation 0. */
async function saves(dir: Folder, model: Owner): Promise<Save[]> {
  const list: Save[] = [];
  for (const { name: file } of await dir.list()) {
    if (!file.startsWith(`${model.key}.`)) continue;
    const rest = file.slice(model.key.length + 1);
    const end = SEPARATE.slice(0, 2).find((e) => rest.endsWith(`.${e}`));
    const found = end
      ? [rest, rest.slice(0, -end.length - 1), "0"]
      : /^(.+)\.(\d{1,15})\.safetensors$/.exec(rest);
    if (found)
      list.push({ file, name: decodeURIComponent(found[1]!), generation: Number(found[2]) });
  }
  return list.sort((a, b) => b.generation - a.generation);
}

/**
 * Stores an adapter.
 * @returns its size in bytes
 * @throws StorageError
 */
export async function keep(
  model: Owner & { adapters: Pick<Adapters, "save"> },
  name: string,
): Promise<number> {
  const files = await model.adapters.save(name);
  const bytes = files.reduce((sum, f) => sum + f.blob.size, 0);
  try {
    const dir = await openFolder(FOLDER);
    const tensors = files.find((f) => f.name.endsWith(".safetensors"))!.blob;
    const config = files.find((f) => f.name.endsWith(".json"));
    const contents = await readSafetensors(tensors, name);
    const metadata = {
      ...contents.metadata,
      ...(config ? { [CONFIG]: await config.blob.text() } : {}),
    };
    const whole = await withSum(
      (edgewise) => safetensorsHead(contents.tensors, { ...metadata, edgewise }).head,
      tensors.slice(dataBegin(tensors, contents)),
    );
    const before = (await saves(dir, model)).filter((s) => s.name === name);
    await dir.write(
      `${prefixOf(model, name)}${(before[0]?.generation ?? 0) + 1}.safetensors`,
      whole,
    );
    for (const { file } of before) await removeFrom(dir, file);
    await removeFrom(dir, `${prefixOf(model, name)}adapter_config.json`);
    return whole.size;
  } catch (e) {
    throw storageError(
      e,
      `adapter '${name}'`,
      bytes,
      "It is still in use here, and can be downloaded; what was kept of it before stays.",
    );
  }
}

/** Stored adapters of a model, newest first. */
export async function listKept(model: Owner): Promise<KeptAdapter[]> {
  const dir = await folder(FOLDER, false);
  const list = new Map<string, KeptAdapter>();
  for (const { file, name } of dir ? await saves(dir, model) : []) {
    if (list.has(name)) continue;
    const data = await open(dir!, file);
    if (data && (await isWhole(data, name, false)))
      list.set(name, { name, bytes: data.size, saved: data.lastModified });
  }
  return [...list.values()].sort((a, b) => b.saved - a.saved);
}

/**
 * The files of a stored adapter.
 * @throws InputError if there is none of this name
 */
export async function readKept(
  model: Owner,
  name: string,
): Promise<{ name: string; blob: Blob }[]> {
  checkAdapterName(name);
  const dir = await folder(FOLDER, false);
  for (const { file, name: found, generation } of dir ? await saves(dir, model) : []) {
    const data = found === name ? await open(dir!, file) : undefined;
    if (!data || !(await isWhole(data, name, generation > 0))) continue;
    const { metadata } = await readSafetensors(data, name);
    const config = generation
      ? metadata[CONFIG]
      : await (await open(dir!, `${prefixOf(model, name)}adapter_config.json`))?.text();
    const tensors = {
      name: config === undefined ? "model.safetensors" : "adapter_model.safetensors",
      blob: data,
    };
    return config === undefined
      ? [tensors]
      : [tensors, { name: "adapter_config.json", blob: new Blob([config]) }];
  }
  throw new InputError(
    `no adapter '${name}' of this model is stored in this browser`,
    "adapters",
    "See keptAdapters().",
  );
}

/** Deletes a stored adapter, if it exists. */
export async function forget(model: Owner, name: string): Promise<void> {
  checkAdapterName(name);
  const dir = await folder(FOLDER, false);
  if (!dir) return;
  for (const save of await saves(dir, model))
    if (save.name === name) await removeFrom(dir, save.file);
  await removeFrom(dir, `${prefixOf(model, name)}adapter_config.json`);
}

async function open(dir: Folder, file: string): Promise<File | undefined> {
  try {
    return await dir.read(file);
  } catch {
    return undefined;
  }
}

/** Whether a file is complete and, with `summed`, matches its checksum. */
async function isWhole(data: Blob, name: string, summed: boolean): Promise<boolean> {
  try {
    await readSafetensors(data, name);
    return !summed || (await sumOfFile(data)).fits;
  } catch {
    return false;
  }
}
