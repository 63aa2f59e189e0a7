// What is installed of a release, in the storage that pipelines read downloaded models from: its
// content, and a link to it from the model's address. One write of the link switches versions.

import { throwIfAborted } from "../../shared/abort.ts";
import { StorageError } from "../../shared/errors.ts";
import { storageError } from "../../shared/files/cached.ts";
import { openFolder, removeFrom } from "../../shared/files/folders.ts";
import {
  changingLinks,
  type KeptFile,
  type KeptModel,
  linkName,
  modelLock,
  type ReleaseOf,
  readAllJson,
  readJson,
  removeUnused,
  writeJson,
} from "../../shared/files/kept.ts";
import { modelAddress } from "../../shared/files/model-address.ts";
import type { Folder } from "../../shared/files/stored.ts";
import { Sha256, sha256 } from "../../shared/sha256.ts";
import { ReleaseError } from "./errors.ts";
import { digest, toHex } from "./keys.ts";
import { parseManifest, type ReleaseManifest } from "./manifest.ts";
import type { TrustedFiles } from "./tuf.ts";

type Bytes = Uint8Array<ArrayBuffer>;
const PIECE = 1 << 20;
const OLD = "#old";
const AT_ONCE = 64 << 20;

/** A version that is stored. */
export interface StoredVersion {
  link: KeptFile;
  release: ReleaseOf | undefined;
  content: File;
}

/** SHA-256 of a file: of a large one in pieces, more slowly, since it need not fit into memory. */
export async function digestOf(file: Blob): Promise<string> {
  if (file.size <= AT_ONCE) return digest(new Uint8Array(await file.arrayBuffer()));
  const hash = new Sha256();
  for (let at = 0; at < file.size; at += PIECE)
    hash.update(new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer()));
  return hash.hex();
}

/** Runs `work` under a lock of all tabs. @throws Aborted */
async function locked<T>(
  name: string,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  const { locks } = globalThis.navigator ?? {};
  if (!locks) return work();
  let begun = false;
  const start = () => {
    begun = true;
    return work();
  };
  try {
    return (await locks.request(name, signal ? { signal } : {}, start)) as T;
  } catch (e) {
    if (!begun) throwIfAborted(signal);
    throw e;
  }
}

/** Runs `work` under a lock of all tabs, unless somebody has it. */
async function ifFree(name: string, work: () => Promise<void>): Promise<void> {
  const { locks } = globalThis.navigator ?? {};
  const run = (lock: Lock | null) => (lock ? work() : Promise.resolve());
  if (locks) await locks.request(name, { ifAvailable: true }, run);
  else await work();
}

/** A link without its address. */
function contentOf(link: KeptFile): Omit<KeptFile, "url" | "model" | "modified"> {
  const { data, size, validator, complete, sums, release } = link;
  const more = { ...(sums ? { sums } : {}), ...(release ? { release } : {}) };
  return { data, size, validator, complete, ...more };
}

/** The stored versions of one model. */
export class Installed {
  private readonly key: string;
  private readonly prefix: string;
  private readonly lock: string;
  /** Beginning of the names of chunks that have arrived of this model. */
  readonly chunks: string;

  /**
   * @param url address of the model
   * @param repository address of the repository
   * @param files folder of downloaded contents and links, and of chunks that have arrived
   * @param own folder of this part: trusted metadata and manifests, which `clearCache` leaves
   */
  private constructor(
    private readonly url: string,
    repository: string,
    readonly files: Folder,
    private readonly own: Folder,
    private readonly models: Folder,
  ) {
    this.key = modelAddress(url).key;
    this.prefix = sha256(repository).slice(0, 16);
    this.lock = `edgewise release ${this.key}`;
    this.chunks = `${linkName(url).slice(0, 16)}-`;
  }

  /** @throws StorageError if the page may not store files */
  static async open(url: string, repository: string): Promise<Installed> {
    try {
      const names = ["files", "releases", "models"];
      const [files, own, models] = await Promise.all(names.map(openFolder));
      return new Installed(url, repository, files!, own!, models!);
    } catch (e) {
      throw storageError(e, url, 0, "Releases cannot be installed here.");
    }
  }

