// Downloaded files in the browser's storage. If the storage is missing or full, pages work without
// it and receive a warning.

import { throwIfAborted } from "../../shared/abort.ts";
import { StorageError } from "../../shared/errors.ts";
import { quotaWords, type Warn } from "../../shared/files/cached.ts";
import { fileIn, folder, removeFrom, textIn } from "../../shared/files/folders.ts";
import { HttpSource } from "../../shared/files/http.ts";
import { BlobSource } from "../../shared/files/source.ts";
import type { Folder, OpenFile } from "../../shared/files/stored.ts";
import { type ByteSource, checkDigest, type OnBytes } from "../../shared/files/stream.ts";
import { Sha256, sha256 } from "../../shared/sha256.ts";
import { megabytes } from "../../shared/words.ts";
import { PieceSums } from "./kept-sums.ts";

/**
 * `sums`: checksums of the whole file (kept-sums.ts), except for packages, which contain theirs.
 */
interface Meta {
  url: string;
  size: number | undefined;
  validator: string | undefined;
  complete: boolean;
  sums?: string[];
}

/**
 * A downloaded file that is stored for the next visit. Partial downloads are stored, too, and
 * resumed. A complete file is used without contacting the server.
 */
export class KeptSource implements ByteSource {
  /** Size of the file in bytes, once known. */
  size: number | undefined;
  /** The server's identification of the version (ETag or date), required to resume a download. */
  validator: string | undefined;
  private kept: File | undefined;
  /** The file was downloaded and stored during this visit. */
  private whole = false;
  private meta: Meta | undefined;
  private dir: Folder | undefined;
  private readonly id: string;
  private readonly http: HttpSource;

  constructor(
    readonly url: string,
    private readonly options: {
      signal?: AbortSignal | undefined;
      onBytes?: OnBytes | undefined;
      integrity?: string | undefined;
      fetchOptions?: RequestInit | undefined;
    },
    private readonly warn: Warn,
  ) {
    this.id = sha256(url).slice(0, 40);
    this.http = new HttpSource(url, { ...options, integrity: undefined });
  }

  /** Name for errors. */
  get name(): string {
    return this.http.name;
  }

  /** Finds the stored file, or obtains size and validator from the server. */
  async open(): Promise<void> {
    if (this.size !== undefined || this.validator !== undefined) return;
    this.dir = await folder("files", true);
    try {
      const meta = JSON.parse(await textIn(this.dir, `${this.id}.json`)) as Meta;
      const data = await fileIn(this.dir, `${this.id}.data`);
      if (meta.url === this.url && (!meta.complete || data.size === meta.size))
        [this.meta, this.kept] = [meta, data];
    } catch {
      // missing or unreadable: download it
    }
    if (this.meta?.complete && this.kept) {
      [this.size, this.validator] = [this.meta.size, this.meta.validator];
      return;
    }
    await this.http.open();
    [this.size, this.validator] = [this.http.size, this.http.validator];
    // a partial file can be resumed only if the server has the same version
    const same =
      this.meta &&
      this.kept &&
      this.validator !== undefined &&
      this.meta.validator === this.validator &&
      this.meta.size === this.size;
    if (!same) this.kept = undefined;
  }

  /** Streams the bytes from an offset on, storing them as they arrive. */
  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    await this.open();
    const { signal, onBytes, integrity } = this.options;
    if (offset > 0) {
      yield* this.meta?.complete && this.kept
        ? new BlobSource(this.kept, this.name, { signal, onBytes }).stream(offset)
        : this.http.stream(offset);
      return;
    }
    const hash = integrity ? new Sha256() : undefined;
    const stated = this.meta?.complete && this.kept ? this.meta.sums : undefined;
    const sums = stated && PieceSums.possible ? new PieceSums() : undefined;
    for await (const chunk of this.meta?.complete && this.kept
      ? new BlobSource(this.kept, this.name, { signal, onBytes }).stream()
      : this.download()) {
      hash?.update(chunk);
      sums?.add(chunk);
      yield chunk;
    }
    if (sums && (await sums.finish()).join() !== String(stated)) {
      await this.forget();
      throw new StorageError(
        "its copy in the browser's storage was damaged and has been removed",
        this.url,
        "Load it again.",
      );
    }
    if (!hash) return;
    try {
      checkDigest(hash.hex(), integrity!, this.url);
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
    try {
      if (handle) {
        for await (const chunk of this.storedPart(handle)) {
          at += chunk.length;
          this.options.onBytes?.(at, this.size);
          sums?.add(chunk);
          yield chunk;
        }
        if (at > 0) this.http.cancel();
      }
      if (at === 0 || at !== this.size)
        for await (const chunk of this.http.stream(at)) {
          try {
            await handle?.write(chunk, at);
          } catch (e) {
            handle = await this.giveUp(handle, e, at);
          }
          at += chunk.length;
          if (handle) sums?.add(chunk);
          yield chunk;
        }
      this.size ??= at;
      try {
        await handle?.flush();
      } catch (e) {
        handle = await this.giveUp(handle, e, at);
      }
      if (handle) {
        await handle.close();
        handle = undefined;
        this.whole = true;
        await this.writeMeta(true, await sums?.finish()).catch((e: unknown) =>
          this.warn(quotaWords(e, this.name)),
        );
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
      handle = await this.dir?.open(`${this.id}.data`);
      if (handle) await this.writeMeta(false);
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
    const have = this.kept ? file.size : 0;
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

  private async writeMeta(complete: boolean, sums?: string[]): Promise<void> {
    const meta: Meta = {
      url: this.url,
      size: this.size,
      validator: this.validator,
      complete,
      ...(sums ? { sums } : {}),
    };
    await this.dir!.write(`${this.id}.json`, new Blob([JSON.stringify(meta)]));
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
    if (this.whole || this.meta?.complete) await this.forget();
  }

  /** Removes the stored file. */
  async forget(): Promise<void> {
    for (const end of ["json", "data"]) await removeFrom(this.dir, `${this.id}.${end}`);
  }
}
