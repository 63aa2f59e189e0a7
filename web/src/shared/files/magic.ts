// How a package is recognized.

/** What packages begin with. */
export const MAGIC = "EDGEWISE";

/** Whether a file begins as a package does. */
export function isMagic(bytes: Uint8Array): boolean {
  return bytes.length >= 8 && String.fromCharCode(...bytes.subarray(0, 8)) === MAGIC;
}
