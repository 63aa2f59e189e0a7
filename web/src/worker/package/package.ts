// Reads and writes packages (.edge): python/edgewise/logic/manifest/package.py has the layout. They
// are untrusted: all numbers are validated before anything is allocated, plans by the engine.

import { slotsOfPlan } from "../../device/plan-header.ts";
import { FORMAT } from "../../gen/manifest.ts";
import { LAYOUT, MAGIC as PLAN_MAGIC, SLOT_WRITABLE } from "../../gen/plan_format.ts";
import type { Manifest as ManifestJson } from "../../gen/schema.ts";
import { Checker } from "../../logic/manifest/checker.ts";
import {
  aligned,
  check_part,
  check_slot_table,
  ends_early,
  HEADER,
  MAGIC,
  manifest_bytes,
  open_manifest,
  places,
  plans_of,
  type Slot,
  signed,
  unsigned,
} from "../../logic/manifest/package.ts";
import { BlobSource, type Extent, scatter } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { encode, joined } from "../../shared/python.ts";
import { sha256 } from "../../shared/sha256.ts";
import type { Manifest } from "./manifest.ts";
import { manifestOf } from "./parse.ts";

/** A package whose manifest has been read. */
export interface OpenPackage {
  manifest: Manifest;
  /** Contents of all parts except `weights`; filled by `finish`. */
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /** Reads the parts before the weights, which `finish` need not wait for; returns them by name. */
  ahead(): Promise<Map<string, Uint8Array>>;
  /**
   * Reads the rest: fills `files`, and writes the requested ranges of parts to their extents. More
   * than once only if the source is a BlobSource, of which only these ranges are read.
   * @param ready called once `files` is complete and verified: before the weights, which are last
   */
  finish(wanted: Map<string, Extent[]>, ready?: () => void): Promise<void>;
  /** Where the part `weights` begins in the file. */
  weightsAt: number;
  /** Ends reading, where `finish` is not called. */
  close(): Promise<void>;
}

/** A plan's own table of slots; see check_slot_table. */
function tableOf(plan: Uint8Array): { isPlan: boolean; table: Slot[] | null } {
  const magic = String.fromCharCode(...plan.subarray(0, PLAN_MAGIC.length));
  const isPlan = plan.length >= LAYOUT.planHeader.bytes && magic === PLAN_MAGIC;
  const table = isPlan ? slotsOfPlan(plan) : undefined;
  return {
    isPlan,
    table:
      table?.map(({ bytes, flags }) => ({ bytes, writable: !!(flags & SLOT_WRITABLE) })) ?? null,
  };
}

/**
 * Reads the head of a package and validates the manifest. `finish` reads the rest in one pass.
 * @param own whether it is in the page's own storage, where weights may be in files beside it
 */
export async function openPackage(source: ByteSource, own = false): Promise<OpenPackage> {
  await source.open();
  const where = source.name;
  const stream = source.stream();
  const start = new Start(stream);
  try {
    const size = source.size ?? null;
    const end = HEADER + manifest_bytes(where, await start.read(HEADER), size);
    const text = (await start.read(end)).subarray(HEADER);
    if (start.bytes.length < end) throw ends_early(where);
    const { manifest: root, data_at: dataAt } = open_manifest(where, text, size, own);
    const manifest = manifestOf(new Checker(where), root);
    const files = new Map<string, Uint8Array<ArrayBuffer>>();
    const ahead: OpenPackage["ahead"] = async () => {
      const weights = manifest.files.get("weights")?.offset ?? Infinity;
      const before = [...manifest.files].filter(([, { offset }]) => offset < weights);
      const ends = before.map(([, { offset, bytes }]) => dataAt + offset + bytes);
      await start.read(Math.max(dataAt, ...ends));
      const parts = new Map<string, Uint8Array>();
      for (const [name, { offset, bytes }] of before) {
        const data = start.bytes.subarray(dataAt + offset, dataAt + offset + bytes);
        if (data.length === bytes) parts.set(name, data); // else `finish` says that it ends early
      }
      return parts;
    };
    const finish: OpenPackage["finish"] = async (wanted, ready) => {
      const head = start.bytes;
      const whole = () => {
        checkFiles(root, files, where);
        ready?.();
      };
      const { extents, end } = extentsOf(manifest, dataAt, wanted, files, whole);
      const most = Math.max(end, head.length);
      if (source instanceof BlobSource) {
        await stream.return(undefined);
        if (source.size < most) throw ends_early(where);
        await source.gather(extents);
      } else {
        const reached = await scatter(prepend(head, stream), 0, extents, most + (1 << 20));
        if (reached < most) throw ends_early(where);
      }
    };
    const weightsAt = dataAt + (manifest.files.get("weights")?.offset ?? 0);
    const close = async () => void (await stream.return(undefined));
    return { manifest, files, ahead, finish, weightsAt, close };
  } catch (e) {
    await stream.return(undefined);
    throw e;
  }
}

