// Location of notes on plans in a package.

/** Name of the part with the notes: see python/edgewise/compiler/plan/notes.py. */
export const NOTES = "//notes";
