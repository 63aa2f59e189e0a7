// Methods of Python's bytes.

import { ValueError } from "./errors.ts";
import { ord } from "./texts.ts";
import type { Sequence } from "./types.ts";

export function joined(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(parts.reduce((n, x) => n + x.length, 0));
  let at = 0;
  for (const x of parts) {
    made.set(x, at);
    at += x.length;
  }
  return made;
}

export function encode(text: string, encoding = "utf-8"): Uint8Array {
  if (encoding.startsWith("utf")) return new TextEncoder().encode(text);
  return Uint8Array.from(Array.from(text, ord));
}

/** Throws a ValueError where the bytes are no text, unless errors are replaced. */
export function decode(bytes: Uint8Array, encoding = "utf-8", errors = "strict"): string {
  if (encoding.startsWith("utf")) {
    try {
      return new TextDecoder("utf-8", { fatal: errors === "strict", ignoreBOM: true }).decode(
        bytes,
      );
    } catch {
      throw new ValueError("the bytes are not UTF-8");
    }
  }
  return Array.from(bytes, (x) => String.fromCharCode(x)).join("");
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (x) => x.toString(16).padStart(2, "0")).join("");
}

export function bytesOf(values: ArrayBufferView): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice();
}

export function startsWith(bytes: Uint8Array, part: Uint8Array): boolean {
  return part.every((x, i) => bytes[i] === x);
}

/** The first position of a part, at `start` or after; -1: none. */
export function findBytes(bytes: Uint8Array, part: Uint8Array, start = 0): number {
  if (part.length === 1) return bytes.indexOf(part[0] as number, start);
  for (let i = start; i + part.length <= bytes.length; i++)
    if (part.every((x, k) => bytes[i + k] === x)) return i;
  return -1;
}

/** int.from_bytes; at most 6 bytes. */
export function intFromBytes(bytes: Sequence<number>, order: string): number {
  let made = 0;
  const all = order === "little" ? [...bytes].reverse() : bytes;
  for (const x of all) made = made * 256 + x;
  return made;
}
