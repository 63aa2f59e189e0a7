// A hub's listing of a model's files: names, sizes and digests.

import type { KnownFile } from "../../shared/files/http.ts";
import type { KeptModel } from "../../shared/files/kept.ts";
import { checkDigest } from "../../shared/files/stream.ts";

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
