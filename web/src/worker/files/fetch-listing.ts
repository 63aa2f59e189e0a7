// Asks a hub for its listing of a model's files. It comes with the part for models that are no
// packages.

import { throwIfAborted } from "../../shared/abort.ts";
import { HttpSource, type KnownFile } from "../../shared/files/http.ts";
import type { ModelAddress } from "../../shared/files/model-address.ts";
import { readAll } from "../../shared/files/stream.ts";
import { Listing } from "./listing.ts";

const MAX_BYTES = 16 << 20; // of a page of the listing
const MAX_PAGES = 20;
/** Entries of a page. A full page without a link to the next may hide more. */
const PAGE = 1000;

/**
 * Asks a hub for its listing of a model's files.
 * @returns undefined if the server has none
 */
export async function fetchListing(
  { tree, folder }: ModelAddress,
  options: { signal: AbortSignal; fetchOptions: RequestInit | undefined },
): Promise<Listing | undefined> {
  const files = new Map<string, KnownFile>();
  let url = tree;
  let last = 0;
  try {
    for (let page = 0; url && page < MAX_PAGES; page++) {
      let next: string | null = null;
      const fetcher: typeof fetch = async (...args) => {
        const response = await fetch(...args);
        next = response.headers.get("Link");
        return response;
      };
      const source: HttpSource = new HttpSource(url, { ...options, attempts: 1, fetch: fetcher });
      const entries: unknown = JSON.parse(
        new TextDecoder().decode(await readAll(source, MAX_BYTES)),
      );
      if (!Array.isArray(entries)) return undefined;
      for (const entry of entries) addEntry(files, entry);
      last = entries.length;
      url = nextPage(next, url);
    }
  } catch {
    throwIfAborted(options.signal);
    return undefined; // a plain mirror, or no permission (CORS)
  }
  return files.size ? new Listing(folder, files, url === undefined && last < PAGE) : undefined;
}

/** Adds an entry; fields that are not known are ignored. */
function addEntry(files: Map<string, KnownFile>, entry: unknown): void {
  const { type, path, size, oid, lfs } = (entry ?? {}) as Record<string, unknown>;
  const large = (lfs ?? {}) as Record<string, unknown>;
  const bytes = large.size ?? size;
  if (type !== "file" || typeof path !== "string" || !Number.isSafeInteger(bytes)) return;
  if (/^[0-9a-f]{64}$/.test(String(large.oid)))
    files.set(path, { size: bytes as number, version: `sha256-${String(large.oid)}` });
  else if (/^[0-9a-f]{40}$/.test(String(oid)))
    files.set(path, { size: bytes as number, version: `git-${String(oid)}` });
}

/** The address of the next page in a `Link` header, on the same server. */
function nextPage(link: string | null, url: string): string | undefined {
  const next = /<([^>]+)>\s*;\s*rel="?next"?/.exec(link ?? "")?.[1];
  const full = next && new URL(next, url);
  return full && full.origin === new URL(url).origin ? full.href : undefined;
}
