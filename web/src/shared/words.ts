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

/**
 * What to do about a name that is not known: the one that was meant, if there is one like it.
 * @param otherwise the remedy without such a name; follows it
 */
export function meant(name: string, known: Iterable<string>, otherwise: string): string {
  const plain = (text: string): string => text.toLowerCase().replaceAll("_", "");
  const far = (other: string): number => edits(plain(name), plain(other));
  const low = name.toLowerCase();
  const initials = (other: string): string => other.replace(/([^_])[^_]*_?/g, "$1");
  // lr is learning_rate, stop is stop_strings
  const short = [...known].find(
    (full) => full.includes("_") && (full.startsWith(`${low}_`) || initials(full) === low),
  );
  const near = short ?? [...known].sort((a, b) => far(a) - far(b))[0];
  const like =
    near !== undefined && (near === short || far(near) <= Math.max(1, Math.floor(near.length / 4)));
  return like ? `Did you mean '${near}'? ${otherwise}`.trimEnd() : otherwise;
}

/** Number of letters to add, remove or replace. */
function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(
        row[j]! + 1,
        next[j - 1]! + 1,
        row[j - 1]! + Number(a[i - 1] !== b[j - 1]),
      );
    row = next;
  }
  return row[b.length]!;
}
