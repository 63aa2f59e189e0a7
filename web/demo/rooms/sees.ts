// What a curious hub sees of an update: its numbers as a picture, their distribution, its norm.

import { megabytes, number } from "../page.ts";
import type { Seen } from "./wire.ts";

const WIDE = 256; // pixels of the picture
const HIGH = 64;

/**
 * Shows an update. A file whose numbers are masked has no structure to show: its picture is noise,
 * and what the hub learns is the sum of all alone.
 * @returns what the picture shows, in words
 */
export function showUpdate(
  canvas: HTMLCanvasElement,
  { data, codec, norm, ...rest }: Seen,
): string {
  const numbers = rest.masked
    ? Float32Array.from(data, (b) => b / 127.5 - 1)
    : numbersOf(data, codec);
  canvas.width = WIDE;
  canvas.height = HIGH;
  const context = canvas.getContext("2d")!;
  const picture = context.createImageData(WIDE, HIGH);
  const each = Math.max(1, Math.floor(numbers.length / (WIDE * HIGH)));
  for (let i = 0; i < WIDE * HIGH; i++) {
    let sum = 0;
    for (let k = 0; k < each; k++) sum += numbers[(i * each + k) % numbers.length] ?? 0;
    const level = Math.max(-1, Math.min(1, sum / each));
    const shade = Math.round(255 * (1 - Math.abs(level)));
    picture.data.set(level < 0 ? [shade, shade, 255, 255] : [255, shade, shade, 255], 4 * i);
  }
  context.putImageData(picture, 0, 0);
  const zero = numbers.reduce((n, v) => n + Number(v === 0), 0) / numbers.length;
  if (rest.masked)
    return (
      `Round ${rest.round}: ${megabytes(data.length)} under masks. The hub sees noise, and ` +
      "learns the sum of all pages alone."
    );
  return (
    `Round ${rest.round}: ${megabytes(data.length)}, ${number(numbers.length)} numbers in ` +
    `${codec}, norm ${number(norm, 3)}, ${number(100 * zero)} % of them zero; SHA-256 ` +
    `${rest.sha256.slice(0, 12)}…`
  );
}

/** The numbers of a file of edgewise.delta.1, from -1 to 1; those of other codecs as bytes. */
function numbersOf(data: Uint8Array<ArrayBuffer>, codec: string): Float32Array {
  const begin = 8 + Number(new DataView(data.buffer, data.byteOffset).getBigUint64(0, true));
  const { values } = JSON.parse(new TextDecoder().decode(data.subarray(8, begin))) as {
    values?: { data_offsets: [number, number] };
  };
  const [from, to] = values?.data_offsets ?? [0, data.length - begin];
  const body = data.subarray(begin + from, begin + to);
  if (codec === "int4")
    return Float32Array.from(
      { length: 2 * body.length },
      (_, i) => ((((body[i >> 1]! >> (4 * (i & 1))) & 15) ^ 8) - 8) / 7,
    );
  return Float32Array.from(body, (b) => ((b ^ 128) - 128) / 127);
}
