// Folders in the browser's storage: in its private file system (OPFS), or in IndexedDB where there
// is none, as in private windows of some browsers, in WebKitGTK and in pages without a secure
// context.

import { OpfsFolder } from "./opfs.ts";
import { type Folder, notFound, stored } from "./stored.ts";

const ROOT = "edgewise";

/** A part of the worker, since few pages need it. */
const indexed = () => import("./indexed.ts");

type Kind = "opfs" | "indexed";
let kind: Kind | undefined;

/** The kind of storage that this page may use. Throws the browser's error if there is none. */
async function storageKind(): Promise<Kind> {
  if (kind) return kind;
  let refusal: unknown;
  try {
    await root();
    return (kind = "opfs");
  } catch (e) {
    refusal = e;
  }
  if (!globalThis.indexedDB) throw refusal;
  try {
    await (await indexed()).openDatabase();
  } catch (e) {
    throw refusal ?? e;
  }
  return (kind = "indexed");
}

/** The root of the private file system. Throws undefined if the browser has none. */
async function root(): Promise<FileSystemDirectoryHandle> {
  const storage = globalThis.navigator?.storage;
  if (typeof storage?.getDirectory !== "function") throw undefined;
  return stored(() => storage.getDirectory(), ROOT);
}

/**
 * Opens or creates one of Edgewise's folders. Throws the browser's error, or undefined if the
 * browser has no storage for files.
 */
export async function openFolder(name: string): Promise<Folder> {
  if ((await storageKind()) === "indexed") return new (await indexed()).IndexedFolder(name);
  const top = await root();
  return stored(async () => {
    const parent = await top.getDirectoryHandle(ROOT, { create: true });
    return new OpfsFolder(await parent.getDirectoryHandle(name, { create: true }));
  }, name);
}

/** One of Edgewise's folders, or undefined if it does not exist or is not accessible. */
export async function folder(name: string, create: boolean): Promise<Folder | undefined> {
  try {
    if (create || (await storageKind()) === "indexed") return await openFolder(name);
    const top = await root();
    return await stored(
      async () =>
        new OpfsFolder(await (await top.getDirectoryHandle(ROOT)).getDirectoryHandle(name)),
      name,
    );
  } catch {
    // storage is denied, or the folder is not there
    return undefined;
  }
}

/** Deletes folders of Edgewise with their contents; folders that do not exist are ignored. */
export async function removeFolders(names: readonly string[]): Promise<void> {
  try {
    if ((await storageKind()) === "indexed") return await (await indexed()).removeIndexed(names);
    const top = await root();
    const parent = await stored(() => top.getDirectoryHandle(ROOT), ROOT);
    for (const name of names)
      await stored(() => parent.removeEntry(name, { recursive: true }), name).catch(
        () => undefined,
      );
  } catch {
    // there was nothing
  }
}

/** A snapshot of a file. Rejects if it does not exist. */
export async function fileIn(dir: Folder | undefined, name: string): Promise<File> {
  if (!dir) throw notFound(name);
  return dir.read(name);
}

/** Deletes a file, if it exists and can be deleted. */
export async function removeFrom(dir: Folder | undefined, name: string): Promise<void> {
  await dir?.remove(name).catch(() => undefined);
}
