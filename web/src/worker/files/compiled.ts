// Compiled packages in the browser's storage, so that a second visit needs no compiler. If the
// storage is missing or full, pages work without it and receive a warning.

import { StorageError } from "../../shared/errors.ts";
import { BLOB_PIECE, BlobReader } from "../../shared/files/blobs.ts";
import { quotaWords, type Warn } from "../../shared/files/cached.ts";
import { fileIn, folder, removeFrom } from "../../shared/files/folders.ts";
import { BlobSource } from "../../shared/files/source.ts";
import { type ByteSource, isEdgewise } from "../../shared/files/stream.ts";
import { Sha256 } from "../../shared/sha256.ts";
import { openPackage } from "../package/package.ts";
import { compiledFile } from "./compiled-key.ts";

/** What a compiled package depends on besides its key: the bytes that the compiler read. */
export interface Reads {
  /** Ranges [offset, bytes] that the compiler read, by file. */
  ranges: Record<string, [number, number][]>;
  /** Digest of these ranges, see `digestReads`. */
  sha256: string;
}

/** Digest of the given ranges of the current files; undefined if a file is missing or too short. */
export async function digestReads(
  ranges: Reads["ranges"],
  files: Map<string, Blob>,
): Promise<string | undefined> {
  const hash = new Sha256();
  const text = new TextEncoder();
  for (const name of Object.keys(ranges).sort()) {
    const blob = files.get(name);
    if (!blob) return undefined;
    const reader = new BlobReader(blob, name);
    for (const [offset, bytes] of ranges[name]!) {
      if (offset + bytes > blob.size) return undefined;
      hash.update(text.encode(`${name} ${offset} ${bytes}\n`));
      for (let at = 0; at < bytes; ) {
        const piece = await reader.read(offset + at, Math.min(bytes - at, BLOB_PIECE));
        hash.update(piece);
        at += piece.length;
      }
    }
    reader.close();
  }
  return hash.hex();
}

/** Whether an earlier visit has stored compiled packages. */
export async function hasCompiled(): Promise<boolean> {
  const dir = await folder("plans", false);
  return dir !== undefined && (await dir.list().catch(() => [])).length > 0;
}

/** Finds a compiled package of an earlier visit. A damaged one is removed and ignored. */
export async function findCompiled(
  key: string,
  files: Map<string, Blob> | undefined,
): Promise<ByteSource | undefined> {
  const dir = await folder("plans", false);
  if (!dir) return undefined;
  const name = compiledFile(key);
  try {
    const file = await fileIn(dir, name);
    const source = new BlobSource(file, `the cached package of ${key.slice(0, 200)}`);
    const opened = await openPackage(source, true);
    const reads = opened.manifest.cache as Reads | undefined;
    await opened.finish(new Map()); // verifies its checksums
    if (files) {
      if (!reads || typeof reads.ranges !== "object") return undefined;
      if ((await digestReads(reads.ranges, files)) !== reads.sha256) return undefined;
    }
    return source;
  } catch (e) {
    if (isEdgewise(e) && !(e instanceof StorageError)) await removeFrom(dir, name);
    return undefined;
  }
}

/** Stores a compiled package. Without space for it: calls `warn` and returns false. */
export async function keepCompiled(key: string, data: Blob, warn: Warn): Promise<boolean> {
  const dir = await folder("plans", true);
  if (!dir) return false;
  try {
    await dir.write(compiledFile(key), data);
    return true;
  } catch (e) {
    warn(quotaWords(e, "The compiled model"));
    return false;
  }
}

/** Removes a compiled package, if it exists. */
export async function forgetCompiled(key: string): Promise<void> {
  const dir = await folder("plans", false);
  await removeFrom(dir, compiledFile(key));
}
