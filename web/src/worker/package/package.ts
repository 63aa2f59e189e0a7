// A package (.edge): a manifest in JSON and parts.
//     "EDGEWISE", u64 length of the JSON, the JSON, zeros up to a multiple of 64, data (offsets in
//     the manifest are relative to its beginning)
// Packages are untrusted: all numbers are validated before anything is allocated. The engine
// validates the plans.

import { slotsOfPlan } from "../../device/plan-header.ts";
import { FORMAT, MAX_MANIFEST, WRITABLE_KINDS } from "../../gen/manifest.ts";
import { LAYOUT, MAGIC as PLAN_MAGIC, SLOT_WRITABLE } from "../../gen/plan_format.ts";
import type { ManifestSlot } from "../../gen/schema.ts";
import { Checker } from "../../logic/manifest/checker.ts";
import { PackageError } from "../../shared/errors.ts";
import { isMagic, MAGIC } from "../../shared/files/magic.ts";
import { BlobSource, type Extent, scatter } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { sha256 } from "../../shared/sha256.ts";
import { ALIGN, DIGITS, HEADER, SUM } from "./container.ts";
import type { Manifest } from "./manifest.ts";
import { parseManifest, parseRoot } from "./parse.ts";

/** A package whose manifest has been read. */
export interface OpenPackage {
  manifest: Manifest;
  /** Contents of all parts except `weights`; filled by `finish`. */
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /**
   * Reads the rest: fills `files`, and writes the requested ranges of parts to their extents. More
   * than once only if the source is a BlobSource, of which only these ranges are read.
   * @param ready called once `files` is complete and verified: before the weights, which are last
   */
  finish(wanted: Map<string, Extent[]>, ready?: () => void): Promise<void>;
}

/** All plans of a manifest: their part and slots. */
function plansOf({
  decoder,
  inference,
  programs,
  seq2seq,
  training,
}: Manifest): { file: string; slots: readonly ManifestSlot[] }[] {
  return [
    ...(decoder?.plans ?? []),
    ...(inference?.plans ?? []).filter((p) => p.file),
    ...[...(programs?.values() ?? [])].flatMap(({ plans }) => plans),
    ...(seq2seq?.plans ?? []),
    ...(seq2seq?.encoder.plans ?? []).flatMap(({ run, cross }) => (run ? [run, cross] : [cross])),
    ...[...training.values()].flatMap(({ plans }) => [...plans.values()]),
  ];
}

/**
 * Compares the slots in the manifest with those in the plan itself (core/engine.h): their number
 * and sizes must be equal, and slots that several plans or sequences share must not be writable.
 * @throws PackageError
 */
function checkSlotTable(
  plan: Uint8Array,
  slots: readonly ManifestSlot[],
  where: string,
  file: string,
): void {
  const c = new Checker(where);
  const magic = String.fromCharCode(...plan.subarray(0, PLAN_MAGIC.length));
  if (plan.length < LAYOUT.planHeader.bytes || magic !== PLAN_MAGIC)
    c.fail(`file '${file}'`, "is not a plan");
  const table = slotsOfPlan(plan);
  if (table?.length !== slots.length)
    throw c.fail(
      `file '${file}'`,
      `has ${table?.length ?? "too many"} slots, the manifest describes ${slots.length}`,
    );
  slots.forEach(({ name, kind, bytes }, i) => {
    const { bytes: found, flags } = table[i]!;
    if (found !== bytes)
      c.fail(
        `slot '${name.slice(0, 100)}' of '${file}'`,
        `has ${found} bytes, the manifest says ${bytes}`,
      );
    if (flags & SLOT_WRITABLE && !WRITABLE_KINDS.includes(kind))
      c.fail(
        `slot '${name.slice(0, 100)}' of '${file}'`,
        `can be written, though it is of the kind '${kind}'`,
      );
  });
}

/**
 * Reads the head of a package and validates the manifest. `finish` reads the rest in one pass.
 * @param own whether it is in the page's own storage, where weights may be in files beside it
 */
export async function openPackage(source: ByteSource, own = false): Promise<OpenPackage> {
  await source.open();
  const where = source.name;
  const stream = source.stream();
  try {
    const { head, text, dataAt } = await readHead(stream, source);
    if (signed(text) !== text) {
      parseRoot(new Checker(where), text); // another version is the likelier cause
      throw new PackageError("its manifest does not match its checksum", where, DAMAGED);
    }
    const manifest = parseManifest(
      text,
      where,
      source.size === undefined ? undefined : Math.max(0, source.size - dataAt),
      own,
    );
    const files = new Map<string, Uint8Array<ArrayBuffer>>();
    const finish: OpenPackage["finish"] = async (wanted, ready) => {
      const whole = () => {
        checkFiles(manifest, files, where);
        ready?.();
      };
      const { extents, end } = extentsOf(manifest, dataAt, wanted, files, whole);
      const most = Math.max(end, head.length);
      if (source instanceof BlobSource) {
        await stream.return(undefined);
        if (source.size < most) throw endsEarly(where);
        await source.gather(extents);
      } else {
        const reached = await scatter(prepend(head, stream), 0, extents, most + (1 << 20));
        if (reached < most) throw endsEarly(where);
      }
    };
    return { manifest, files, finish };
  } catch (e) {
    await stream.return(undefined);
    throw e;
  }
}

