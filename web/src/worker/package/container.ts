// The name of a part of packages, and the type of values in JSON.

/** Name of the part with the notes: see python/edgewise/compiler/plan/notes.py. */
export const NOTES = "//notes";

/** Name of the part with a prefix of conversations: python/edgewise/logic/generation/prefix.py. */
export const PREFIX = "//prefix";

/** A parsed JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
