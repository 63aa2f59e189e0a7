// Registers of plans: lengths, and what follows from them; and the dimensions that follow them.

/** A dimension: a number, or `scale * register + add`, by default of register 0. */
export type Dim = number | readonly [scale: number, add: number, register?: number];

/**
 * A register: the range of a length, or how it follows from registers before it:
 * (product * [a] * [b] + of_a * [a] + of_b * [b] + add) / divisor, rounded down.
 */
export type Register =
  | readonly [low: number, high: number]
  | readonly [
      a: number,
      b: number,
      product: number,
      of_a: number,
      of_b: number,
      add: number,
      divisor: number,
    ];

/** The lowest and the highest value of a register. */
export type Range = readonly [low: number, high: number];

/** A dimension at values of the registers. */
export function dimAt(d: Dim, registers: readonly number[]): number {
  return typeof d === "number" ? d : d[0] * registers[d[2] ?? 0]! + d[1];
}

/** A shape at values of the registers. */
export function dimsAt(shape: readonly Dim[], registers: readonly number[]): number[] {
  return shape.map((d) => dimAt(d, registers));
}

/** Whether a dimension is a register itself, or a multiple of it. */
export function isLength(d: Dim | undefined, register: number): d is Exclude<Dim, number> {
  return typeof d === "object" && d[1] === 0 && (d[2] ?? 0) === register;
}

/** A register that follows from others, at their values. */
export function ruleAt(
  [a, b, product, ofA, ofB, add, divisor]: Exclude<Register, Range>,
  registers: readonly number[],
): number {
  const [x, y] = [registers[a]!, registers[b]!];
  return Math.floor((product * x * y + ofA * x + ofB * y + add) / divisor);
}
