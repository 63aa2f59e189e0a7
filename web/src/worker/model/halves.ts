// Weights of float32 that plans read as float16 numbers of w * 2^power, which are exact.
// python/edgewise/compile/half_weights.py chooses them, python/edgewise/onnx/halves.py is the same
// in Python.

import { ModelError } from "../../shared/errors.ts";

type Write = (chunk: Uint8Array, at: number) => void;

/**
 * A function that takes the bytes of float32 numbers, in ascending order, and writes them as
 * float16.
 * @param write writes the bytes of float16 numbers
 * @param power of two that the numbers are multiplied by
 * @param where the file, for the error
 * @returns the function; it throws ModelError if a result is not exact, or neither zero nor normal
 */
export function halved(write: Write, power: number, where: string): Write {
  const less = (112 - power) << 10;
  let rest = new Uint8Array();
  return (chunk, at) => {
    const bytes = new Uint8Array(rest.length + chunk.length);
    bytes.set(rest);
    bytes.set(chunk, rest.length);
    const start = at - rest.length;
    const count = bytes.length >> 2;
    const floats = new Int32Array(bytes.buffer, 0, count);
    const halves = new Uint16Array(count);
    let wrong = 0;
    for (let i = 0; i < count; i++) {
      const x = floats[i]!;
      if (x & 0x7fffffff) {
        const half = ((x >>> 13) & 0x3ffff) - less;
        wrong |= (x & 0x1fff) | +(half < 0x400 || half > 0x7bff);
        halves[i] = half | ((x >>> 16) & 0x8000);
      } else halves[i] = x >>> 16;
    }
    if (wrong)
      throw new ModelError(
        "its weights are no longer those that it was compiled for",
        where,
        "Load it again.",
      );
    rest = bytes.slice(4 * count);
    write(new Uint8Array(halves.buffer), start / 2);
  };
}
