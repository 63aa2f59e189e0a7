// Weights of experts that memory does not hold: each is read from the model's file when a product
// needs it, to the memory of the one that was used longest ago.

import type { Buffer, Device, Pages } from "../../device/device.ts";
import { BESIDE } from "../../device/open.ts";
import { addressOf } from "../../device/wasm/engine.ts";
import { PIECE } from "../../gen/manifest.ts";
import type { Weight } from "../../gen/schema.ts";
import { damaged_weight } from "../../logic/manifest/package.ts";
import { ModelError, OutOfMemory } from "../../shared/errors.ts";
import { free } from "../../shared/files/blobs.ts";
import { megabytes, message } from "../../shared/words.ts";
import type { Manifest } from "../package/manifest.ts";
import { neededBytes } from "./checks.ts";
import type { FoundModel } from "./packages.ts";
import { type SomeExperts, type StoredWeights, Weights } from "./weights.ts";

const ENTRY = 16; // bytes of ew_page_entry
const USED = 8; // offset of its `used`
const ALIGNMENT = 64;
/** What Chrome (138) says is left on any larger disk, whatever it will allow. */
const SAID_TO_BE_LEFT = 10 * 2 ** 30;

/** Weights that can be read expert by expert: as they lie in a package, or in the model's file. */
function mixedOf({ weights, files }: Pick<Manifest, "weights" | "files">): Weight[] {
  return [...weights.values()].filter(
    ({ experts = 1, file, sums, power }) =>
      experts > 1 && power === undefined && (sums !== undefined || !files.has(file)),
  );
}

/** Bytes of an expert of a weight, as they are kept in memory. */
function roomOf({ bytes, experts = 1 }: Weight): number {
  return Math.ceil(bytes / experts / ALIGNMENT) * ALIGNMENT;
}

/**
 * Bytes that the weights of a model need at least: one expert of each layer, and all others.
 * @returns undefined if it has no weights of experts alone, or this thread cannot read files at
 *   once
 */
export function leastBytes(manifest: Manifest): number | undefined {
  const mixed = new Set(mixedOf(manifest));
  if (manifest.training.size || !mixed.size || typeof FileReaderSync === "undefined")
    return undefined;
  return [...manifest.weights.values()].reduce(
    (sum, w) => sum + (mixed.has(w) ? roomOf(w) : w.bytes),
    0,
  );
}

/**
 * The weights of a model: all, or some experts, if memory does not hold all or a budget is given.
 * @param least as `leastBytes`
 * @param budget bytes for experts, if it is given
 * @throws OutOfMemory
 */
export async function someWeights(
  device: Device,
  manifest: Manifest,
  least: number,
  budget: number | undefined,
  found: FoundModel,
): Promise<Weights> {
  const all = neededBytes(manifest);
  let most = device.maxBytes!;
  if (budget === undefined && all + BESIDE <= most)
    try {
      return new Weights(device, manifest);
    } catch (e) {
      if (!(e instanceof OutOfMemory)) throw e;
      most = device.memoryBytes; // the browser gives no more
    }
  await checkStorage(manifest, found);
  const left = most - BESIDE - neededBytes(manifest, least);
  const experts = new Experts(device, manifest, budget ?? left, found.where);
  try {
    return new Weights(device, manifest, experts);
  } catch (e) {
    experts.free();
    throw e;
  }
}

