// Enlarging the planes that models compute, as torch.nn.functional.interpolate with
// align_corners=False and without antialias: in Python the engine's Resize does it. And resizing
// pictures with filters that the engine does not have.

import { type Filter, type Taps, taps } from "../../../logic/images/taps.ts";

/** Enlarges planes of one size to another, one after the other. */
export class Interpolation {
  private readonly rows: Taps;
  private readonly columns: Taps;
  private readonly wide: Float32Array;

  /** `kind`: "linear" is torch's bilinear, "cubic" its bicubic; or rows and columns themselves. */
  constructor(
    kind: Filter | readonly [rows: Taps, columns: Taps],
    private readonly height: number,
    private readonly width: number,
    private readonly outHeight: number,
    private readonly outWidth: number,
  ) {
    const named = typeof kind === "string";
    this.rows = named ? taps(kind, height, outHeight) : kind[0];
    this.columns = named ? taps(kind, width, outWidth) : kind[1];
    this.wide = new Float32Array(height * outWidth);
  }

  /**
   * Enlarges one plane.
   * @param source values, [height, width] from `start` on
   * @param out [outHeight, outWidth]
   */
  run(source: ArrayLike<number>, start: number, out: Float32Array): void {
    const { rows, columns, wide, width, outWidth } = this;
    for (let y = 0; y < this.height; y++)
      for (let x = 0; x < outWidth; x++) {
        let sum = 0;
        for (let k = x * columns.count; k < (x + 1) * columns.count; k++)
          sum += columns.weights[k]! * source[start + y * width + columns.at[k]!]!;
        wide[y * outWidth + x] = sum;
      }
    out.fill(0);
    for (let y = 0; y < this.outHeight; y++)
      for (let k = y * rows.count; k < (y + 1) * rows.count; k++) {
        const from = rows.at[k]! * outWidth;
        const weight = rows.weights[k]!;
        for (let x = 0; x < outWidth; x++) out[y * outWidth + x]! += weight * wide[from + x]!;
      }
  }
}

/**
 * A picture of bytes at another size.
 * @param pixels [height, width, 3]
 * @returns [outHeight, outWidth, 3]
 */
export function resampled(
  kind: Filter,
  pixels: Uint8Array,
  [height, width]: readonly [number, number],
  [outHeight, outWidth]: readonly [number, number],
): Uint8Array<ArrayBuffer> {
  const resize = new Interpolation(kind, height, width, outHeight, outWidth);
  const [plane, large] = [new Float32Array(height * width), new Float32Array(outHeight * outWidth)];
  const made = new Uint8Array(3 * large.length);
  for (let c = 0; c < 3; c++) {
    for (let i = 0; i < plane.length; i++) plane[i] = pixels[3 * i + c]!;
    resize.run(plane, 0, large);
    for (let i = 0; i < large.length; i++) made[3 * i + c] = Math.round(large[i]!);
  }
  return made;
}
