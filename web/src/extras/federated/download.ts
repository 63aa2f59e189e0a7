// The weights of a task: announcements of a server, and the download that goes on after a lost
// connection.

import { CHUNK, ENDS, type TaskFile } from "../../logic/federated/tasks.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import type { Connection, Message } from "./connection.ts";

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
    if (this.size < file.size)
      connection.send("fetch", { run: task.run, round: task.round, offset: this.size });
    connection.expect(file.size - this.size);
    try {
      while (this.size < file.size) {
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
    if (chunk.length !== Math.min(CHUNK, file.size - this.size)) {
      this.begin("");
      throw new InputError("a part of the weights has a wrong size", "task");
    }
    this.chunks.push(chunk);
    this.size += chunk.length;
    progress(this.size);
  }
}
