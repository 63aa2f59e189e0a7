// Layout of an .edge file, the names of its parts, and the type of the manifest as JSON.

export const HEADER = 16;
export const ALIGN = 64;
/** Beginning of every manifest; the checksum is computed with zeros in place of its digits. */
export const SUM = '{"manifest_sha256":"';
export const DIGITS = 64;

/** Name of the part with the notes: see python/edgewise/compiler/plan/notes.py. */
export const NOTES = "//notes";

/** A parsed JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
