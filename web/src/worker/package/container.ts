// The layout of an .edge file.

export const HEADER = 16;
export const ALIGN = 64;
export const SUM = '{"manifest_sha256":"'; // what every manifest begins with; the sum is taken with zeros in its place
export const DIGITS = 64;
