// The errors of the browser's storage.

import { type EdgewiseError, StorageError } from "../errors.ts";
import { megabytes, message } from "../words.ts";
import { isEdgewise } from "./stream.ts";

/** Receives the text of a warning. */
export type Warn = (text: string) => void;

/** Converts a failed write to a StorageError. `lost`: a sentence about what remains. */
export function storageError(
  e: unknown,
  where: string,
  bytes: number,
  lost: string,
): EdgewiseError {
  if (isEdgewise(e)) return e;
  const kind = e instanceof DOMException ? e.name : "";
  if (kind === "QuotaExceededError")
    return new StorageError(
      `not enough storage (${megabytes(bytes)}): the browser's storage for this site is full`,
      where,
      `${lost} Free space on the device, remove what is kept of earlier, or call ` +
        "edgewise.clearCache().",
    );
  if (kind === "NoModificationAllowedError" || kind === "InvalidStateError")
    return new StorageError(
      "another tab is writing it",
      where,
      "Close the other tab, or choose another name.",
    );
  if (e === undefined || kind === "SecurityError" || kind === "NotAllowedError")
    return new StorageError(
      "this page is not allowed to store files",
      where,
      `${lost} Serve the page by https or from localhost, and not in a private window that ` +
        "denies storage.",
    );
  return new StorageError(`it could not be written (${message(e)})`, where, lost);
}

export function quotaWords(e: unknown, what: string): string {
  const full = e instanceof DOMException && e.name === "QuotaExceededError";
  return full
    ? `${what} was not kept for the next visit: the browser's storage for this site is full. ` +
        "Nothing is lost; free space on the device, or call edgewise.clearCache()."
    : `${what} was not kept for the next visit (${message(e)}). Nothing is lost.`;
}
