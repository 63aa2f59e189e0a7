// Checkpoints of training runs in the browser's storage. A run has two files, of which each
// save overwrites the older one, so that one file is intact whenever the tab is killed. A file is a
// safetensors file whose metadata has the number of the save and a checksum of all its bytes, in
// which the checksum's own digits count as zeros.

import { InputError, StorageError } from "../errors.ts";
import { BlobReader } from "../files/blobs.ts";
import { storageError } from "../files/cached.ts";
import { folder, openFolder, removeFrom } from "../files/folders.ts";
import type { Folder, OpenFile } from "../files/stored.ts";
import { type Contents, readSafetensors, safetensorsHead, type TensorInfo } from "./safetensors.ts";
import { Sum, sumOfFile } from "./sum.ts";

const FOLDER = "checkpoints";
const FORMAT = "edgewise-run-2";
const CHUNK = 4 << 20;
const SIDES = ["a", "b"] as const;

/** A checkpoint in a listing. */
export interface CheckpointInfo {
  /** Name as in the option `checkpoint`. */
  name: string;
  /** Updates made. */
  step: number;
  /** Planned updates of the run. */
  total: number;
  /** Size of both files in bytes. */
  bytes: number;
  /** Time of saving, in milliseconds since 1970. */
  saved: number;
  /** Training program of the run: `lora` or `full`. */
  program: string;
}

/** State of a run besides its tensors. */
export interface RunRecord {
  /** Updates made. */
  step: number;
  /** Planned updates. */
  total: number;
  /** Number of forward passes with dropout. */
  runs: number;
  /** Name of the adapter in `model.adapters`. */
  adapter: string;
  /** Training program: `lora` or `full`. */
  program: string;
  /** Losses of all updates; then [update, loss on the evaluation texts]. */
  losses: number[];
  evaluations: [step: number, loss: number][];
  /** Updates before the best evaluation, of which there is a copy; 0: none. Not in older files. */
  best_step?: number;
  /** Everything that determines the rest of the run; must be equal to resume it. */
  config: Record<string, unknown>;
  /** Time of saving, in milliseconds since 1970. */
  saved: number;
}

function checkCheckpointName(name: unknown): asserts name is string {
  if (typeof name !== "string" || !/^[\w][\w .-]{0,99}$/.test(name))
    throw new InputError(
      `${JSON.stringify(name)?.slice(0, 120)} is not a valid checkpoint name`,
      "checkpoint.name",
      "Give letters, digits, spaces, dots and dashes.",
    );
}

interface Side {
  side: (typeof SIDES)[number];
  file: File;
  generation: number;
  record: RunRecord;
  contents: Contents;
}

/** The intact files of a checkpoint, newest first. */
async function sides(dir: Folder, name: string, verify: boolean): Promise<Side[]> {
  const found: Side[] = [];
  for (const side of SIDES) {
    try {
      const file = await dir.read(`${name}.${side}.safetensors`);
      const contents = await readSafetensors(file, name);
      const head = JSON.parse(contents.metadata.edgewise ?? "null") as {
        format?: string;
        generation: number;
        record: RunRecord;
      } | null;
      if (
        head?.format !== FORMAT ||
        !Number.isInteger(head.generation) ||
        typeof head.record !== "object" ||
        head.record === null
      )
        continue;
      if (verify && !(await sumOfFile(file)).fits) continue;
      found.push({ side, file, generation: head.generation, record: head.record, contents });
    } catch {
      // missing, or truncated while it was written: use the other file
    }
  }
  return found.sort((a, b) => b.generation - a.generation);
}

interface NextSave {
  side: (typeof SIDES)[number];
  generation: number;
}

/** Overwrites a file. Returns its size. */
async function writeTensors(
  file: OpenFile,
  head: Uint8Array,
  order: readonly string[],
  bytes: (name: string) => Promise<Uint8Array<ArrayBuffer>>,
): Promise<number> {
  await file.truncate(0);
  let at = head.length;
  for (const name of order) {
    const data = await bytes(name);
    for (let i = 0; i < data.length; i += CHUNK) {
      const part = data.subarray(i, i + CHUNK);
      await file.write(part, at);
      at += part.length;
    }
  }
  await file.flush();
  // The header is written last: without it the file is not a safetensors file.
  await file.write(head, 0);
  await file.flush();
  return at;
}

