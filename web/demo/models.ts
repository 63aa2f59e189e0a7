// Copies of the models that come with the rooms, for first visits without a network.

const COPIES = "edgewise demo models";
/** What a server may take to answer a small request before it counts as out of reach. */
export const PATIENCE_MS = 4000;

/** Keeps copies of these files, as they are now; without a network those that there are. */
export async function keepModels(names: readonly string[]): Promise<void> {
  const copies = await caches.open(COPIES);
  for (const name of names)
    try {
      await copies.add(new Request(name, { cache: "no-cache" }));
    } catch (e) {
      if (!(await copies.match(name))) throw e;
    }
}

/** The text of a file; where it cannot be reached, of its copy. undefined: there is none. */
export async function textAtHand(address: URL): Promise<string | undefined> {
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(), PATIENCE_MS); // for its beginning
  const response = await fetch(address, { signal: patience.signal })
    .catch(() => globalThis.caches?.match(address, { cacheName: COPIES }))
    .finally(() => clearTimeout(timer));
  return response?.ok ? response.text() : undefined;
}

/** Deletes the copies. */
export const forgetModels = (): Promise<boolean> => caches.delete(COPIES);

/** A model's address; where it cannot be reached, the copy. */
export async function atHand(address: URL): Promise<URL | File> {
  try {
    await fetch(address, { method: "HEAD", signal: AbortSignal.timeout(PATIENCE_MS) });
    return address;
  } catch {
    const copy = await globalThis.caches?.match(address, { cacheName: COPIES });
    return copy ? new File([await copy.blob()], address.pathname.split("/").at(-1)!) : address;
  }
}