const DAMAGED = "The package is damaged: fetch or build it again.";

/** Reads up to the end of the manifest. `head`: all bytes read; `dataAt`: offset of the data. */
async function readHead(
  stream: AsyncGenerator<Uint8Array<ArrayBuffer>>,
  { name: where, size }: ByteSource,
): Promise<{ head: Uint8Array; text: string; dataAt: number }> {
  let head: Uint8Array = new Uint8Array(0);
  const read = async (bytes: number) => {
    const parts = [head];
    let have = head.length;
    while (have < bytes) {
      const { done, value } = await stream.next();
      if (done) throw have >= 8 || isMagic(head) ? endsEarly(where) : notPackage(where);
      parts.push(value.slice());
      have += value.length;
      if (have >= 8 && parts[0]!.length < 8) {
        parts.splice(0, parts.length, concat(parts, have));
        if (!isMagic(parts[0]!)) throw notPackage(where);
      }
    }
    head = concat(parts, have);
  };
  await read(HEADER);
  if (!isMagic(head)) throw notPackage(where);
  const length = new DataView(head.buffer, head.byteOffset).getBigUint64(8, true);
  if (length > BigInt(MAX_MANIFEST) || (size !== undefined && length > BigInt(size - HEADER)))
    throw new PackageError(
      `its manifest has an invalid length of ${length} bytes`,
      where,
      "The package is truncated or damaged: fetch or build it again.",
    );
  const end = HEADER + Number(length);
  await read(end);
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
      head.subarray(HEADER, end),
    );
    return { head, text, dataAt: Math.ceil(end / ALIGN) * ALIGN };
  } catch {
    throw new PackageError("the manifest is not UTF-8", where, DAMAGED);
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
  manifest: Manifest,
  files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
  where: string,
): void {
  for (const [name, digest] of manifest.sha256) {
    const bytes = files.get(name);
    if (bytes && sha256(bytes) !== digest)
      throw new PackageError("it does not match its checksum", `${where}:${name}`, DAMAGED);
  }
  for (const { file, slots } of plansOf(manifest))
    checkSlotTable(files.get(file)!, slots, where, file);
}

function endsEarly(where: string): PackageError {
  return new PackageError(
    "the file ends too early",
    where,
    "The package is truncated: fetch or build it again.",
  );
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

function notPackage(where: string): PackageError {
  return new PackageError(
    "it is not an Edgewise package",
    where,
    "A package is made by `edgewise build model-dir -o model.edge`; check that the address " +
      "is the file's own and not that of a web page.",
  );
}

function concat(parts: Uint8Array[], bytes: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Inserts the SHA-256 of a manifest, computed with zeros in its place. */
function signed(text: string): string {
  const rest = text.slice(SUM.length + DIGITS);
  return SUM + sha256(SUM + "0".repeat(DIGITS) + rest) + rest;
}

/**
 * Makes a package for the page's storage: the inverse of `openPackage`. Adds `files` and `sha256`
 * to the manifest.
 */
export function makePackage(
  manifest: Record<string, unknown>,
  files: Map<string, Uint8Array<ArrayBuffer>>,
): Blob {
  const table: Record<string, [number, number]> = {};
  const digests: Record<string, string> = {};
  const parts: BlobPart[] = [];
  let at = 0;
  for (const [name, bytes] of files) {
    table[name] = [at, bytes.length];
    digests[name] = sha256(bytes);
    const padded = Math.ceil(bytes.length / ALIGN) * ALIGN;
    parts.push(bytes, new Uint8Array(padded - bytes.length));
    at += padded;
  }
  const { manifest_sha256: _, ...rest } = manifest;
  const json = new TextEncoder().encode(
    signed(
      JSON.stringify({
        manifest_sha256: "0".repeat(DIGITS),
        ...rest,
        format: FORMAT,
        files: table,
        sha256: digests,
      }),
    ),
  );
  const head = new Uint8Array(Math.ceil((HEADER + json.length) / ALIGN) * ALIGN);
  head.set(new TextEncoder().encode(MAGIC));
  new DataView(head.buffer).setBigUint64(8, BigInt(json.length), true);
  head.set(json, HEADER);
  return new Blob([head, ...parts]);
}
