// Registers of plans: lengths, and what follows from them; and the dimensions that follow them.

import { MAX_LENGTH, MAX_RANK, MAX_REGISTERS } from "../../gen/manifest.ts";
import type { Checker, Json } from "../package/checker.ts";

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

/** Whether a dimension is a register itself. */
export function isLength(d: Dim, register: number): boolean {
  return typeof d === "object" && d[0] === 1 && d[1] === 0 && (d[2] ?? 0) === register;
}

/** A register that follows from others, at their values. */
export function ruleAt(
  [a, b, product, ofA, ofB, add, divisor]: Exclude<Register, Range>,
  registers: readonly number[],
): number {
  const [x, y] = [registers[a]!, registers[b]!];
  return Math.floor((product * x * y + ofA * x + ofB * y + add) / divisor);
}

/** Parses the registers of a plan; `ranges` are the lowest and the highest value of each. */
export function parseRegisters(
  c: Checker,
  json: Json | undefined,
  at: string,
  register: Range | undefined,
): { registers: Register[]; ranges: Range[] } {
  const registers: Register[] = [];
  const ranges: Range[] = register ? [register] : [];
  if (json === undefined) return { registers, ranges };
  if (!register) c.fail(`${at}.registers`, "needs a register");
  for (const [i, entry] of c.list(json, `${at}.registers`, MAX_REGISTERS).entries()) {
    const path = `${at}.registers[${i}]`;
    if (!Array.isArray(entry) || entry.length !== 7) {
      const range = parseRange(c, entry, path);
      registers.push(range);
      ranges.push(range);
      continue;
    }
    const last = ranges.length - 1;
    const least = [0, 0, 0, 0, 0, -MAX_LENGTH, 1];
    const rule = entry.map((x, k) =>
      c.integer(x, `${path}[${k}]`, least[k]!, k < 2 ? last : MAX_LENGTH),
    ) as unknown as Exclude<Register, Range>;
    const [low, high] = [0, 1].map((end) =>
      ruleAt(
        rule,
        ranges.map((r) => r[end as 0 | 1]),
      ),
    );
    if (low! < 0 || high! > Number.MAX_SAFE_INTEGER) c.fail(path, "has values out of range");
    registers.push(rule);
    ranges.push([low!, high!]);
  }
  return { registers, ranges };
}

/**
 * Parses the range of a plan's register.
 * @throws PackageError
 */
export function parseRange(c: Checker, json: Json | undefined, at: string): Range {
  const range = c.tuple(json, at, 2);
  const low = c.integer(range[0], `${at}[0]`, 0, MAX_LENGTH);
  return [low, c.integer(range[1], `${at}[1]`, low, MAX_LENGTH)];
}

/**
 * Parses a shape; with registers, dimensions may be [scale, add] or [scale, add, register].
 * @throws PackageError
 */
export function parseDims(
  c: Checker,
  json: Json | undefined,
  at: string,
  ranges: readonly Range[],
): Dim[] {
  return c.list(json, at, MAX_RANK).map((d, i): Dim => {
    const path = `${at}[${i}]`;
    if (!ranges.length || !Array.isArray(d)) return c.integer(d, path);
    const pair = c.tuple(d.length === 3 ? d.slice(0, 2) : d, path, 2);
    const k = d.length === 3 ? c.integer(d[2]!, `${path}[2]`, 1, ranges.length - 1) : 0;
    const scale = c.integer(pair[0], `${path}[0]`, 1, MAX_LENGTH);
    const add = c.integer(pair[1], `${path}[1]`, -MAX_LENGTH, MAX_LENGTH);
    if (scale * ranges[k]![0] + add < 0) c.fail(path, "is negative at the register's lowest value");
    return k ? [scale, add, k] : [scale, add];
  });
}
