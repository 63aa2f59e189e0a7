// Enlarging the planes that models compute, as torch.nn.functional.interpolate with
// align_corners=False and without antialias: in Python the engine's Resize does it.

/** For each position of the result, `count` positions of the source and their weights. */
export interface Taps {
  at: Int32Array;
  weights: Float32Array;
  count: number;
}

/** Pixels to the left and to the right of a position, and their weights. */
const KERNELS: Record<"linear" | "cubic", (rest: number) => number[]> = {
  linear: (t) => [1 - t, t],
  cubic: (t) => {
    const a = -0.75;
    const near = (x: number) => ((a + 2) * x - (a + 3)) * x * x + 1;
    const far = (x: number) => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return [far(t + 1), near(t), near(1 - t), far(2 - t)];
  },
};

/** The positions that each of `to` positions is computed from. */
export function taps(from: number, to: number, kind: "linear" | "cubic"): Taps {
  const count = kind === "linear" ? 2 : 4;
  const at = new Int32Array(to * count);
  const weights = new Float32Array(to * count);
  for (let i = 0; i < to; i++) {
    let x = ((i + 0.5) * from) / to - 0.5;
    if (kind === "linear") x = Math.max(x, 0);
    const low = Math.floor(x);
    const values = KERNELS[kind](x - low);
    for (let k = 0; k < count; k++) {
      at[i * count + k] = Math.min(Math.max(low + k - (count / 2 - 1), 0), from - 1);
      weights[i * count + k] = values[k]!;
    }
  }
  return { at, weights, count };
}

/** Enlarges planes of one size to another, one after the other. */
export class Interpolation {
  private readonly rows: Taps;
  private readonly columns: Taps;
  private readonly wide: Float32Array;

  /** `kind`: "linear" is torch's bilinear, "cubic" its bicubic. */
  constructor(
    kind: "linear" | "cubic",
    private readonly height: number,
    private readonly width: number,
    private readonly outHeight: number,
    private readonly outWidth: number,
  ) {
    this.rows = taps(height, outHeight, kind);
    this.columns = taps(width, outWidth, kind);
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
