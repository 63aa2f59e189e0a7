// Values as people read them.

/** An error's words, whatever was thrown. */
export function message(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

/** Bytes in words, in units of 2^20: `12 MB`. */
export function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0)} MB`;
}