  /** Runs `work` while no other tab installs this model. */
  exclusive<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    return locked(this.lock, signal, work);
  }

  /** Runs `work` unless another tab installs this model. */
  whenFree(work: () => Promise<void>): Promise<void> {
    return ifFree(this.lock, work);
  }

  /** Runs `work` while no other tab changes what is trusted of the repository. */
  trusting<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    return locked(`edgewise trusted ${this.prefix}`, signal, work);
  }

  /** The trusted metadata of the repository. */
  get trusted(): TrustedFiles {
    return {
      read: async (name) => {
        const file = await this.own.read(`${this.prefix}-${name}`).catch(() => undefined);
        return file && new Uint8Array(await file.arrayBuffer());
      },
      write: (name, data) => this.put(`${this.prefix}-${name}`, data),
    };
  }

  private async put(name: string, data: Bytes | string): Promise<void> {
    try {
      await this.own.write(name, new Blob([data]));
    } catch (e) {
      throw storageError(e, name, data.length, "The version that was installed stays.");
    }
  }

  /** A random text that never leaves this device: which rollouts it takes part in. */
  async device(): Promise<string> {
    const text = await this.own.read("device").then(
      (file) => file.text(),
      () => "",
    );
    if (/^[0-9a-f]{32}$/.test(text)) return text;
    const made = toHex(crypto.getRandomValues(new Uint8Array(16)));
    await this.put("device", made);
    return made;
  }

  /** The version of a release that `revert` has left; 0: none. */
  async refused(name: string): Promise<number> {
    const file = await this.own.read(`${this.prefix}-refused-${name}`).catch(() => undefined);
    return Number((await file?.text()) ?? 0) || 0;
  }

  /** Keeps a version from being installed again. */
  refuse(name: string, version: number): Promise<void> {
    return this.put(`${this.prefix}-refused-${name}`, String(version));
  }

  private async version(name: string): Promise<StoredVersion | undefined> {
    const link = await this.link(name);
    if (!link?.complete) return undefined;
    const content = await this.files.read(`${link.data}.data`).catch(() => undefined);
    return content?.size === link.size
      ? { link, release: link.release, content: content! }
      : undefined;
  }

  /** Whether a content is stored completely. */
  private async isStored(data: string, size: number): Promise<boolean> {
    const file = await this.files.read(`${data}.data`).catch(() => undefined);
    return file?.size === size && (await digestOf(file)) === data;
  }

  /**
   * Writes the link again where a tab has ended in the middle of that: browsers without
   * `createWritable` write in place.
   */
  async repair(): Promise<void> {
    if (await this.current()) return;
    const next = await this.link("#next");
    if (next?.release && next.size !== undefined && (await this.isStored(next.data, next.size)))
      await this.write("", contentOf({ ...next, complete: true }));
    else {
      const before = await this.previous();
      if (before) await this.write("", contentOf(before.link));
    }
  }

  private link(name: string): Promise<KeptFile | undefined> {
    return readJson<KeptFile>(this.files, `${linkName(this.url + name)}.json`);
  }

  /** The version that pipelines open. */
  current(): Promise<StoredVersion | undefined> {
    return this.version("");
  }

  /** The version before, as long as it is kept. */
  previous(): Promise<StoredVersion | undefined> {
    return this.version("#previous");
  }

  /** A manifest that was stored. */
  async manifest(sha256: string): Promise<ReleaseManifest | undefined> {
    try {
      const file = await this.own.read(`${sha256}.json`);
      return parseManifest(new Uint8Array(await file.arrayBuffer()), `${sha256}.json`);
    } catch {
      return undefined;
    }
  }

  /** Removes what has arrived for this model, but for the objects in `keep`, by their digests. */
  async removeChunks(keep: ReadonlySet<string> = new Set()): Promise<void> {
    const { chunks } = this;
    for (const { name } of await this.files.list())
      if (name.startsWith(chunks) && !keep.has(name.slice(chunks.length, chunks.length + 64)))
        await removeFrom(this.files, name);
  }

  /** Removes manifests that no version has which is installed, of any model. */
  private async removeManifests(): Promise<void> {
    const links = await readAllJson<KeptFile>(this.files);
    const used = new Set(links.map(({ release }) => `${release?.manifest}.json`));
    for (const { name } of await this.own.list())
      if (/^[0-9a-f]{64}\.json$/.test(name) && !used.has(name)) await removeFrom(this.own, name);
  }

  private write(name: string, link: Omit<KeptFile, "url" | "model" | "modified">): Promise<void> {
    const { url, key } = this;
    const all = { url: url + name, model: key, modified: Date.now(), ...link };
    return writeJson(this.files, `${linkName(url + name)}.json`, all);
  }

  /** Keeps the content of a version that a pipeline may have open until `free` finds none. */
  private async retire(version: StoredVersion | undefined): Promise<void> {
    if (version) await this.write(`${OLD}${version.link.data}`, contentOf(version.link));
  }

  private async unlink(name: string): Promise<void> {
    await removeFrom(this.files, `${linkName(this.url + name)}.json`);
  }

  /**
   * Writes a version beside the current one, reads it again, and switches to it.
   * @param content its parts; they may be stored files
   * @throws StorageError if there is no room for it, ReleaseError if it is not what it should be
   */
  async install(manifest: ReleaseManifest, text: Bytes, content: Blob): Promise<void> {
    const { sha256: data, bytes: size, name, version } = manifest;
    const about = await digest(text);
    const link = { data, size, validator: `release-${data}`, complete: true };
    const release = { name, version, manifest: about };
    try {
      await changingLinks(async () => {
        await this.own.write(`${about}.json`, new Blob([text]));
        await this.write("#next", { ...link, release, complete: false }); // keeps the content
      });
      if (!(await this.isStored(data, size))) {
        await this.files.write(`${data}.data`, content);
        if (!(await this.isStored(data, size)))
          throw new ReleaseError("mismatch", "its content does not match its SHA-256", this.url);
      }
      const before = await this.current();
      if (before && before.link.data !== data) {
        await this.retire(await this.previous());
        await this.write("#previous", contentOf(before.link));
      }
      await this.write("", { ...link, release });
    } catch (e) {
      await this.unlink("#next");
      throw storageError(e, this.url, size, "The version that was installed stays.");
    }
    await this.unlink("#next");
    void this.free();
  }

  /**
   * Goes back to the version before.
   * @throws StorageError if it is not kept
   */
  async revert(): Promise<StoredVersion> {
    const before = await this.previous();
    if (!before)
      throw new StorageError("no version before is kept", this.url, "Publish it as a new version.");
    await this.retire(await this.current());
    await this.write("", contentOf(before.link));
    await this.unlink("#previous");
    await this.free();
    return before;
  }

  /**
   * Removes what nobody needs any more: the version before, once the current one has been loaded,
   * manifests without a version, and what has arrived, but for `keep`.
   */
  async clean(keep: ReadonlySet<string>): Promise<void> {
    const [current, before] = [await this.current(), await this.previous()];
    const record = await readJson<KeptModel>(this.models, `${this.key}.json`);
    if (before && current && record && record.used > current.link.modified) {
      await this.retire(before).catch(() => undefined);
      await this.unlink("#previous");
    }
    await this.free();
    await changingLinks(() => this.removeManifests()).catch(() => undefined);
    await this.removeChunks(keep);
  }

  /**
   * Removes contents to which no version leads, unless a pipeline has the model open, which may
   * read one of them: then a later call does.
   */
  free(): Promise<void> {
    const remove = async () => {
      for (const { url } of await readAllJson<KeptFile>(this.files))
        if (url?.startsWith(this.url + OLD)) await removeFrom(this.files, `${linkName(url)}.json`);
      await removeUnused(this.files);
    };
    return ifFree(modelLock(this.key), () => changingLinks(remove)).catch(() => undefined);
  }
}
