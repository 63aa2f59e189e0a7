// Folders in the browser's private file system (OPFS).

import { StorageError } from "../errors.ts";
import { type Folder, type OpenFile, stored } from "./stored.ts";

const WRITE_PIECE = 8 << 20; // bytes per write

/** FileSystemSyncAccessHandle. */
interface SyncHandle {
  read(data: Uint8Array, options?: { at: number }): number;
  write(data: Uint8Array, options?: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

/** A folder in OPFS. */
export class OpfsFolder implements Folder {
  constructor(private readonly dir: FileSystemDirectoryHandle) {}

  read(name: string): Promise<File> {
    return stored(async () => (await this.dir.getFileHandle(name)).getFile(), name);
  }

  list(): Promise<{ name: string; size: number }[]> {
    return stored(async () => {
      const handles: FileSystemFileHandle[] = [];
      for await (const entry of (
        this.dir as unknown as { values(): AsyncIterable<FileSystemHandle> }
      ).values())
        if (entry.kind === "file") handles.push(entry as FileSystemFileHandle);
      const files: File[] = [];
      for (const handle of handles) {
        const file = await handle.getFile().catch((e: unknown) => {
          // deleted since, by another tab or worker
          if (e instanceof DOMException && e.name === "NotFoundError") return undefined;
          throw e;
        });
        if (file) files.push(file);
      }
      return files;
    }, this.dir.name);
  }

  remove(name: string): Promise<void> {
    return stored(() => this.dir.removeEntry(name), name);
  }

  async open(name: string): Promise<OpenFile | undefined> {
    let late = false;
    const opening = (async () => {
      const file = (await this.dir.getFileHandle(name, { create: true })) as unknown as {
        createSyncAccessHandle?(): Promise<SyncHandle>;
      };
      const handle = await file.createSyncAccessHandle?.();
      if (late) handle?.close(); // the caller has given up, and an open handle would lock the file
      return handle;
    })();
    const handle = await stored(() => opening, name).catch((e: unknown) => {
      late = true;
      throw e;
    });
    return handle && new SyncFile(handle);
  }

  async write(name: string, data: Blob): Promise<void> {
    const file = await stored(() => this.dir.getFileHandle(name, { create: true }), name);
    // an existing file stays if this fails
    const before =
      typeof file.createWritable === "function" &&
      (await stored(() => file.getFile(), name)).size > 0;
    try {
      if (typeof file.createWritable === "function") await rewrite(file, name, data);
      else await this.overwrite(name, data);
    } catch (e) {
      if (!before) await this.remove(name).catch(() => undefined);
      throw e;
    }
  }

  private async overwrite(name: string, data: Blob): Promise<void> {
    const file = await this.open(name);
    if (!file)
      throw new StorageError(
        "this browser cannot write files of its storage in place",
        name,
        "Nothing is stored on this visit. Update the browser.",
      );
    try {
      await file.truncate(0);
      for (let at = 0; at < data.size; at += WRITE_PIECE) {
        const piece = data.slice(at, at + WRITE_PIECE);
        await file.write(new Uint8Array(await stored(() => piece.arrayBuffer(), name)), at);
      }
    } finally {
      await file.close();
    }
  }
}

/** Replaces a file's contents when all is written. */
async function rewrite(file: FileSystemFileHandle, name: string, data: Blob): Promise<void> {
  const out = await stored(() => file.createWritable(), name);
  try {
    for (let at = 0; at < data.size; at += WRITE_PIECE)
      await stored(() => out.write(data.slice(at, at + WRITE_PIECE)), name);
    await stored(() => out.close(), name);
  } catch (e) {
    void out.abort().catch(() => undefined);
    throw e;
  }
}

/** A file opened in a worker. */
class SyncFile implements OpenFile {
  constructor(private readonly handle: SyncHandle) {}

  get size(): number {
    return this.handle.getSize();
  }

  async read(data: Uint8Array, at: number): Promise<number> {
    return this.handle.read(data, { at });
  }

  async write(data: Uint8Array, at: number): Promise<void> {
    if (this.handle.write(data, { at }) !== data.length)
      throw new DOMException("short write", "QuotaExceededError");
  }

  async truncate(size: number): Promise<void> {
    this.handle.truncate(size);
  }

  async flush(): Promise<void> {
    this.handle.flush();
  }

  async close(): Promise<void> {
    this.handle.close();
  }
}
