// The browser's private file system (OPFS), with timeouts: storage that does not answer throws once
// and counts as unavailable from then on.

import { StorageError } from "../errors.ts";
import { seconds, stallTimeout, within } from "../watchdog.ts";

const ROOT = "edgewise";
const WRITE_PIECE = 8 << 20; // bytes per write

/** A file opened for synchronous access: FileSystemSyncAccessHandle, sizes and offsets in bytes. */
export interface SyncHandle {
  read(data: Uint8Array, options?: { at: number }): number;
  write(data: Uint8Array, options?: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

let silent: StorageError | undefined;

/**
 * Runs an operation on the storage with a timeout.
 * @param work the operation
 * @param what name for errors
 * @throws StorageError if it does not answer; what `work` rejects with
 */
async function stored<T>(work: () => PromiseLike<T>, what: string): Promise<T> {
  if (silent) throw silent;
  return within(
    work(),
    () =>
      (silent = new StorageError(
        `the browser's storage did not answer within ${seconds(stallTimeout())}`,
        what,
        "Nothing is kept on this visit. Reload the page; if it happens again, restart the browser.",
      )),
  );
}

/**
 * Opens or creates one of Edgewise's folders. Throws the browser's error, or undefined if the
 * browser has no file storage.
 */
export async function openFolder(name: string): Promise<FileSystemDirectoryHandle> {
  const storage = globalThis.navigator?.storage;
  if (typeof storage?.getDirectory !== "function") throw undefined;
  return stored(
    async () =>
      (
        await (await storage.getDirectory()).getDirectoryHandle(ROOT, { create: true })
      ).getDirectoryHandle(name, { create: true }),
    name,
  );
}

/** One of Edgewise's folders, or undefined if it does not exist or is not accessible. */
export async function folder(
  name: string,
  create: boolean,
): Promise<FileSystemDirectoryHandle | undefined> {
  try {
    if (create) return await openFolder(name);
    return await stored(
      async () =>
        (
          await (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT)
        ).getDirectoryHandle(name),
      name,
    );
  } catch {
    // private windows of some browsers, pages without a secure context, a folder that is not there
    return undefined;
  }
}

/** Deletes folders of Edgewise with their contents; folders that do not exist are ignored. */
export async function removeFolders(names: readonly string[]): Promise<void> {
  try {
    const root = await stored(
      async () => (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT),
      ROOT,
    );
    for (const name of names)
      await stored(() => root.removeEntry(name, { recursive: true }), name).catch(() => undefined);
  } catch {
    // there was nothing
  }
}

/** A snapshot of a file. Rejects if it does not exist. */
export function fileIn(dir: FileSystemDirectoryHandle, name: string): Promise<File> {
  return stored(async () => (await dir.getFileHandle(name)).getFile(), name);
}

/** Reads a small text file. */
export async function textIn(dir: FileSystemDirectoryHandle, name: string): Promise<string> {
  const file = await fileIn(dir, name);
  return stored(() => file.text(), name);
}

/** Snapshots of all files of a folder. */
export function filesIn(dir: FileSystemDirectoryHandle): Promise<File[]> {
  return stored(async () => {
    const handles: FileSystemFileHandle[] = [];
    for await (const entry of (
      dir as unknown as { values(): AsyncIterable<FileSystemHandle> }
    ).values())
      if (entry.kind === "file") handles.push(entry as FileSystemFileHandle);
    const files: File[] = [];
    for (const handle of handles) files.push(await handle.getFile());
    return files;
  }, dir.name);
}

/** Deletes a file, if it exists and can be deleted. */
export async function removeFrom(
  dir: FileSystemDirectoryHandle | undefined,
  name: string,
): Promise<void> {
  await (dir && stored(() => dir.removeEntry(name), name).catch(() => undefined));
}

/** Opens or creates a file for synchronous access; undefined if the browser does not support it. */
export async function syncHandle(
  dir: FileSystemDirectoryHandle,
  name: string,
): Promise<SyncHandle | undefined> {
  let late = false;
  const opening = (async () => {
    const file = (await dir.getFileHandle(name, { create: true })) as unknown as {
      createSyncAccessHandle?(): Promise<SyncHandle>;
    };
    const handle = await file.createSyncAccessHandle?.();
    if (late) handle?.close(); // the caller has given up, and an open handle would lock the file
    return handle;
  })();
  return stored(() => opening, name).catch((e: unknown) => {
    late = true;
    throw e;
  });
}

/** Writes a file atomically. */
export async function writeFile(
  dir: FileSystemDirectoryHandle,
  name: string,
  data: Blob,
): Promise<void> {
  const file = await stored(() => dir.getFileHandle(name, { create: true }), name);
  // an existing file stays if this fails
  const before =
    typeof file.createWritable === "function" &&
    (await stored(() => file.getFile(), name)).size > 0;
  try {
    if (typeof file.createWritable === "function") {
      const out = await stored(() => file.createWritable(), name); // takes effect on close
      try {
        for (let at = 0; at < data.size; at += WRITE_PIECE)
          await stored(() => out.write(data.slice(at, at + WRITE_PIECE)), name);
        await stored(() => out.close(), name);
      } catch (e) {
        void out.abort().catch(() => undefined);
        throw e;
      }
      return;
    }
    const handle = await syncHandle(dir, name);
    if (!handle)
      throw new StorageError(
        "this browser cannot write files of its storage in place",
        name,
        "Nothing is kept on this visit. Update the browser.",
      );
    try {
      handle.truncate(0);
      for (let at = 0; at < data.size; at += WRITE_PIECE) {
        const bytes = new Uint8Array(
          await stored(() => data.slice(at, at + WRITE_PIECE).arrayBuffer(), name),
        );
        if (handle.write(bytes, { at }) !== bytes.length)
          throw new DOMException("short write", "QuotaExceededError");
      }
      handle.flush();
    } finally {
      handle.close();
    }
  } catch (e) {
    if (!before) await removeFrom(dir, name);
    throw e;
  }
}
