// A downloaded file in the browser's storage (kept.ts). If the storage is missing or full, pages
// work without it and receive a warning.

import { throwIfAborted } from "../../shared/abort.ts";
import { StorageError } from "../../shared/errors.ts";
import { quotaWords, type Warn } from "../../shared/files/cached.ts";
import { fileIn, folder } from "../../shared/files/folders.ts";
import { HttpSource, type KnownFile } from "../../shared/files/http.ts";
import {
  changingLinks,
  type KeptFile,
  linkName,
  readAllJson,
  readJson,
  removeData,
  removeUnused,
  writeJson,
} from "../../shared/files/kept.ts";
import { BlobSource } from "../../shared/files/source.ts";
import type { Folder, OpenFile } from "../../shared/files/stored.ts";
import { type ByteSource, checkDigest, type OnBytes } from "../../shared/files/stream.ts";
import { Sha256 } from "../../shared/sha256.ts";
import { megabytes } from "../../shared/words.ts";
import { sharedFile, shareFile } from "./cross-origin.ts";
import { PieceSums } from "./kept-sums.ts";
import { sha256Of } from "./listing.ts";

/** Options of a {@link KeptSource}. */
export interface KeptOptions {
  signal?: AbortSignal | undefined;
  onBytes?: OnBytes | undefined;
  /** Expected SHA-256 in hexadecimal digits. */
  integrity?: string | undefined;
  fetchOptions?: RequestInit | undefined;
  known?: KnownFile | undefined;
  /** Key of the model that the file belongs to. */
  model: string;
}

/**
 * A downloaded file that is stored for the next visit. Partial downloads are stored, too, and
 * resumed. A complete file is used without contacting the server, unless another version is asked
 * for.
 */
export class KeptSource implements ByteSource {
  /** Size of the file in bytes, once known. */
  size: number | undefined;
  /** Identifies the version: what is known of it, or the server's ETag or date. */
  validator: string | undefined;
  /** The stored content, complete or partial. */
  private kept: File | undefined;
  private link: KeptFile | undefined;
  /** The file in Cross-Origin Storage; it is not stored once more. */
  private shared: File | undefined;
  /** Name of the content that this address had before. */
  private before: string | undefined;
  /** The file was downloaded and stored during this visit. */
  private whole = false;
  /** Its stored content has been verified during this visit. */
  private sound = false;
  private dir: Folder | undefined;
  private readonly id: string;
  /** Name of the content. */
  private readonly data: string;
  private readonly http: HttpSource;

  constructor(
    readonly url: string,
    private readonly options: KeptOptions,
    private readonly warn: Warn,
  ) {
    this.id = linkName(url);
    this.data = options.integrity ?? this.id;
    this.http = new HttpSource(url, { ...options, integrity: undefined });
  }

  /** Name for errors. */
  get name(): string {
    return this.http.name;
  }

  /** Finds the stored file, or obtains size and validator. */
  async open(): Promise<void> {
    if (this.size !== undefined || this.validator !== undefined) return;
    this.dir = await folder("files", true);
    await this.find().catch(() => undefined); // it is not there or unreadable: download it
    const { link, kept, http } = this;
    if (link?.complete) {
      [this.size, this.validator] = [link.size, link.validator];
      return;
    }
    const { known } = this.options;
    if (known) {
      await http.open(); // requests nothing: the digest shows whether a stored part belongs to it
      const digest = sha256Of(known);
      const file = digest && !kept ? await sharedFile(digest) : undefined;
      if (file?.size === known.size) this.shared = file;
    } else if (kept?.size && link?.validator && link.size !== undefined) {
      const have = Math.min(kept.size, link.size - 1);
      if (!(await http.resume(have, link.validator, link.size))) this.kept = undefined;
    } else {
      await http.open();
      this.kept = undefined;
    }
    [this.size, this.validator] = [http.size, http.validator];
  }

  /** Finds what is stored of the file, at this address or at another one. */
  private async find(): Promise<void> {
    const { known } = this.options;
    const link = await readJson<KeptFile>(this.dir, `${this.id}.json`);
    this.before = link?.data;
    if (link?.url === this.url && (!known || known.version === link.validator)) {
      const data = await fileIn(this.dir, `${link.data}.data`);
      if (!link.complete || data.size === link.size) [this.link, this.kept] = [link, data];
    } else if (known && this.data !== this.id) {
      this.kept = await fileIn(this.dir, `${this.data}.data`);
      await changingLinks(async () => {
        const twin = (await readAllJson<KeptFile>(this.dir)).find(
          (l) => l.data === this.data && l.complete && l.size === this.kept!.size,
        );
        if (!twin) return;
        const { url } = this;
        const link = { ...twin, url, model: this.options.model, validator: known.version };
        await this.write(link);
        this.link = link;
      });
    }
  }

