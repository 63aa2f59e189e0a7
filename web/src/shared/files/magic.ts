// Recognition of packages.

/** First bytes of a package. */
export const MAGIC = "EDGEWISE";

/** Whether `bytes` begin as a package. */
export function isMagic(bytes: Uint8Array): boolean {
  return bytes.length >= 8 && String.fromCharCode(...bytes.subarray(0, 8)) === MAGIC;
}
