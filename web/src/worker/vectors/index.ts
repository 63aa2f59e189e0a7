// Search in many vectors, all of them compared, in the engine (core/search/nearest.h). Mirrors
// python/edgewise/host/pipelines/vectors.py, with the same files and results.

import type { Device, Host } from "../../device/device.ts";
import { openDevice } from "../../device/open.ts";
import {
  blocks_of,
  broken,
  check_precision,
  check_size,
  check_texts,
  type IndexFile,
  index_file,
  MAX_PART,
  metadata_of,
  not_finite,
  room_of,
  row_bytes,
  saved_texts,
  tensors_of,
} from "../../logic/search/vectors.ts";
import type { Matches, Rows, VectorsInfo, VectorsRequest } from "../../protocol/vectors.ts";
import { readSafetensors, safetensorsHead } from "../../shared/checkpoints/safetensors.ts";
import { EngineError, InputError, OutOfMemory } from "../../shared/errors.ts";

const ARGUMENT = -12;
const MEMORY = -1;
/** Bytes that are copied to the engine at a time. */
const PIECE = 1 << 24;

/** Vectors in the engine's memory. */
interface Part {
  vectors: number;
  /** 0 for float32. */
  scales: number;
  /** Vectors that there is room for. */
  room: number;
  count: number;
}

/** An index of vectors in an engine of its own. */
export class Vectors {
  private readonly parts: Part[] = [];
  private count = 0;
  private size = 0;

  private constructor(
    private readonly device: Device,
    private readonly precision: string,
  ) {}

  /**
   * Opens an index: an empty one, or that of a file with its texts.
   * @throws InputError, ModelError if the file is damaged
   */
  static async open({
    precision,
    file,
    urls,
    flavour,
    threads,
  }: VectorsRequest): Promise<{ vectors: Vectors; texts: string[] | undefined }> {
    const where = file instanceof File ? file.name : "index";
    const read = file && (await contentsOf(file, where));
    const kept = check_precision(read ? read.file.precision : (precision ?? "float32"));
    const device = await openDevice({ ...urls, device: "wasm", flavour, threads });
    const vectors = new Vectors(device, kept);
    try {
      if (read) await vectors.fill(read, where);
    } catch (e) {
      device.close();
      throw e;
    }
    return { vectors, texts: read?.texts };
  }

  get info(): VectorsInfo {
    const { precision, count, size } = this;
    return { precision, count, size, device: this.device.info };
  }

