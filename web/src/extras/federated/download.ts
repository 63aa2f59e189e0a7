// The weights of a task: announcements of a server, and the download that goes on after a lost
// connection.

import { Aborted, InputError } from "../../shared/errors.ts";
import { CODECS, type Codec, type Schema } from "./codec.ts";
import { CHUNK, type Connection, type Message } from "./connection.ts";

/** Messages that end the task before them. */
export const ENDS: readonly string[] = ["task", "weights", "bye"];

/** A file that a task names. */
export interface TaskFile {
  kind: "weights" | "delta";
  codec: Codec;
  bytes: number;
  sha256: string;
  /** Of the parameters whose difference it holds. */ part?: unknown;
}

/**
 * The file of a task.
 * @throws InputError if it cannot be one of this schema: its size is limited before a byte is read
 */
export function fileOf(task: Message, schema: Schema): TaskFile {
  const file = (task.file ?? {}) as Partial<TaskFile>;
  const { kind, bytes, sha256 } = file;
  const codec = kind === "weights" ? "float32" : file.codec;
  if (
    !(kind === "weights" || kind === "delta") ||
    !CODECS.includes(codec as Codec) ||
    typeof sha256 !== "string" ||
    !(Number.isInteger(bytes) && bytes! > 0 && bytes! <= schema.mostBytes(codec as Codec))
  )
    throw new InputError("it names no file that this client can use", "task");
  return { kind, codec: codec as Codec, bytes: bytes!, sha256, part: file.part };
}

/** The error for a message `refused`. */
export function refusal(answer: Message, url: string): Error {
  const reason = String(answer.reason).slice(0, 300);
  return answer.code === "stale" ? new Aborted(reason) : new InputError(reason, url);
}

/** A download, over several connections. */
export class Download {
  private sha256 = "";
  private chunks: Uint8Array<ArrayBuffer>[] = [];
  private size = 0;

  /**
   * Fetches a file from where an earlier connection has ended.
   * @param end ends the download
   * @param other handles messages that do not belong to it
   * @param progress called with the bytes so far
   * @throws Aborted if the task is no longer the client's, or `end` says so
   * @throws InputError if the server refuses, or its bytes are wrong
   */
  async fetch(
    connection: Connection,
    task: Message,
    file: TaskFile,
    end: AbortSignal,
    other: (message: Message) => Promise<void>,
    progress: (bytes: number) => void,
  ): Promise<Blob> {
    if (this.sha256 !== file.sha256) this.begin(file.sha256);
    if (this.size < file.bytes)
      connection.send("fetch", { run: task.run, round: task.round, offset: this.size });
    connection.expect(file.bytes - this.size);
    try {
      while (this.size < file.bytes) {
        const frame = await connection.next(end);
        if (frame instanceof Uint8Array) this.add(frame, file, progress);
        else if (frame.kind === "refused") throw refusal(frame, "fetch");
        else if (ENDS.includes(frame.kind)) {
          connection.unread(frame);
          throw new Aborted("the server has ended the task");
        } else await other(frame);
      }
    } finally {
      connection.expect(0);
    }
    const data = new Blob(this.chunks);
    this.begin("");
    return data;
  }

  private begin(sha256: string): void {
    Object.assign(this, { sha256, chunks: [], size: 0 });
  }

  private add(
    chunk: Uint8Array<ArrayBuffer>,
    file: TaskFile,
    progress: (bytes: number) => void,
  ): void {
    if (chunk.length !== Math.min(CHUNK, file.bytes - this.size)) {
      this.begin("");
      throw new InputError("a part of the weights has a wrong size", "task");
    }
    this.chunks.push(chunk);
    this.size += chunk.length;
    progress(this.size);
  }
}
