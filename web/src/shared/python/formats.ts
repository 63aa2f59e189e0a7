// Texts of values, as Python writes them.

import { ValueError } from "./errors.ts";
import { length, ljust, rjust, substring, zfill } from "./texts.ts";

/** As toFixed, of a number that is not negative; but halves, as in 0.125, go to the even digit. */
export function decimals(value: number, digits: number): string {
  const all = value < 1e21 ? value.toFixed(100) : "";
  const end = all.indexOf(".") + digits + 1;
  const kept = all.slice(0, digits ? end : end - 1);
  return evenHalf(kept, all.slice(end)) ? kept : value.toFixed(digits);
}

/** As toExponential, as `decimals`. */
function exponential(value: number, digits: number): string {
  const [mantissa = "", power = ""] = value.toExponential(100).split("e");
  const kept = mantissa.slice(0, digits ? mantissa.length - 100 + digits : mantissa.length - 101);
  const rest = mantissa.slice(mantissa.length - 100 + digits);
  return evenHalf(kept, rest) ? `${kept}e${power}` : value.toExponential(digits);
}

function evenHalf(kept: string, rest: string): boolean {
  return /^50*$/.test(rest) && Number(kept.at(-1)) % 2 === 0;
}

/** A float as Python writes it. */
function floatText(value: number): string {
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

/** format(x, spec), for numbers and texts: [0][width][,][.digits][f|g|e|%|d|x|s], and [<>^]. */
export function format(value: unknown, spec: string): string {
  const parts = /^([<>^])?([+])?(0)?(\d+)?(,)?(?:\.(\d+))?([fge%dxsb])?$/.exec(spec);
  if (!parts) throw new ValueError(`Invalid format specifier ${repr(spec)}`);
  const [, align, plus, zero, width, comma, digits, type] = parts;
  let text = formatted(value, type, digits === undefined ? undefined : Number(digits), spec);
  if (plus && Number(value) >= 0) text = `+${text}`;
  if (comma) text = text.replace(/\d+/, (d) => d.replace(/\B(?=(\d{3})+$)/g, ","));
  const size = Number(width ?? 0);
  if (zero) return zfill(text, size);
  const left = align === "<" || (align === undefined && typeof value === "string");
  if (align === "^") {
    const space = Math.max(size - length(text), 0);
    return " ".repeat(Math.floor(space / 2)) + text + " ".repeat(Math.ceil(space / 2));
  }
  return left ? ljust(text, size) : rjust(text, size);
}

function formatted(
  value: unknown,
  type: string | undefined,
  digits: number | undefined,
  spec: string,
): string {
  if (typeof value === "string") return digits === undefined ? value : substring(value, 0, digits);
  const x = Number(value);
  if (!Number.isFinite(x)) return floatText(x);
  if (type === "f") return fixed(x, digits ?? 6);
  if (type === "%") return `${fixed(x * 100, digits ?? 6)}%`;
  if (type === "d" || (type === undefined && digits === undefined)) return str(value);
  if (type === "x" || type === "b") return x.toString(type === "x" ? 16 : 2);
  if (type === "e") return exponent(exponential(x, digits ?? 6));
  if (type === "g" || type === undefined) return general(x, digits ?? 6);
  throw new ValueError(`Invalid format specifier ${repr(spec)}`);
}

/** format(x, ".2f"), where digits is 2 */
export function fixed(value: number, digits: number): string {
  if (!Number.isFinite(value)) return floatText(value);
  const text = decimals(Math.abs(value), digits);
  return value < 0 || Object.is(value, -0) ? `-${text}` : text;
}

function exponent(text: string): string {
  return text.replace(/e([+-])(\d)$/, "e$10$2");
}

function general(value: number, digits: number): string {
  const most = Math.max(digits, 1);
  const text = exponential(value, most - 1);
  const power = Number(text.slice(text.indexOf("e") + 1));
  if (power < -4 || power >= most) return exponent(text.replace(/\.?0+e/, "e"));
  const plain = fixed(value, Math.max(most - 1 - power, 0));
  return plain.includes(".") ? plain.replace(/\.?0+$/, "") : plain;
}
