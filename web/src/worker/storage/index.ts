// The part of the worker that lists and removes what the browser's storage has of downloaded and
// compiled models, for the page's `models`.

import type {
  CachedFile,
  CachedModel,
  NamedModel,
  StorageCalls,
  StorageFunctions,
} from "../../protocol/storage.ts";
import { StorageError } from "../../shared/errors.ts";
import { folder, removeFolders, removeFrom } from "../../shared/files/folders.ts";
import {
  changingLinks,
  type KeptFile,
  type KeptModel,
  linkName,
  readAllJson,
  removeUnused,
  unused,
} from "../../shared/files/kept.ts";
import { modelAddress } from "../../shared/files/model-address.ts";

interface StoredFile {
  name: string;
  size: number;
}

/** What is stored of one model. */
interface Stored {
  key: string;
  record: KeptModel | undefined;
  links: KeptFile[];
  plans: StoredFile[];
}

async function storedModels(): Promise<Stored[]> {
  const [files, records, plans] = await Promise.all(
    ["files", "models", "plans"].map((name) => folder(name, false)),
  );
  const found = new Map<string, Stored>();
  const of = (key: string): Stored => {
    const one = found.get(key) ?? { key, record: undefined, links: [], plans: [] };
    found.set(key, one);
    return one;
  };
  for (const record of await readAllJson<KeptModel>(records)) of(record.key).record = record;
  for (const link of await readAllJson<KeptFile>(files)) of(link.model).links.push(link);
  for (const plan of (await plans?.list()) ?? []) {
    const key = /^([0-9a-f]{16})-/.exec(plan.name)?.[1];
    if (key && found.has(key)) of(key).plans.push(plan);
  }
  return [...found.values()];
}

/** Whether `named` is the stored one: by its id, or by its address. */
function isNamed({ record, links }: Stored, { model, url, revision }: NamedModel): boolean {
  const { id, revision: stored } = record ?? modelAddress(links[0]!.url);
  if (revision !== undefined && stored !== undefined && decodeURIComponent(stored) !== revision)
    return false;
  return id === model || [url, `${url}/`].some((u) => modelAddress(u).id === id);
}

/** Precisions whose loads found all of their files stored. */
function dtypesOf({ record, links }: Stored): string[] {
  const complete = new Set(links.filter((l) => l.complete).map((l) => l.url));
  return Object.entries(record?.loads ?? {})
    .filter(([, urls]) => urls.length && urls.every((url) => complete.has(url)))
    .map(([dtype]) => dtype);
}

function described(stored: Stored, contents: ReadonlyMap<string, number>): CachedModel {
  const { record, links, plans } = stored;
  const { id, revision } = record ?? modelAddress(links[0]!.url);
  const files = links.map(({ url, data, complete, modified }): CachedFile => {
    const { folder: base } = modelAddress(url);
    const path = url.startsWith(base) && url !== base ? url.slice(base.length) : undefined;
    return {
      file: decodeURIComponent(path ?? new URL(url).pathname.split("/").pop() ?? url),
      url,
      size_on_disk: contents.get(`${data}.data`) ?? 0,
      complete,
      last_modified: new Date(modified),
    };
  });
  const sizes = [...files.map((f) => f.size_on_disk), ...plans.map((p) => p.size)];
  return {
    id,
    revision: revision === undefined ? undefined : decodeURIComponent(revision),
    dtypes: dtypesOf(stored).filter(Boolean).sort(),
    files: files.sort((a, b) => (a.file < b.file ? -1 : 1)),
    size_on_disk: sizes.reduce((sum, size) => sum + size, 0),
    last_accessed: record && new Date(record.used),
  };
}

/** Sizes of the downloaded contents by file name. */
async function contentSizes(): Promise<Map<string, number>> {
  const dir = await folder("files", false);
  return new Map(((await dir?.list()) ?? []).map(({ name, size }) => [name, size]));
}

/** Bytes of all downloaded contents and compiled plans. */
async function totalSize(): Promise<number> {
  let total = 0;
  for (const name of ["files", "plans"]) {
    const dir = await folder(name, false);
    for (const file of (await dir?.list()) ?? [])
      if (!file.name.endsWith(".json")) total += file.size;
  }
  return total;
}

/** Removes what is stored of a model. Contents that other models have, too, stay. */
async function remove(key: string): Promise<void> {
  const { links = [], plans = [] } = (await storedModels()).find((s) => s.key === key) ?? {};
  const [files, records, packages] = await Promise.all(
    ["files", "models", "plans"].map((name) => folder(name, false)),
  );
  for (const { url } of links) await removeFrom(files, `${linkName(url)}.json`);
  if (files) await removeUnused(files);
  for (const { name } of plans) await removeFrom(packages, name);
  await removeFrom(records, `${key}.json`);
}

/** What the page can ask for; checkpoints belong to the part that trains. */
export const storage: StorageFunctions<
  Exclude<keyof StorageCalls, "checkpoints" | "deleteCheckpoint">
> = {
  async list() {
    const [stored, contents] = await Promise.all([storedModels(), contentSizes()]);
    return stored
      .map((one) => described(one, contents))
      .sort((a, b) => Number(b.last_accessed ?? 0) - Number(a.last_accessed ?? 0));
  },
  async has(model, dtype) {
    return (await storedModels())
      .filter((stored) => isNamed(stored, model))
      .flatMap(dtypesOf)
      .some((found) => dtype === "auto" || found === dtype);
  },
  async delete(model) {
    const before = await totalSize();
    for (const stored of await storedModels()) {
      if (!isNamed(stored, model)) continue;
      try {
        await unused(stored.key, () => changingLinks(() => remove(stored.key)));
      } catch (e) {
        if (!(e instanceof DOMException && e.name === "AbortError")) throw e;
        throw new StorageError(
          "the model is in use",
          model.model,
          "Dispose of its pipelines and sessions, in other tabs of this site, too.",
        );
      }
    }
    return before - (await totalSize());
  },
  size: totalSize,
  async cacheBytes() {
    const total = { plans: 0, files: 0 };
    for (const name of ["plans", "files"] as const) {
      const dir = await folder(name, false);
      for (const { size } of dir ? await dir.list() : []) total[name] += size;
    }
    return total;
  },
  clearCache: () => removeFolders(["plans", "files", "models"]),
};
