// The interface of the browser's storage, and its timeouts: if it does not answer, the operation
// fails, and storage counts as unavailable from then on.

import { StorageError } from "../errors.ts";
import { seconds, stallTimeout, within } from "../watchdog.ts";

/** A folder of files. Operations reject with the browser's error, or a StorageError. */
export interface Folder {
  /** A snapshot of a file. Rejects if it does not exist. */
  read(name: string): Promise<File>;
  /** Names and sizes in bytes of all files. */
  list(): Promise<{ name: string; size: number }[]>;
  /** Deletes a file. */
  remove(name: string): Promise<void>;
  /** Writes a file atomically: if this fails, an existing file stays. */
  write(name: string, data: Blob): Promise<void>;
  /**
   * Opens or creates a file for reading and writing in place; undefined if the browser does not
   * support it. Rejects if the file is open elsewhere.
   */
  open(name: string): Promise<OpenFile | undefined>;
}

/** A file that is open for reading and writing in place. Sizes and offsets are in bytes. */
export interface OpenFile {
  /** Current size. */
  readonly size: number;
  /** Reads into `data`; returns the number of bytes, which is smaller at the end of the file. */
  read(data: Uint8Array, at: number): Promise<number>;
  /** @throws QuotaExceededError */
  write(data: Uint8Array, at: number): Promise<void>;
  truncate(size: number): Promise<void>;
  /** Writes what is buffered. */
  flush(): Promise<void>;
  /** Flushes and closes. Idempotent. */
  close(): Promise<void>;
}

let silent: StorageError | undefined;

/**
 * Runs an operation on the storage with a timeout.
 * @param work the operation
 * @param what name for errors
 * @throws StorageError if it does not answer; what `work` rejects with
 */
export async function stored<T>(work: () => PromiseLike<T>, what: string): Promise<T> {
  if (silent) throw silent;
  return within(
    work(),
    () =>
      (silent = new StorageError(
        `the browser's storage did not answer within ${seconds(stallTimeout())}`,
        what,
        "Nothing is stored on this visit. Reload the page; if it happens again, restart the " +
          "browser.",
      )),
  );
}

/** The error for a file that does not exist, as browsers report it. */
export const notFound = (name: string): DOMException =>
  new DOMException(`there is no file ${name}`, "NotFoundError");
