// The way of an update to the server, which goes on after a lost connection.

import { CHUNK, ENDS, is_offset, WINDOW } from "../../logic/federated/tasks.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import type { Connection, Message } from "./connection.ts";
import { refusal } from "./download.ts";
import type { Finished, LedgerEntry, Store } from "./store.ts";

/** What an upload needs of its client. */
export interface Sender {
  connection: Connection;
  /** Address of the server. */ url: string;
  store: Store;
  /** Most bytes that may leave within 24 hours. */ most: number;
  /** Handles messages that do not belong to the upload. */
  other: (message: Message) => Promise<void>;
  /** Called with the bytes that have arrived. */
  progress: (sent: number, bytes: number) => void;
}

/**
 * Announces and sends an update, until it is accepted or rejected.
 * @param task whose run, round and codec it has
 * @param more of its entry in the ledger
 * @throws Aborted if `end` says so
 * @throws InputError if the server refuses, or the terms allow no more bytes
 */
export async function upload(
  sender: Sender,
  task: Message,
  finished: Finished,
  end: AbortSignal,
  more: Partial<LedgerEntry>,
): Promise<void> {
  const { connection, url } = sender;
  const { data, examples, steps, metrics, norm } = finished;
  const [run, round, codec] = [String(task.run), Number(task.round), String(task.codec)];
  const told = { run, round, sha256: finished.sha256, bytes: data.length, codec };
  const numbers = { examples, steps, metrics };
  await sender.store.record({ url, ...told, norm, ...numbers, ...more });
  if (end.aborted) throw new Aborted("the deadline has passed");
  connection.send("update", { ...told, ...numbers });
  const later: Message[] = []; // of its group
  let [sent, last] = [-1, 0];
  try {
    for (;;) {
      const answer = await connection.message(end);
      if (ENDS.includes(answer.kind)) return connection.unread(answer);
      if (answer.kind === "refused") throw refusal(answer, url);
      if (answer.group !== undefined) later.unshift(answer);
      else if (answer.kind !== "ack") await sender.other(answer);
      if (answer.sha256 !== finished.sha256) continue;
      if (answer.kind !== "ack") return; // accepted, or rejected
      const offset = answer.offset as number;
      if (!is_offset(offset, last, data.length))
        throw new InputError("it has acknowledged bytes that do not exist", url);
      last = offset;
      if (sent < 0) sent = offset;
      sent = await sendPart(sender, finished, sent, offset + WINDOW * CHUNK);
      sender.progress(offset, data.length);
    }
  } finally {
    for (const message of later) connection.unread(message);
  }
}

/** Sends an update from `begin` on, up to `end`. Returns how far. */
async function sendPart(
  { connection, url, store, most }: Sender,
  { data, sha256 }: Finished,
  begin: number,
  end: number,
): Promise<number> {
  const until = Math.min(data.length, end);
  if (begin >= until) return begin;
  if (!(await store.spend(url, sha256, until - begin, data.length - begin, most)))
    throw new InputError(`the terms allow ${most} bytes a day`, "terms");
  for (let at = begin; at < until; at += CHUNK)
    connection.sendBytes(data.slice(at, Math.min(at + CHUNK, until)));
  return until;
}
