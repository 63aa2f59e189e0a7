// What the browser's storage has of downloaded models. `files/` has the contents (NAME.data) and a
// link to its content per address (ID.json), `models/` a record per model (KEY.json), and `plans/`
// the compiled packages (KEY-NAME.edge). Contents of known SHA-256 have it as their name, so that
// equal files of several addresses are stored once.

import { sha256 } from "../sha256.ts";
import { fileIn, removeFrom } from "./folders.ts";
import type { Folder } from "./stored.ts";

/** The link of an address to its content. */
export interface KeptFile {
  url: string;
  /** Key of the model that it belongs to. */
  model: string;
  /** Name of the content. */
  data: string;
  /** Bytes; undefined if unknown. */
  size: number | undefined;
  /** `KnownFile.version`, or the server's ETag or date. */
  validator: string | undefined;
  /** Whether all of the content is stored. */
  complete: boolean;
  /** When this was written, in milliseconds since 1970. */
  modified: number;
  /** Checksums of a complete file (kept-sums.ts), except for packages, which contain theirs. */
  sums?: string[];
  /** The release that it is a version of (src/extras/release). */
  release?: ReleaseOf;
}

/** A version of a release. `manifest`: SHA-256 of its manifest. */
export interface ReleaseOf {
  name: string;
  version: number;
  manifest: string;
}

/** The record of a model. */
export interface KeptModel {
  key: string;
  /** `ModelAddress.id` and `revision`. */
  id: string;
  revision: string | undefined;
  /** Time of the latest load, in milliseconds since 1970. */
  used: number;
  /** Addresses of the files that loads read, by dtype ("" for none). */
  loads: Record<string, string[]>;
  /** The hub's listing: paths, sizes and versions. */
  listing?: [string, number, string][];
}

/** Name of the link of an address, without extension. */
export function linkName(url: string): string {
  return sha256(url).slice(0, 40);
}

/** Reads a JSON file; undefined if it does not exist or is damaged. */
export async function readJson<T>(dir: Folder | undefined, name: string): Promise<T | undefined> {
  try {
    const value: unknown = JSON.parse(await (await fileIn(dir, name)).text());
    return typeof value === "object" && value !== null ? (value as T) : undefined;
  } catch {
    return undefined;
  }
}

/** Writes a JSON file. */
export function writeJson(dir: Folder, name: string, value: KeptFile | KeptModel): Promise<void> {
  return dir.write(name, new Blob([JSON.stringify(value)]));
}

/** All JSON files of a folder, without those that are damaged. */
export async function readAllJson<T>(dir: Folder | undefined): Promise<T[]> {
  if (!dir) return [];
  const names = (await dir.list()).map(({ name }) => name).filter((name) => name.endsWith(".json"));
  const values = await Promise.all(names.map((name) => readJson<T>(dir, name)));
  return values.filter((value) => value !== undefined);
}

/** Removes a content and all links to it. */
export async function removeData(dir: Folder | undefined, data: string): Promise<void> {
  for (const link of await readAllJson<KeptFile>(dir))
    if (link.data === data) await removeFrom(dir, `${linkName(link.url)}.json`);
  await removeFrom(dir, `${data}.data`);
}

/** Removes contents without links. */
export async function removeUnused(dir: Folder): Promise<void> {
  const used = new Set((await readAllJson<KeptFile>(dir)).map((link) => `${link.data}.data`));
  for (const { name } of await dir.list())
    if (name.endsWith(".data") && !used.has(name)) await removeFrom(dir, name);
}

/** How long a lock is waited for. */
const LOCK_MS = 3000;

/**
 * Runs `work` while no other tab or worker changes which links exist.
 * @throws DOMException (AbortError) if the lock is not available
 */
export function changingLinks<T>(work: () => Promise<T>): Promise<T> {
  return locked("edgewise files", "exclusive", work);
}

/** Name of the lock of a model, which each worker has that uses it. */
export const modelLock = (key: string): string => `edgewise model ${key}`;

/**
 * Runs `work` while no tab or worker uses a model.
 * @throws DOMException (AbortError) if the model is in use
 */
export function unused<T>(key: string, work: () => Promise<T>): Promise<T> {
  return locked(modelLock(key), "exclusive", work);
}

/**
 * Marks a model as used until this worker ends, or until `signal` fires. Waits while it is being
 * deleted.
 */
export function use(key: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    locked(modelLock(key), "shared", () => {
      resolve();
      return new Promise<void>((release) =>
        signal.addEventListener("abort", () => release(), { once: true }),
      );
    }).catch(() => resolve()); // without a lock the model is still readable
  });
}

async function locked<T>(name: string, mode: LockMode, work: () => Promise<T>): Promise<T> {
  const { locks } = globalThis.navigator ?? {};
  if (!locks) return work(); // no secure context
  const waiting = new AbortController();
  const timer = setTimeout(() => waiting.abort(), LOCK_MS);
  return locks.request(name, { mode, signal: waiting.signal }, () => {
    clearTimeout(timer);
    return work();
  });
}
