// What pages of tasks share: addresses, and results as JSON.

/** An address in full. */
export const here = (path) => new URL(path, location.href).href;

/** What a call takes: the addresses of files in full. */
export function argumentsOf(value) {
  if (Array.isArray(value)) return value.map(argumentsOf);
  return value?.$url ? here(value.$url) : value;
}

/** A result as JSON of limited length: of long arrays of numbers, 400 at equal distances. */
export function shown(value) {
  return JSON.parse(
    JSON.stringify(value, (_key, v) => {
      if (ArrayBuffer.isView(v)) {
        const step = Math.max(1, v.length / 400);
        return Array.from({ length: Math.min(400, v.length) }, (_, i) =>
          Number(v[Math.floor(i * step)]),
        );
      }
      if (v?.dims && v.data) return { dims: v.dims, data: v.data }; // a tensor of either engine
      return typeof v === "bigint" ? Number(v) : v;
    }),
  );
}