  /** Streams the bytes from an offset on, storing them as they arrive. */
  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    await this.open();
    const { signal, onBytes } = this.options;
    if (this.shared)
      yield* new BlobSource(this.shared, this.name, { signal, onBytes }).stream(offset);
    else if (this.link?.complete && this.kept) yield* this.stored(this.kept, this.link, offset);
    else if (offset > 0) yield* this.http.stream(offset);
    else yield* this.download();
  }

  /** Streams the complete stored file and verifies its checksums. */
  private async *stored(
    kept: File,
    link: KeptFile,
    offset: number,
  ): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes, integrity } = this.options;
    const sums = !offset && link.sums && PieceSums.possible ? new PieceSums() : undefined;
    // a digest that was verified when the file arrived is the name of its content
    const hash = !offset && integrity && !(sums && link.data === integrity) && new Sha256();
    for await (const chunk of new BlobSource(kept, this.name, { signal, onBytes }).stream(offset)) {
      if (hash) hash.update(chunk);
      sums?.add(chunk);
      yield chunk;
    }
    if (sums && (await sums.finish()).join() !== String(link.sums)) {
      await this.forget();
      throw new StorageError(
        "its copy in the browser's storage was damaged and has been removed",
        this.url,
        "Load it again.",
      );
    }
    if (hash) await this.check(hash);
    this.sound ||= !offset;
  }

  async asFile(): Promise<Blob | undefined> {
    await this.open();
    const { shared, link, whole, sound, options } = this;
    if (shared) return shared;
    const { integrity } = options;
    if (link?.complete && (sound || !integrity || link.data === integrity)) return this.kept;
    return whole ? fileIn(this.dir, `${this.data}.data`).catch(() => undefined) : undefined;
  }

  /** @throws ModelError if the digest is not the expected one; the file is removed */
  private async check(hash: Sha256): Promise<void> {
    try {
      checkDigest(hash.hex(), this.options.integrity!, this.url);
    } catch (e) {
      await this.forget();
      throw e;
    }
  }

  /**
   * Streams the stored part of the file, then the rest from the network, which is stored as well.
   */
  private async *download(): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    let handle = await this.openToWrite();
    let at = 0;
    const sums =
      PieceSums.possible && !new URL(this.url).pathname.endsWith(".edge")
        ? new PieceSums()
        : undefined;
    const hash = this.options.integrity ? new Sha256() : undefined;
    try {
      if (handle)
        for await (const chunk of this.storedPart(handle)) {
          at += chunk.length;
          this.options.onBytes?.(at, this.size);
          hash?.update(chunk);
          sums?.add(chunk);
          yield chunk;
        }
      if (at > 0 && at === this.size) this.http.cancel();
      else
        for await (const chunk of this.http.stream(at)) {
          try {
            await handle?.write(chunk, at);
          } catch (e) {
            handle = await this.giveUp(handle, e, at);
          }
          at += chunk.length;
          hash?.update(chunk);
          if (handle) sums?.add(chunk);
          yield chunk;
        }
      this.size ??= at;
      try {
        await handle?.flush();
      } catch (e) {
        handle = await this.giveUp(handle, e, at);
      }
      const kept = handle !== undefined;
      await handle?.close();
      handle = undefined;
      if (hash) await this.check(hash);
      if (kept) {
        this.whole = true;
        await this.writeLink(true, await sums?.finish()).catch((e: unknown) =>
          this.warn(quotaWords(e, this.name)),
        );
        const digest = sha256Of(this.options.known);
        // what needs authorization is not offered to other sites
        if (digest && !this.options.fetchOptions)
          void shareFile(digest, () => fileIn(this.dir, `${this.data}.data`));
      }
    } finally {
      await handle?.close().catch(() => undefined);
    }
  }

  /** Removes a file that could not be written, with a warning. */
  private async giveUp(handle: OpenFile | undefined, e: unknown, at: number): Promise<undefined> {
    await handle?.close().catch(() => undefined);
    await this.forget();
    this.warn(quotaWords(e, `${this.name} (${megabytes(this.size ?? at)})`));
  }

  /** Opens the stored file; undefined if it cannot be written. */
  private async openToWrite(): Promise<OpenFile | undefined> {
    let handle: OpenFile | undefined;
    try {
      handle = await this.dir?.open(`${this.data}.data`);
      if (handle) await changingLinks(() => this.writeLink(false));
      return handle;
    } catch (e) {
      // no space, or another tab is downloading the same file
      await handle?.close().catch(() => undefined);
      if (e instanceof DOMException && e.name === "QuotaExceededError")
        this.warn(quotaWords(e, this.name));
      return undefined;
    }
  }

  /** The bytes that an earlier visit stored. */
  private async *storedPart(file: OpenFile): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const have = this.kept ? Math.min(file.size, this.size ?? Infinity) : 0;
    await file.truncate(have);
    const buffer = new Uint8Array(Math.min(4 << 20, have));
    for (let at = 0; at < have; ) {
      throwIfAborted(this.options.signal);
      const chunk = buffer.subarray(0, Math.min(buffer.length, have - at));
      if ((await file.read(chunk, at)) !== chunk.length) return;
      at += chunk.length;
      yield chunk;
    }
  }

  private async writeLink(complete: boolean, sums?: string[]): Promise<void> {
    const { url, data, size, validator } = this;
    const { model } = this.options;
    const modified = Date.now();
    const what = { url, model, data, size, validator, complete, modified };
    const link = { ...what, ...(sums ? { sums } : {}) };
    await this.write(link);
  }

  /** Writes the link, and removes what it refers to no longer: another version. */
  private async write(link: KeptFile): Promise<void> {
    await writeJson(this.dir!, `${this.id}.json`, link);
    if (this.before !== undefined && this.before !== link.data) await removeUnused(this.dir!);
    this.before = link.data;
  }

  /** Closes a connection that `open` made and that was not read. */
  cancel(): void {
    this.http.cancel();
  }

  /**
   * Removes the stored file if it is complete, since it or another file of its model is damaged. A
   * partial file is compared with the server's version anyway.
   */
  async distrust(): Promise<void> {
    if (this.whole || this.link?.complete) await this.forget();
  }

  /** Removes the stored file. */
  async forget(): Promise<void> {
    const data = this.link?.complete ? this.link.data : this.data;
    await removeData(this.dir, data).catch(() => undefined); // it is checked when it is read
  }
}
