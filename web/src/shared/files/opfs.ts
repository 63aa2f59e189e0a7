// The browser's private files (OPFS), each call with an end: storage that does not answer is an
// error once, and from then on counts as not there.

import { StorageError } from "../errors.ts";
import { seconds, stallTimeout, within } from "../watchdog.ts";

const ROOT = "edgewise";
const PIECE = 8 << 20; // written at once

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

let silent: StorageError | undefined;

/**
 * Waits for the browser's storage. @param work what to ask of it @param what for errors @throws
 * StorageError: it does not answer; what `work` rejects with
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
 * A folder of ours. Throws what the browser says, or undefined where it has no files for pages at
 * all.
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

/** A folder of ours, or undefined where the browser has none for us. */
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

/**
 * Removes our folders of these names with all that is in them; those that are not there are not
 * missed.
 */
export async function removeFolders(names: readonly string[]): Promise<void> {
  try {
    const root = await stored(
      async () => (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT),
      ROOT,
    );
    for (const name of names)
      await stored(() => root.removeEntry(name, { recursive: true }), name).catch(() => undefined);
  } catch {
    // Nothing was there.
  }
}

/** A file as it is now. Rejects where it is not there. */
export function fileIn(dir: FileSystemDirectoryHandle, name: string): Promise<File> {
  return stored(async () => (await dir.getFileHandle(name)).getFile(), name);
}

/** The text of a small file. */
export async function textIn(dir: FileSystemDirectoryHandle, name: string): Promise<string> {
  const file = await fileIn(dir, name);
  return stored(() => file.text(), name);
}

/** The files of a folder. */
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

/** Removes a file, if it is there and can be removed. */
export async function removeFrom(
  dir: FileSystemDirectoryHandle | undefined,
  name: string,
): Promise<void> {
  await (dir && stored(() => dir.removeEntry(name), name).catch(() => undefined));
}

/**
 * Opens a file to be written in place, and makes it where it is not there; undefined where workers
 * of this browser cannot.
 */
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
    if (late) handle?.close(); // nobody waits for it any more, and it would keep others out
    return handle;
  })();
  return stored(() => opening, name).catch((e: unknown) => {
    late = true;
    throw e;
  });
}

/** Writes a file whole or not at all. */
export async function writeFile(
  dir: FileSystemDirectoryHandle,
  name: string,
  data: Blob,
): Promise<void> {
  const file = await stored(() => dir.getFileHandle(name, { create: true }), name);
  // stays if this fails
  const before =
    typeof file.createWritable === "function" &&
    (await stored(() => file.getFile(), name)).size > 0;
  try {
    if (typeof file.createWritable === "function") {
      const out = await stored(() => file.createWritable(), name); // takes effect on close
      try {
        for (let at = 0; at < data.size; at += PIECE)
          await stored(() => out.write(data.slice(at, at + PIECE)), name);
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
      for (let at = 0; at < data.size; at += PIECE) {
        const bytes = new Uint8Array(
          await stored(() => data.slice(at, at + PIECE).arrayBuffer(), name),
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
