// Weights of float32 that plans read as float16 numbers of w * 2^power, which are exact.
// python/edgewise/compiler/compile/half_weights.py chooses them,
// python/edgewise/compiler/onnx/halves.py is the same in Python.

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
    let bytes = chunk;
    if (rest.length || bytes.byteOffset & 3) {
      bytes = new Uint8Array(rest.length + chunk.length);
      bytes.set(rest);
      bytes.set(chunk, rest.length);
    }
    const start = at - rest.length;
    const count = bytes.length >> 2;
    const floats = new Int32Array(bytes.buffer, bytes.byteOffset, count);
    const halves = new Uint16Array(count);
    let [low, high, bits] = [0x7fffffff, 0, 0];
    for (let i = 0; i < count; i++) {
      const x = floats[i]!;
      const magnitude = x & 0x7fffffff;
      bits |= x;
      if (magnitude > high) high = magnitude;
      if (!magnitude) halves[i] = x >>> 16;
      else {
        if (magnitude < low) low = magnitude;
        halves[i] = ((magnitude >> 13) - less) | ((x >>> 16) & 0x8000);
      }
    }
    if (bits & 0x1fff || low >> 13 < less + 0x400 || high >> 13 > less + 0x7bff)
      throw new ModelError(
        "its weights are no longer those that it was compiled for",
        where,
        "Load it again.",
      );
    rest = bytes.slice(4 * count);
    write(new Uint8Array(halves.buffer), start / 2);
  };
}
