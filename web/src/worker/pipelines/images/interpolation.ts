// Enlarging the planes that models compute, as torch.nn.functional.interpolate with
// align_corners=False and without antialias: in Python the engine's Resize does it. And resizing
// pictures with filters that the engine does not have.

import { type Filter, type Taps, taps } from "../../../logic/images/taps.ts";

/** Rows, or columns, of a source, and what those of a result are computed from. */
export interface Rows {
  size: number;
  taps: Taps;
}

/** Resizes planes of one size to another, one after the other. */
export class Interpolation {
  private readonly rows: Taps;
  private readonly columns: Taps;
  private readonly height: number;
  private readonly width: number;
  private readonly outHeight: number;
  private readonly outWidth: number;
  private readonly wide: Float32Array;

  constructor(rows: Rows, columns: Rows) {
    [this.rows, this.columns] = [rows.taps, columns.taps];
    [this.height, this.width] = [rows.size, columns.size];
    this.outHeight = this.rows.at.length / this.rows.count;
    this.outWidth = this.columns.at.length / this.columns.count;
    this.wide = new Float32Array(this.height * this.outWidth);
  }

  /** `kind`: "linear" is torch's bilinear, "cubic" its bicubic. */
  static of(
    kind: Filter,
    height: number,
    width: number,
    outHeight: number,
    outWidth: number,
  ): Interpolation {
    return new Interpolation(
      { size: height, taps: taps(kind, height, outHeight) },
      { size: width, taps: taps(kind, width, outWidth) },
    );
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
export function resampled(rows: Rows, columns: Rows, pixels: Uint8Array): Uint8Array<ArrayBuffer> {
  const resize = new Interpolation(rows, columns);
  const [outHeight, outWidth] = [rows, columns].map(({ taps: t }) => t.at.length / t.count);
  const plane = new Float32Array(rows.size * columns.size);
  const large = new Float32Array(outHeight! * outWidth!);
  const made = new Uint8Array(3 * large.length);
  for (let c = 0; c < 3; c++) {
    for (let i = 0; i < plane.length; i++) plane[i] = pixels[3 * i + c]!;
    resize.run(plane, 0, large);
    for (let i = 0; i < large.length; i++) made[3 * i + c] = Math.round(large[i]!);
  }
  return made;
}
