// The browser's private files (OPFS): compiled packages, so that a second visit needs no compiler; and downloaded model files where
// asked. Everything here may be missing or full; then a page works without, and says so.

import { StorageError, type EdgewiseError } from "./errors.ts";
import { openPackage } from "./package.ts";
import { BlobSource, checkDigest, HttpSource, isEdgewise, throwIfAborted, type ByteSource, type OnBytes } from "./source.ts";
import { megabytes, message } from "./engine.ts";
import { Sha256, sha256 } from "./sha256.ts";

const ROOT = "edgewise";
/** Gets in words what did not work. */
export type Warn = (text: string) => void;

/** A file that a worker reads and writes in place. */
export interface SyncHandle {
  /** As FileSystemSyncAccessHandle's, likewise below; bytes. */
  read(data: Uint8Array, options?: { at: number }): number;
  write(data: Uint8Array, options?: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

/** A folder of ours. Throws what the browser says, or undefined where it has no files for pages at all. */
export async function openFolder(name: string): Promise<FileSystemDirectoryHandle> {
  const storage = globalThis.navigator?.storage;
  if (typeof storage?.getDirectory !== "function") throw undefined;
  return (await (await storage.getDirectory()).getDirectoryHandle(ROOT, { create: true })).getDirectoryHandle(name, { create: true });
}

/** A folder of ours, or undefined where the browser has none for us. */
export async function folder(name: string, create: boolean): Promise<FileSystemDirectoryHandle | undefined> {
  try {
    if (create) return await openFolder(name);
    return await (await (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT)).getDirectoryHandle(name);
  } catch {
    return undefined; // private windows of some browsers, pages without a secure context, a folder that is not there
  }
}

/** What a failed write is to those who asked for it. `lost`: what of it remains, in a sentence. */
export function storageError(e: unknown, where: string, bytes: number, lost: string): EdgewiseError {
  if (isEdgewise(e)) return e;
  const kind = e instanceof DOMException ? e.name : "";
  if (kind === "QuotaExceededError") return new StorageError(`there is no room for it (${megabytes(bytes)}): the browser's storage for this site is full`, where, `${lost} Free space on the device, remove what is kept of earlier, or call edgewise.clearCache().`);
  if (kind === "NoModificationAllowedError" || kind === "InvalidStateError") return new StorageError("another tab is writing it", where, "Close the other tab, or choose another name.");
  if (e === undefined || kind === "SecurityError" || kind === "NotAllowedError") return new StorageError("this page may not keep files", where, `${lost} Serve the page by https or from localhost, and not in a private window that denies storage.`);
  return new StorageError(`it could not be written (${message(e)})`, where, lost);
}

function quotaWords(e: unknown, what: string): string {
  const full = e instanceof DOMException && e.name === "QuotaExceededError";
  return full
    ? `${what} was not kept for the next visit: the browser's storage for this site is full. Nothing is lost; free space on the device, or call edgewise.clearCache().`
    : `${what} was not kept for the next visit (${message(e)}). Nothing is lost.`;
}

/** Writes a file whole or not at all. */
export async function writeFile(dir: FileSystemDirectoryHandle, name: string, data: Blob): Promise<void> {
  const file = await dir.getFileHandle(name, { create: true });
  const before = typeof file.createWritable === "function" && (await file.getFile()).size > 0; // stays if this fails
  try {
    if (typeof file.createWritable === "function") {
      const out = await file.createWritable(); // takes effect on close
      try {
        await out.write(data);
        await out.close();
      } catch (e) {
        await out.abort().catch(() => undefined);
        throw e;
      }
      return;
    }
    const handle = (await (file as unknown as { createSyncAccessHandle(): Promise<SyncHandle> }).createSyncAccessHandle());
    try {
      handle.truncate(0);
      const bytes = new Uint8Array(await data.arrayBuffer());
      if (handle.write(bytes, { at: 0 }) !== bytes.length) throw new DOMException("short write", "QuotaExceededError");
      handle.flush();
    } finally {
      handle.close();
    }
  } catch (e) {
    if (!before) await dir.removeEntry(name).catch(() => undefined);
    throw e;
  }
}

// Compiled packages

/** What a compiled package depends on: everything in `key`, and the bytes that the compiler read (`Reads`). */
export interface Reads {
  /** Per file: the ranges [offset, bytes] that the compiler looked at. */
  ranges: Record<string, [number, number][]>;
  /** Of the ranges' bytes, as `digestReads` gives it. */
  sha256: string;
}

/** The digest of what a compiler read, from the files' present content. */
export async function digestReads(ranges: Reads["ranges"], files: Map<string, Blob>): Promise<string | undefined> {
  const parts: (Uint8Array | string)[] = [];
  for (const name of Object.keys(ranges).sort()) {
    const blob = files.get(name);
    if (!blob) return undefined;
    for (const [offset, bytes] of ranges[name]!) {
      if (offset + bytes > blob.size) return undefined;
      parts.push(`${name} ${offset} ${bytes}\n`, new Uint8Array(await blob.slice(offset, offset + bytes).arrayBuffer()));
    }
  }
  return sha256(...parts);
}

/** A compiled package of an earlier visit. A damaged one is removed and counts as none. */
export async function findCompiled(key: string, files: Map<string, Blob> | undefined): Promise<ByteSource | undefined> {
  const dir = await folder("plans", false);
  if (!dir) return undefined;
  const name = `${sha256(key)}.edge`;
  try {
    const file = await (await dir.getFileHandle(name)).getFile();
    const source = new BlobSource(file, `the cached package of ${key.slice(0, 200)}`);
    const opened = await openPackage(source, true);
    const reads = opened.manifest.cache as Reads | undefined;
    await opened.finish(new Map()); // its checksums
    if (files) {
      if (!reads || typeof reads.ranges !== "object") return undefined;
      if ((await digestReads(reads.ranges, files)) !== reads.sha256) return undefined;
    }
    return source;
  } catch (e) {
    if (isEdgewise(e)) await dir.removeEntry(name).catch(() => undefined);
    return undefined;
  }
}

/** Keeps a compiled package; false, and a warning, where there is no room. */
export async function keepCompiled(key: string, data: Blob, warn: Warn): Promise<boolean> {
  const dir = await folder("plans", true);
  if (!dir) return false;
  try {
    await writeFile(dir, `${sha256(key)}.edge`, data);
    return true;
  } catch (e) {
    warn(quotaWords(e, "The compiled model"));
    return false;
  }
}

/** Removes a compiled package, if there is one. */
export async function forgetCompiled(key: string): Promise<void> {
  const dir = await folder("plans", false);
  await dir?.removeEntry(`${sha256(key)}.edge`).catch(() => undefined);
}

// Downloaded files

interface Meta { url: string; size: number | undefined; validator: string | undefined; complete: boolean }

/**
 * A file at an address that is kept for the next visit. What a broken download had got is kept, too, and taken up from there.
 * A complete one is used without asking the server.
 */
export class KeptSource implements ByteSource {
  /** Bytes of the file, once they are known. */
  size: number | undefined;
  /** The server's mark of this content (ETag or date), by which a download that broke off goes on. */
  validator: string | undefined;
  private kept: File | undefined;
  private meta: Meta | undefined;
  private dir: FileSystemDirectoryHandle | undefined;
  private readonly id: string;
  private readonly http: HttpSource;

  constructor(readonly url: string, private readonly options: { signal?: AbortSignal | undefined; onBytes?: OnBytes | undefined; integrity?: string | undefined; fetchOptions?: RequestInit | undefined }, private readonly warn: Warn) {
    this.id = sha256(url).slice(0, 40);
    this.http = new HttpSource(url, { ...options, integrity: undefined });
  }

  /** Its address, for errors. */
  get name(): string {
    return this.http.name;
  }

  /** Finds what is kept, or asks the server for size and validator. */
  async open(): Promise<void> {
    if (this.size !== undefined || this.validator !== undefined) return;
    this.dir = await folder("files", true);
    try {
      const meta = JSON.parse(await (await (await this.dir!.getFileHandle(`${this.id}.json`)).getFile()).text()) as Meta;
      const data = await (await this.dir!.getFileHandle(`${this.id}.data`)).getFile();
      if (meta.url === this.url && (!meta.complete || data.size === meta.size)) [this.meta, this.kept] = [meta, data];
    } catch {
      // Not there, or not readable: fetched.
    }
    if (this.meta?.complete && this.kept) {
      [this.size, this.validator] = [this.meta.size, this.meta.validator];
      return;
    }
    await this.http.open();
    [this.size, this.validator] = [this.http.size, this.http.validator];
    // A part is good only for the very same file.
    const same = this.meta && this.kept && this.validator !== undefined && this.meta.validator === this.validator && this.meta.size === this.size;
    if (!same) this.kept = undefined;
  }

  /** The bytes from an offset on, kept as they come. */
  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    await this.open();
    const { signal, onBytes, integrity } = this.options;
    if (offset > 0) {
      yield* this.meta?.complete && this.kept ? new BlobSource(this.kept, this.name, { signal, onBytes }).stream(offset) : this.http.stream(offset);
      return;
    }
    const hash = integrity ? new Sha256() : undefined;
    for await (const chunk of this.meta?.complete && this.kept ? new BlobSource(this.kept, this.name, { signal, onBytes }).stream() : this.download()) {
      hash?.update(chunk);
      yield chunk;
    }
    if (!hash) return;
    try {
      checkDigest(hash.hex(), integrity!, this.url);
    } catch (e) {
      await this.forget();
      throw e;
    }
  }

  /** What an earlier visit had got of the file, then the rest from the network; both end up in the file. */
  private async *download(): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes } = this.options;
    let handle: SyncHandle | undefined;
    let at = 0;
    try {
      try {
        const file = await this.dir?.getFileHandle(`${this.id}.data`, { create: true });
        handle = await (file as unknown as { createSyncAccessHandle?(): Promise<SyncHandle> } | undefined)?.createSyncAccessHandle?.();
        if (handle) await this.writeMeta(false);
      } catch (e) {
        handle?.close(); // no room even for this, or another tab is fetching the same file
        handle = undefined;
        if (e instanceof DOMException && e.name === "QuotaExceededError") this.warn(quotaWords(e, this.name));
      }
      if (handle) {
        const have = this.kept ? handle.getSize() : 0;
        handle.truncate(have);
        const buffer = new Uint8Array(Math.min(4 << 20, have));
        while (at < have) {
          throwIfAborted(signal);
          const chunk = buffer.subarray(0, Math.min(buffer.length, have - at));
          if (handle.read(chunk, { at }) !== chunk.length) break;
          at += chunk.length;
          onBytes?.(at, this.size);
          yield chunk;
        }
        if (at > 0) this.http.cancel();
      }
      if (at === 0 || at !== this.size)
        for await (const chunk of this.http.stream(at)) {
          if (handle) {
            try {
              if (handle.write(chunk, { at }) !== chunk.length) throw new DOMException("short write", "QuotaExceededError");
            } catch (e) {
              handle.close();
              handle = undefined;
              await this.forget();
              this.warn(quotaWords(e, `${this.name} (${megabytes(this.size ?? at)})`));
            }
          }
          at += chunk.length;
          yield chunk;
        }
      this.size ??= at;
      if (handle) {
        handle.flush();
        handle.close();
        handle = undefined;
        await this.writeMeta(true).catch((e: unknown) => this.warn(quotaWords(e, this.name)));
      }
    } finally {
      handle?.close();
    }
  }

  private async writeMeta(complete: boolean): Promise<void> {
    const meta: Meta = { url: this.url, size: this.size, validator: this.validator, complete };
    await writeFile(this.dir!, `${this.id}.json`, new Blob([JSON.stringify(meta)]));
  }

  /** Removes what is kept of this file. */
  async forget(): Promise<void> {
    for (const end of ["json", "data"]) await this.dir?.removeEntry(`${this.id}.${end}`).catch(() => undefined);
  }
}

/** Bytes that Edgewise keeps in the browser's storage (OPFS) for this site: compiled models, and downloaded files. What was trained is not counted. */
export async function cacheBytes(): Promise<{ plans: number; files: number }> {
  const total = { plans: 0, files: 0 };
  for (const name of ["plans", "files"] as const) {
    const dir = await folder(name, false);
    if (!dir) continue;
    for await (const entry of (dir as unknown as { values(): AsyncIterable<FileSystemHandle> }).values())
      if (entry.kind === "file") total[name] += (await (entry as FileSystemFileHandle).getFile()).size;
  }
  return total;
}

/** Removes compiled models and downloaded files from the browser's storage for this site. What was trained stays: see `forgetAdapter` and `deleteCheckpoint`. */
export async function clearCache(): Promise<void> {
  try {
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT);
    for (const name of ["plans", "files"]) await root.removeEntry(name, { recursive: true }).catch(() => undefined);
  } catch {
    // Nothing was there.
  }
}