/** The bytes that were read of the beginning of a file. */
class Start {
  bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0);

  constructor(private readonly stream: AsyncGenerator<Uint8Array<ArrayBuffer>>) {}

  /** Reads up to the byte `size`, or to the end of the file; returns the bytes from 0 to there. */
  async read(size: number): Promise<Uint8Array> {
    const parts = [this.bytes];
    for (let have = this.bytes.length; have < size; ) {
      const { done, value } = await this.stream.next();
      if (done) break;
      parts.push(value.slice());
      have += value.length;
    }
    if (parts.length > 1) this.bytes = joined(...parts);
    return this.bytes.subarray(0, size);
  }
}

/**
 * Destinations of the data: requested ranges of parts, and all parts except weights as a whole.
 * @param files receives the buffers of these parts
 * @param whole called when these have come
 * @returns `end`: offset of the end of the last part
 */
function extentsOf(
  manifest: Manifest,
  dataAt: number,
  wanted: ReadonlyMap<string, Extent[]>,
  files: Map<string, Uint8Array<ArrayBuffer>>,
  whole: () => void,
): { extents: Extent[]; end: number } {
  const extents: Extent[] = [];
  let end = 0;
  let left = 0;
  for (const [name, { offset, bytes }] of manifest.files) {
    const start = dataAt + offset;
    end = Math.max(end, start + bytes);
    for (const e of wanted.get(name) ?? [])
      extents.push({ start: start + e.start, bytes: e.bytes, write: e.write });
    if (name === "weights") continue;
    const target = new Uint8Array(bytes);
    files.set(name, target);
    left += bytes;
    const write = (chunk: Uint8Array, at: number) => {
      target.set(chunk, at);
      left -= chunk.length;
      if (!left) whole();
    };
    extents.push({ start, bytes, write });
  }
  if (!left) whole();
  return { extents, end };
}

/** Verifies checksums of parts, and the slots of plans. */
function checkFiles(
  manifest: ManifestJson,
  files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
  where: string,
): void {
  const c = new Checker(where);
  for (const [name, digest] of Object.entries(manifest.sha256))
    check_part(files.get(name)!, digest, `${where}:${name}`);
  for (const plan of plans_of(manifest)) {
    const { isPlan, table } = tableOf(files.get(plan.file)!);
    check_slot_table(c, plan, isPlan, table);
  }
}

async function* prepend(
  head: Uint8Array,
  rest: AsyncGenerator<Uint8Array<ArrayBuffer>>,
): AsyncGenerator<Uint8Array> {
  try {
    yield head;
    yield* rest;
  } finally {
    await rest.return(undefined);
  }
}

/**
 * Makes a package for the page's storage: the inverse of `openPackage`. Adds `files` and `sha256`
 * to the manifest.
 */
export function makePackage(
  manifest: Record<string, unknown>,
  files: Map<string, Uint8Array<ArrayBuffer>>,
): Blob {
  const sizes: Record<string, number> = {};
  const digests: Record<string, string> = {};
  const parts: BlobPart[] = [];
  for (const [name, bytes] of files) {
    sizes[name] = bytes.length;
    digests[name] = sha256(bytes);
    parts.push(bytes, new Uint8Array(aligned(bytes.length) - bytes.length));
  }
  const table = Object.fromEntries(places(sizes));
  const fields = unsigned({ ...manifest, format: FORMAT, files: table, sha256: digests });
  const json = signed(encode(JSON.stringify(fields)));
  const head = new Uint8Array(aligned(HEADER + json.length));
  head.set(MAGIC);
  new DataView(head.buffer).setBigUint64(8, BigInt(json.length), true);
  head.set(json, HEADER);
  return new Blob([head, ...parts]);
}
