// Layout of an .edge file.

export const HEADER = 16;
export const ALIGN = 64;
/** Beginning of every manifest; the checksum is computed with zeros in place of its digits. */
export const SUM = '{"manifest_sha256":"';
export const DIGITS = 64;