/** A checkpoint in the browser's storage. */
export class Checkpoint {
  private next: NextSave | undefined;

  constructor(readonly name: string) {
    checkCheckpointName(name);
  }

  /** Reads the newest intact save: its record and tensors. Undefined if there is none. */
  async read(): Promise<
    | {
        record: RunRecord;
        contents: Contents;
        tensor(name: string): Promise<Uint8Array<ArrayBuffer>>;
      }
    | undefined
  > {
    const dir = await folder(FOLDER, false);
    const [newest] = dir ? await sides(dir, this.name, true) : [];
    if (!newest) return undefined;
    const { file, contents, record } = newest;
    const reader = new BlobReader(file, this.name);
    return {
      record,
      contents,
      async tensor(name) {
        const t = contents.tensors.get(name)!;
        return reader.copy(t.offset, t.bytes);
      },
    };
  }

  /**
   * Saves a run, overwriting the older of its two files.
   * @param record state besides the tensors
   * @param tensors names, types and shapes of the tensors
   * @param bytes returns a copy of a tensor's current bytes
   * @returns size of the file in bytes
   * @throws StorageError; the newer file is intact
   */
  async write(
    record: RunRecord,
    tensors: Map<string, TensorInfo>,
    bytes: (name: string) => Promise<Uint8Array<ArrayBuffer>>,
  ): Promise<number> {
    let size = 0;
    for (const t of tensors.values()) size += t.bytes;
    let file: OpenFile | undefined;
    try {
      const dir = await openFolder(FOLDER);
      this.next ??= await this.olderSide(dir);
      const { side, generation } = this.next;
      const headOf = (sum: string) =>
        safetensorsHead(tensors, {
          edgewise: JSON.stringify({ sum, format: FORMAT, generation, record }),
        });
      const { head: unsummed, order } = headOf("0".repeat(16));
      const sum = new Sum().add(unsummed);
      for (const name of order) sum.add(await bytes(name));
      file = await dir.open(`${this.name}.${side}.safetensors`);
      if (!file)
        throw new StorageError(
          "this browser cannot write files from a worker",
          `checkpoint '${this.name}'`,
          "Use Chrome 108, Firefox 111 or Safari 15.2 or later.",
        );
      const end = await writeTensors(file, headOf(sum.hex()).head, order, bytes);
      this.next = { side: side === "a" ? "b" : "a", generation: generation + 1 };
      return end;
    } catch (e) {
      try {
        await file?.truncate(0); // frees the space
      } catch {
        // an incomplete file is ignored in any case
      }
      throw storageError(
        e,
        `checkpoint '${this.name}'`,
        size,
        "The save before it, if there is one, is still there.",
      );
    } finally {
      await file?.close().catch(() => undefined); // it has been flushed
    }
  }

  /** The file that the next save overwrites, and the number of that save. */
  private async olderSide(dir: Folder): Promise<NextSave> {
    const [newest] = await sides(dir, this.name, true);
    return newest
      ? { side: newest.side === "a" ? "b" : "a", generation: newest.generation + 1 }
      : { side: "a", generation: 1 };
  }
}

/** Lists the checkpoints in the browser's storage, newest first. */
export async function checkpoints(): Promise<CheckpointInfo[]> {
  const dir = await folder(FOLDER, false);
  if (!dir) return [];
  const sizes = new Map<string, number>();
  for (const file of await dir.list()) {
    const name = /^(.+)\.[ab]\.safetensors$/.exec(file.name)?.[1];
    if (name) sizes.set(name, (sizes.get(name) ?? 0) + file.size);
  }
  const list: CheckpointInfo[] = [];
  for (const [name, bytes] of sizes) {
    const [newest] = await sides(dir, name, false);
    if (newest)
      list.push({
        name,
        bytes,
        step: newest.record.step,
        total: newest.record.total,
        saved: newest.record.saved,
        program: newest.record.program,
      });
  }
  return list.sort((a, b) => b.saved - a.saved);
}

/**
 * Deletes a checkpoint from the browser's storage, if it exists.
 * @throws InputError if the name is invalid
 */
export async function deleteCheckpoint(name: string): Promise<void> {
  checkCheckpointName(name);
  const dir = await folder(FOLDER, false);
  for (const side of SIDES) await removeFrom(dir, `${name}.${side}.safetensors`);
}
