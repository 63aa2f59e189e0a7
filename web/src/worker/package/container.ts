// The layout of an .edge file.

export const HEADER = 16;
export const ALIGN = 64;
/** What every manifest begins with; the sum is taken with zeros in its place. */
export const SUM = '{"manifest_sha256":"';
export const DIGITS = 64;