  /**
   * Adds vectors.
   * @param next vectors that will come, these among them
   * @throws InputError if they have another size, or a number is not finite: nothing is added then
   */
  add({ count, size, data }: Rows, next = count): void {
    if (!count) return;
    check_size(size, this.size, "vectors");
    const { host } = this.device;
    const [part, isNew] = this.partFor(count, size, next);
    try {
      const at = part.vectors + part.count * row_bytes(size, this.precision);
      const scales = part.scales && part.scales + part.count * 4 * blocks_of(size);
      this.using((alloc) => {
        const given = alloc(data.byteLength);
        host.write(given, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
        const spec = this.describe(alloc(16), count, size, 0);
        this.call("vectors", "ew_nearest_pack", spec, given, at, scales);
      });
    } catch (e) {
      if (isNew) this.release(part);
      throw e;
    }
    this.took(part, isNew, count, size);
  }

  /** Counts vectors that a part has now. */
  private took(part: Part, isNew: boolean, count: number, size: number): void {
    if (isNew) this.parts.push(part);
    part.count += count;
    this.count += count;
    this.size = size;
  }

  private release({ vectors, scales }: Part): void {
    const { host } = this.device;
    host.free(vectors);
    if (scales) host.free(scales);
  }

  /**
   * The vectors with the greatest dot products with each query.
   * @param within how many vectors, from the first one on, are compared. Default: all
   * @throws InputError if the queries have another size, or a number is not finite
   */
  search({ count, size, data }: Rows, topK: number, within = this.count): Matches[] {
    if (!this.count)
      return Array.from({ length: count }, () => ({
        scores: new Float32Array(),
        indices: new Uint32Array(),
      }));
    if (count) check_size(size, this.size, "queries");
    const { host } = this.device;
    const all = Math.min(within, this.count);
    const most = Math.min(topK, all);
    return this.using((alloc) => {
      const query = alloc(4 * size);
      const best = alloc(8 * most);
      const spec = alloc(16);
      this.describe(spec, Math.max(...this.parts.map((part) => part.count)), size, 0);
      const work = alloc(this.call("queries", "ew_nearest_work_bytes", spec));
      return Array.from({ length: count }, (_, i) => {
        host.write(query, new Uint8Array(data.buffer, data.byteOffset + 4 * i * size, 4 * size));
        let found = 0;
        let first = 0;
        for (const part of this.parts) {
          if (first === all) break;
          const some = Math.min(part.count, all - first);
          this.describe(spec, some, size, first);
          first += some;
          found = this.call(
            "queries",
            "ew_nearest_find",
            host.engine,
            spec,
            part.vectors,
            part.scales,
            query,
            work,
            best,
            found,
            most,
            Number(first === all),
          );
        }
        const pairs = host.read(best, 8 * found).buffer;
        const even = <T>(all: ArrayLike<T>, from: number) =>
          Array.from({ length: found }, (_, j) => all[2 * j + from]!);
        return {
          scores: Float32Array.from(even(new Float32Array(pairs), 0)),
          indices: Uint32Array.from(even(new Uint32Array(pairs), 1)),
        };
      });
    });
  }

  /**
   * A safetensors file, which Python reads as well.
   * @throws InputError if there are more or fewer texts than vectors
   */
  save(given: readonly string[] | undefined): Blob {
    const { precision, count, size } = this;
    const texts = saved_texts(given ?? null, count) ?? undefined;
    const file: IndexFile = { precision, count, size, texts: texts !== undefined };
    const text = new TextEncoder().encode(JSON.stringify(texts ?? []));
    const { host } = this.device;
    const row = row_bytes(size, precision);
    const pieces: Record<string, Uint8Array<ArrayBuffer>[]> = {
      vectors: this.parts.map((part) => host.read(part.vectors, part.count * row)),
      scales: this.parts.map((part) => host.read(part.scales, part.count * 4 * blocks_of(size))),
      texts: [text],
    };
    const infos = new Map(
      tensors_of(file, text.length).map(([name, { dtype, shape }]) => [
        name,
        { dtype, shape, bytes: pieces[name]!.reduce((n, { length }) => n + length, 0) },
      ]),
    );
    const { head, order } = safetensorsHead(infos, Object.fromEntries(metadata_of(file)));
    return new Blob([head, ...order.flatMap((name) => pieces[name]!)]);
  }

  close(): void {
    this.device.close();
  }

  /** Takes the vectors of a file. */
  private async fill({ file, blob, tensors }: Contents, where: string): Promise<void> {
    if (!file.count) return;
    const { count, size } = file;
    const { host } = this.device;
    const row = row_bytes(size, this.precision);
    const step = 4 * blocks_of(size);
    const each = Math.max(1, Math.floor(PIECE / row));
    const read = async (name: string, from: number, bytes: number) => {
      const { offset } = tensors.get(name)!;
      return new Uint8Array(await blob.slice(offset + from, offset + from + bytes).arrayBuffer());
    };
    const room = Math.max(1, Math.floor(MAX_PART / row)); // vectors of a part
    for (let from = 0; from < count; from += each) {
      const more = Math.min(each, count - from);
      const piece = await read("vectors", from * row, more * row);
      const next = Math.min(room, count - from);
      if (this.precision === "float32") {
        try {
          this.add({ count: more, size, data: new Float32Array(piece.buffer) }, next);
        } catch (e) {
          throw e instanceof InputError ? broken("its numbers are not finite", where) : e;
        }
        continue;
      }
      const scales = await read("scales", from * step, more * step);
      if (!new Float32Array(scales.buffer).every(Number.isFinite))
        throw broken("its numbers are not finite", where);
      const [part, isNew] = this.partFor(more, size, next);
      host.write(part.vectors + part.count * row, piece);
      host.write(part.scales + part.count * step, scales);
      this.took(part, isNew, more, size);
    }
  }

  /**
   * A part with room for more vectors, and whether it is new: not yet one of `parts`.
   * @param next vectors that will come, these among them
   */
  private partFor(count: number, size: number, next = count): [Part, boolean] {
    const last = this.parts.at(-1);
    if (last && last.room - last.count >= count) return [last, false];
    const room = room_of(this.count, next, size, this.precision);
    const { host } = this.device;
    const vectors = host.alloc(room * row_bytes(size, this.precision));
    let scales = 0;
    try {
      if (this.precision === "int8") scales = host.alloc(room * 4 * blocks_of(size));
    } catch (e) {
      host.free(vectors);
      throw e;
    }
    return [{ vectors, scales, room, count: 0 }, true];
  }

  /** Writes an ew_nearest and returns its address. */
  private describe(address: number, count: number, size: number, first: number): number {
    const words = Uint32Array.of(count, size, Number(this.precision === "int8"), first);
    this.device.host.write(address, new Uint8Array(words.buffer));
    return address;
  }

  /** Runs `work` with engine memory that is freed after it. */
  private using<T>(work: (alloc: (bytes: number) => number) => T): T {
    const { host } = this.device;
    const addresses: number[] = [];
    try {
      return work((bytes) => {
        const address = host.alloc(Math.max(bytes, 1));
        addresses.push(address);
        return address;
      });
    } finally {
      for (const address of addresses) host.free(address);
    }
  }

  /** Calls a function of core/search. Returns its int32; throws for negative ones. */
  private call(where: string, name: string, ...args: Parameters<Host["call"]>[1][]): number {
    const code = this.device.host.call(name, ...args) | 0;
    if (code >= 0) return code;
    if (code === MEMORY)
      throw new OutOfMemory("2 GB of vectors at once", where, "Add them in smaller parts.");
    if (code === ARGUMENT) throw not_finite(where);
    throw new EngineError(`error ${code}`, name, "This is a bug in Edgewise.");
  }
}

/** The checked contents of a file. */
interface Contents {
  file: IndexFile;
  blob: Blob;
  tensors: Awaited<ReturnType<typeof readSafetensors>>["tensors"];
  texts: string[] | undefined;
}

async function contentsOf(blob: Blob, where: string): Promise<Contents> {
  const { tensors, metadata } = await readSafetensors(blob, where);
  const file = index_file(metadata, Object.fromEntries(tensors), where);
  if (!file.texts) return { file, blob, tensors, texts: undefined };
  const { offset, bytes } = tensors.get("texts")!;
  let texts: unknown;
  try {
    const data = await blob.slice(offset, offset + bytes).arrayBuffer();
    texts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch {
    throw broken("its texts are no valid JSON", where);
  }
  return { file, blob, tensors, texts: check_texts(texts, file.count, where) };
}
