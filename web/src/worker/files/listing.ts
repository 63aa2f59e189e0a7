// A hub's listing of a model's files: names, sizes and digests.

import { throwIfAborted } from "../../shared/abort.ts";
import { HttpSource, type KnownFile } from "../../shared/files/http.ts";
import type { KeptModel } from "../../shared/files/kept.ts";
import type { ModelAddress } from "../../shared/files/model-address.ts";
import { checkDigest, readAll } from "../../shared/files/stream.ts";

const MAX_BYTES = 16 << 20; // of a page of the listing
const MAX_PAGES = 20;
/** Entries of a page. A full page without a link to the next may hide more. */
const PAGE = 1000;

/** The files of a model on a hub. */
export class Listing {
  /**
   * @param folder address of the model's files
   * @param files by path
   * @param complete whether a file that is not listed does not exist
   */
  constructor(
    private readonly folder: string,
    private readonly files: ReadonlyMap<string, KnownFile>,
    private readonly complete: boolean,
  ) {}

  /** A file; null if it does not exist, undefined if that is not known. */
  find(url: string): KnownFile | null | undefined {
    const [plain = ""] = url.split(/[?#]/);
    if (!plain.startsWith(this.folder)) return undefined;
    const path = decodeURIComponent(plain.slice(this.folder.length));
    return this.files.get(path) ?? (this.complete ? null : undefined);
  }

  /** Addresses of the files whose addresses begin with `start`. */
  *from(start: string): Generator<string> {
    for (const path of this.files.keys()) {
      const url = new URL(path.split("/").map(encodeURIComponent).join("/"), this.folder).href;
      if (url.startsWith(start)) yield url;
    }
  }

  /** The listing as it is stored. */
  stored(): KeptModel["listing"] {
    if (!this.complete) return undefined;
    return Array.from(this.files, ([path, { size, version }]) => [path, size, version]);
  }

  /** A listing that was stored. */
  static of(folder: string, { listing }: KeptModel): Listing | undefined {
    if (!Array.isArray(listing)) return undefined;
    const files = listing.map(([path, size, version]): [string, KnownFile] => [
      path,
      { size, version },
    ]);
    return new Listing(folder, new Map(files), true);
  }
}

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

/** SHA-256 of a known file in hexadecimal digits; undefined if it has another digest. */
export function sha256Of(known: KnownFile | undefined): string | undefined {
  return known?.version.startsWith("sha256-") ? known.version.slice(7) : undefined;
}

/**
 * Compares a small file with git's digest of it, where it has no SHA-256.
 * @throws ModelError if it differs
 */
export async function checkGit(
  bytes: Uint8Array<ArrayBuffer>,
  known: KnownFile | undefined,
  where: string,
): Promise<void> {
  if (!known?.version.startsWith("git-") || !globalThis.crypto?.subtle) return;
  const blob = new Blob([`blob ${bytes.length}\0`, bytes]);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-1", await blob.arrayBuffer()));
  const hex = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
  checkDigest(hex, known.version.slice(4), where, "SHA-1 (as git computes it)");
}