/** @throws OutOfMemory if the model has to be stored and the browser has no room for it */
async function checkStorage({ files, weights }: Manifest, found: FoundModel): Promise<void> {
  if (await found.stored!()) return;
  const { quota = Infinity, usage = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  if (quota - usage >= SAID_TO_BE_LEFT) return;
  const ends = new Map<string, number>();
  const add = (file: string, end: number) => ends.set(file, Math.max(ends.get(file) ?? 0, end));
  for (const { offset, bytes } of files.values()) add("", offset + bytes); // the package's file
  for (const { file, offset, bytes } of weights.values())
    if (!files.has(file)) add(file, offset + bytes);
  const size = [...ends.values()].reduce((a, b) => a + b, 0);
  if (size > quota) throw notStored(found.where, ` (${megabytes(size)} of ${megabytes(quota)})`);
}

function notStored(where: string, why = ""): OutOfMemory {
  return new OutOfMemory(
    `memory does not hold all of its experts, and its file is not in the browser's storage${why}`,
    where,
    "Let files be stored (env.cacheFiles, and room for the file), or let the user choose the file.",
  );
}

/** Weights of experts, of which some are in memory. */
class Experts implements SomeExperts {
  readonly bytes: number;
  private readonly paged = new Map<string, PagedWeight>();
  private readonly memory: Buffer[] = [];
  private sources: StoredWeights | undefined;
  /** For a piece whose checksum is computed. */
  private readonly piece: Buffer;

  /**
   * Allocates memory for as many experts of each weight as `budget` bytes hold, at least one.
   * @param where name of the package, for errors
   * @throws OutOfMemory
   */
  constructor(
    private readonly device: Device,
    manifest: Pick<Manifest, "weights" | "files">,
    budget: number,
    private readonly where: string,
  ) {
    const mixed = mixedOf(manifest);
    const all = mixed.reduce((sum, w) => sum + roomOf(w) * w.experts!, 0);
    const allocate = (bytes: number, what: string, unset: boolean) => {
      this.memory.push(device.allocate(bytes, what, unset));
      return this.memory.at(-1)!;
    };
    let bytes = 0;
    try {
      this.piece = allocate(PIECE, "a part of a weight", true);
      for (const weight of mixed) {
        const { name, experts: count = 1 } = weight;
        const kept = Math.max(1, Math.min(count, Math.floor((count * budget) / all)));
        const what = `${kept} of the ${count} experts of '${name}'`;
        const rooms = allocate(kept * roomOf(weight), what, true);
        const table = allocate(count * ENTRY, what, false);
        this.paged.set(name, new PagedWeight(device, weight, rooms, table, this.read));
        bytes += rooms.bytes;
      }
    } catch (e) {
      this.free();
      throw e;
    }
    this.bytes = bytes;
  }

  of(name: string): Pages | undefined {
    return this.paged.get(name);
  }

  async open(stored: () => Promise<StoredWeights | undefined>): Promise<void> {
    this.sources = await stored();
    if (!this.sources) throw notStored(this.where);
  }

  free(): void {
    for (const buffer of this.memory) this.device.release(buffer);
    this.memory.length = 0;
    this.paged.clear();
  }

  /**
   * Reads a part of a weight at once, and compares the pieces that it lies in with their checksums,
   * if it has some, when they are first read: a file that changes afterwards cannot be read any
   * more.
   */
  private readonly read = (
    { name, file, offset, bytes: size, sums }: Weight,
    verified: Set<number>,
    begin: number,
    target: Buffer,
    length: number,
  ): void => {
    const { device, piece: room } = this;
    const end = begin + length;
    if (!sums) {
      const data = this.bytesAt(file, offset + begin, length);
      device.write(target, data);
      free(data.buffer);
      return;
    }
    for (let piece = Math.floor(begin / PIECE); piece * PIECE < end; piece++) {
      const from = piece * PIECE;
      const to = Math.min(from + PIECE, size);
      const [low, high] = [Math.max(from, begin), Math.min(to, end)];
      const known = verified.has(piece);
      const start = known ? low : from;
      const data = this.bytesAt(file, offset + start, (known ? high : to) - start);
      if (!known) {
        device.write(room, data);
        if (device.checksum!(room, 0, data.length) !== sums[piece])
          throw damaged_weight(name, piece, size, this.where);
        verified.add(piece);
      }
      device.write(target, data.subarray(low - start, high - start), low - begin);
      free(data.buffer);
    }
  };

  /** Bytes of a file of weights. @throws ModelError */
  private bytesAt(file: string, offset: number, bytes: number): Uint8Array<ArrayBuffer> {
    const { blob, at } = this.sources!.get(file)!;
    const begin = at + offset;
    let why: string;
    try {
      const data = new FileReaderSync().readAsArrayBuffer(blob.slice(begin, begin + bytes));
      if (data.byteLength === bytes) return new Uint8Array(data);
      why = `it ends at byte ${begin + data.byteLength}, ${begin + bytes} are required`;
    } catch (e) {
      why = message(e);
    }
    throw new ModelError(
      `the weights of an expert could not be read (${why})`,
      this.where,
      "The file was changed, moved or deleted since the model was loaded: load the model again.",
    );
  }
}

/** A weight, whose parts are in some rooms of equal size. */
class PagedWeight implements Pages {
  readonly count: number;
  private readonly held = new Map<number, Buffer>();
  private readonly spare: Buffer[] = [];
  private readonly verified = new Set<number>();

  constructor(
    private readonly device: Device,
    private readonly weight: Weight,
    rooms: Buffer,
    readonly table: Buffer,
    private readonly read: Experts["read"],
  ) {
    this.count = weight.experts!;
    const room = roomOf(weight);
    for (let at = 0; at < rooms.bytes; at += room) this.spare.push(rooms.part(at, room));
  }

  bring(page: number): void {
    const { weight } = this;
    const bytes = weight.bytes / this.count;
    const room = this.spare.pop() ?? this.leave();
    try {
      this.read(weight, this.verified, page * bytes, room, bytes);
    } catch (e) {
      this.spare.push(room);
      throw e;
    }
    this.held.set(page, room);
    this.place(page, room);
  }

  /** The room of the page that was used longest ago, which then is away. */
  private leave(): Buffer {
    const { host } = this.device;
    const at = addressOf(this.table);
    const entries = new DataView(host.read(at, this.table.bytes).buffer);
    const used = (page: number) => entries.getBigUint64(page * ENTRY + USED, true);
    const oldest = [...this.held.keys()].reduce((a, b) => (used(b) < used(a) ? b : a));
    const room = this.held.get(oldest)!;
    this.held.delete(oldest);
    this.place(oldest, undefined);
    return room;
  }

  private place(page: number, room: Buffer | undefined): void {
    const address = new BigUint64Array([BigInt(room ? addressOf(room) : 0)]);
    this.device.write(this.table, new Uint8Array(address.buffer), page * ENTRY);
  }
}
