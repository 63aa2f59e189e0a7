// Cross-Origin Storage: files that several sites use, named by their SHA-256, which the browser
// verifies when a file is stored. A proposal: https://github.com/WICG/cross-origin-storage

import { within } from "../../shared/watchdog.ts";

interface CrossOriginStorage {
  requestFileHandle(
    hash: { algorithm: "SHA-256"; value: string },
    options?: { create?: boolean; origins?: "*" | string[] },
  ): Promise<FileSystemFileHandle>;
}

function storage(): CrossOriginStorage | undefined {
  const { crossOriginStorage } = (globalThis.navigator ?? {}) as {
    crossOriginStorage?: CrossOriginStorage;
  };
  return crossOriginStorage;
}

/**
 * A file that some site has stored; undefined if there is none, or this page may not read it.
 * @param value SHA-256 in hexadecimal digits
 */
export async function sharedFile(value: string): Promise<File | undefined> {
  const shared = storage();
  if (!shared) return undefined;
  const read = async (): Promise<File> => {
    const handle = await shared.requestFileHandle({ algorithm: "SHA-256", value });
    return handle.getFile();
  };
  // the browser may ask the user
  return within(read(), () => new Error("no answer")).catch(() => undefined);
}

/** Offers a public file to all sites, if the browser and the user allow it. */
export async function shareFile(value: string, file: () => Promise<Blob>): Promise<void> {
  const shared = storage();
  if (!shared) return;
  const options = { create: true, origins: "*" } as const;
  try {
    const handle = await shared.requestFileHandle({ algorithm: "SHA-256", value }, options);
    const out = await handle.createWritable();
    await out.write(await file());
    await out.close();
  } catch {
    // refused, or no room: the file is in the page's own storage
  }
}
