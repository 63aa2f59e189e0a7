// Ranges of files.

/** Sorts ranges [offset, bytes] and merges those that overlap or touch. */
export function joined(ranges: readonly (readonly [number, number])[]): [number, number][] {
  const out: [number, number][] = [];
  for (const [offset, bytes] of ranges.slice().sort((a, b) => a[0] - b[0])) {
    const last = out[out.length - 1];
    if (last && offset <= last[0] + last[1]) last[1] = Math.max(last[1], offset + bytes - last[0]);
    else out.push([offset, bytes]);
  }
  return out;
}
