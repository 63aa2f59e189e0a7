// Texts of values, as Python writes them.

/** As toFixed, of a number that is not negative; but halves, as in 0.125, go to the even digit. */
export function decimals(value: number, digits: number): string {
  const all = value < 1e21 ? value.toFixed(100) : "";
  const end = all.indexOf(".") + digits + 1;
  const kept = all.slice(0, digits ? end : end - 1);
  return evenHalf(kept, all.slice(end)) ? kept : value.toFixed(digits);
}

/** Whether `rest` is half of the last digit kept, which is even. */
export function evenHalf(kept: string, rest: string): boolean {
  return /^50*$/.test(rest) && Number(kept.at(-1)) % 2 === 0;
}

/** A float as Python writes it. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value < 0 ? "-inf" : "inf";
  if (Object.is(value, -0)) return "-0.0";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) {
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }
  const text = String(value);
  return Number.isInteger(value) ? `${text}.0` : text;
}

/** str(x); `isFloat`: whether a number is a float, which is written with a point. */
export function str(value: unknown, isFloat = false): string {
  if (value instanceof Error) return value.message;
  return typeof value === "string" ? value : repr(value, isFloat);
}

/** repr(x) */
export function repr(value: unknown, isFloat = false): string {
  if (value == null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") {
    return isFloat || !Number.isInteger(value) || Object.is(value, -0)
      ? floatText(value)
      : String(value);
  }
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${value.map((x) => repr(x)).join(", ")}]`;
  if (value instanceof Set)
    return value.size ? `{${[...value].map((x) => repr(x)).join(", ")}}` : "set()";
  const entries = value instanceof Map ? [...value] : Object.entries(value as object);
  if (value instanceof Map || Object.getPrototypeOf(value) === Object.prototype) {
    return `{${entries.map(([k, v]) => `${repr(k)}: ${repr(v)}`).join(", ")}}`;
  }
  return String(value);
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
};

function quoted(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = "";
  for (const c of text) {
    const code = c.codePointAt(0) as number;
    if (c === mark) out += `\\${c}`;
    else if (ESCAPES[c]) out += ESCAPES[c];
    else if (/^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u.test(c)) out += c;
    else if (code < 256) out += `\\x${code.toString(16).padStart(2, "0")}`;
    else if (code < 65536) out += `\\u${code.toString(16).padStart(4, "0")}`;
    else out += `\\U${code.toString(16).padStart(8, "0")}`;
  }
  return mark + out + mark;
}

/** format(x, ".2f"), where digits is 2 */
export function fixed(value: number, digits: number): string {
  if (!Number.isFinite(value)) return floatText(value);
  const text = decimals(Math.abs(value), digits);
  return value < 0 || Object.is(value, -0) ? `-${text}` : text;
}
