// Parts of pictures between pixels, as the engine's GridSample takes them in Python.

/** RGB, 3 bytes a pixel, row by row. */
export interface Pixels {
  height: number;
  width: number;
  pixels: Uint8Array<ArrayBuffer>;
}

/** Weights of the four pixels around a place: a cubic with a = -0.75, as of OpenCV. */
function weightsOf(t: number, out: Float64Array): void {
  const a = -0.75;
  const far = (x: number): number => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  const near = (x: number): number => ((a + 2) * x - (a + 3)) * x * x + 1;
  out[0] = far(t + 1);
  out[1] = near(t);
  out[2] = near(1 - t);
  out[3] = far(2 - t);
}

/**
 * A part of a picture at another size. Outside of the picture its edge continues.
 * @param matrix projects the unit square to the picture (logic/ocr/shapes, unit_to_quad)
 */
export function sampled(
  { height: rows, width: columns, pixels: source }: Pixels,
  matrix: readonly number[],
  height: number,
  width: number,
): Pixels {
  const [a, b, c, d, e, f, g, h] = matrix as [
    ...[number, number, number, number],
    ...[number, number, number, number],
  ];
  const pixels = new Uint8Array(3 * height * width);
  const [across, down] = [new Float64Array(4), new Float64Array(4)];
  const inside = (i: number, size: number): number => Math.min(Math.max(i, 0), size - 1);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [u, v] = [x / width, y / height];
      const w = g * u + h * v + 1;
      const [px, py] = [(a * u + b * v + c) / w, (d * u + e * v + f) / w];
      const [left, top] = [Math.floor(px), Math.floor(py)];
      weightsOf(px - left, across);
      weightsOf(py - top, down);
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0;
        for (let j = 0; j < 4; j++) {
          const line = inside(top + j - 1, rows) * columns;
          for (let i = 0; i < 4; i++)
            sum +=
              down[j]! * across[i]! * source[3 * (line + inside(left + i - 1, columns)) + channel]!;
        }
        pixels[3 * (y * width + x) + channel] = Math.min(Math.max(Math.round(sum), 0), 255);
      }
    }
  return { height, width, pixels };
}
