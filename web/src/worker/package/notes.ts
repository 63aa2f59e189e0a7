// Where a package keeps the notes on its plans.

/** Part of a package: python/edgewise/plan/notes.py. */
export const NOTES = "//notes";
