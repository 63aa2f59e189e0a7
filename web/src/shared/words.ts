// Formatting for messages.

/** The message of an error, or of any other value that was thrown. */
export function message(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

/** Formats a size in units of 2^20 bytes: `12 MB`. */
export function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0)} MB`;
}

/** The remedy for a failed download: `otherwise`, unless the browser is offline. */
export function networkRemedy(otherwise: string): string {
  return globalThis.navigator?.onLine === false
    ? "This browser is offline: connect it to the network and try again."
    : otherwise;
}
