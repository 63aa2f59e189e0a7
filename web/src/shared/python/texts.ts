// Methods of Python's str. Positions are those of code points.

import { IndexError } from "./errors.ts";

const PLAIN = /^[\0-\ud7ff\ue000-\uffff]*$/;
let lastPlain = "";

/** Whether each code point is one unit of UTF-16. A parser asks it of the same text many times. */
export function isPlain(text: string): boolean {
  if (text === lastPlain) return true;
  const found = PLAIN.test(text);
  if (found && text.length > 32) lastPlain = text;
  return found;
}

/** Code points of a text, elements of anything else. */
export function length(value: unknown): number {
  if (typeof value === "string") return isPlain(value) ? value.length : Array.from(value).length;
  if (value instanceof Map || value instanceof Set) return value.size;
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return (value as ArrayLike<unknown> & object).length;
  return Object.keys(value as object).length;
}

/** text[at] */
export function character(text: string, at: number): string {
  const all = isPlain(text) ? text : Array.from(text);
  const found = all.at(at);
  if (found === undefined) throw new IndexError("string index out of range");
  return found;
}

/** text[start:end] */
export function substring(text: string, start: number | null, end?: number | null): string {
  if (isPlain(text)) return text.slice(start ?? 0, end ?? undefined);
  return Array.from(text)
    .slice(start ?? 0, end ?? undefined)
    .join("");
}

/** The position of code points at a position of UTF-16, and back. */
function toPoints(text: string, at: number): number {
  return at < 0 || isPlain(text) ? at : Array.from(text.slice(0, at)).length;
}

export function find(text: string, part: string, start = 0, end?: number): number {
  const offset = substring(text, 0, start).length;
  const within = end === undefined ? text : substring(text, 0, end);
  return toPoints(text, within.indexOf(part, offset));
}

export function rfind(text: string, part: string, start = 0): number {
  const offset = substring(text, 0, start).length;
  const at = text.lastIndexOf(part);
  return at < offset ? -1 : toPoints(text, at);
}

export function count(text: string, part: string): number {
  return part ? text.split(part).length - 1 : length(text) + 1;
}

/** text.replace(part, other); an empty part is between all code points. */
export function replace(text: string, part: string, other: string): string {
  if (part) return text.replaceAll(part, () => other);
  return other + Array.from(text, (c) => c + other).join("");
}

export function startswith(text: string, part: string | readonly string[], start = 0): boolean {
  const at = start ? substring(text, 0, start).length : 0;
  return typeof part === "string"
    ? text.startsWith(part, at)
    : part.some((x) => text.startsWith(x, at));
}

export function endswith(text: string, part: string | readonly string[]): boolean {
  return typeof part === "string" ? text.endsWith(part) : part.some((x) => text.endsWith(x));
}

export function removeprefix(text: string, part: string): string {
  return text.startsWith(part) ? text.slice(part.length) : text;
}

export function removesuffix(text: string, part: string): string {
  return part && text.endsWith(part) ? text.slice(0, -part.length) : text;
}

// White space of Python's str: Unicode's White_Space and the four separators of information.
const SPACES =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

const LEADING = new RegExp(`^[${SPACES}]+`);

const TRAILING = new RegExp(`[${SPACES}]+$`);

const BETWEEN = new RegExp(`[${SPACES}]+`);

const ONLY = new RegExp(`^[${SPACES}]+$`);

function trimmed(
  text: string,
  characters: string | null | undefined,
  left: boolean,
  right: boolean,
): string {
  if (characters == null) {
    const cut = left ? text.replace(LEADING, "") : text;
    return right ? cut.replace(TRAILING, "") : cut;
  }
  const all = Array.from(text);
  const taken = new Set(characters);
  let [from, to] = [0, all.length];
  while (left && from < to && taken.has(all[from] as string)) from++;
  while (right && to > from && taken.has(all[to - 1] as string)) to--;
  return all.slice(from, to).join("");
}

export function strip(text: string, characters?: string | null): string {
  return trimmed(text, characters, true, true);
}

export function lstrip(text: string, characters?: string | null): string {
  return trimmed(text, characters, true, false);
}

export function rstrip(text: string, characters?: string | null): string {
  return trimmed(text, characters, false, true);
}

export function split(text: string, at?: string | null, most = -1): string[] {
  if (at == null) {
    const all = strip(text);
    if (!all) return [];
    if (most < 0) return all.split(BETWEEN);
    const parts: string[] = [];
    let rest = all;
    while (parts.length < most) {
      const found = BETWEEN.exec(rest);
      if (!found) break;
      parts.push(rest.slice(0, found.index));
      rest = rest.slice(found.index + found[0].length);
    }
    return [...parts, rstrip(rest)];
  }
  const parts = text.split(at);
  return most < 0 || parts.length <= most + 1
    ? parts
    : [...parts.slice(0, most), parts.slice(most).join(at)];
}

export function rsplit(text: string, at: string, most = -1): string[] {
  const parts = text.split(at);
  const first = parts.length - most;
  return most < 0 || first <= 1 ? parts : [parts.slice(0, first).join(at), ...parts.slice(first)];
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they end lines in Python
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;

export function splitlines(text: string): string[] {
  const parts = text.split(LINE_ENDS);
  if (parts.at(-1) === "") parts.pop();
  return parts;
}

export function partition(text: string, at: string): [string, string, string] {
  const i = text.indexOf(at);
  return i < 0 ? [text, "", ""] : [text.slice(0, i), at, text.slice(i + at.length)];
}

export function rpartition(text: string, at: string): [string, string, string] {
  const i = text.lastIndexOf(at);
  return i < 0 ? ["", "", text] : [text.slice(0, i), at, text.slice(i + at.length)];
}

export function isspace(text: string): boolean {
  return ONLY.test(text);
}

export function isdigit(text: string): boolean {
  return /^[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+$/u.test(text);
}

export function isdecimal(text: string): boolean {
  return /^\p{Nd}+$/u.test(text);
}

export function isalpha(text: string): boolean {
  return /^\p{L}+$/u.test(text);
}

export function isalnum(text: string): boolean {
  return /^[\p{L}\p{N}]+$/u.test(text);
}

export function isupper(text: string): boolean {
  return text !== text.toLowerCase() && text === text.toUpperCase();
}

export function islower(text: string): boolean {
  return text !== text.toUpperCase() && text === text.toLowerCase();
}

export function zfill(text: string, width: number): string {
  const sign = /^[+-]/.test(text) ? text.slice(0, 1) : "";
  return sign + text.slice(sign.length).padStart(width - sign.length, "0");
}

export function ljust(text: string, width: number): string {
  return text + " ".repeat(Math.max(width - length(text), 0));
}

export function rjust(text: string, width: number): string {
  return " ".repeat(Math.max(width - length(text), 0)) + text;
}

export function ord(text: string): number {
  return text.codePointAt(0) as number;
}

/** pattern.findall(text), of a pattern with one group or none */
export function findAll(pattern: RegExp, text: string): string[] {
  return Array.from(text.matchAll(new RegExp(pattern, "gu")), (found) => found[1] ?? found[0]);
}

export function fullMatch(pattern: RegExp, text: string): RegExpExecArray | null {
  return new RegExp(`^(?:${pattern.source})$`, pattern.flags).exec(text);
}

export function match(pattern: RegExp, text: string): RegExpExecArray | null {
  return new RegExp(`^(?:${pattern.source})`, pattern.flags).exec(text);
}
