// The change that a client sends.

import { normOf, type Schema, type Values } from "./codec.ts";

/** What training has changed, by name. */
export function difference(schema: Schema, after: Values, before: Values): Values {
  const from = (name: string) => (v: number, i: number) => v - before.get(name)![i]!;
  return new Map(Array.from(schema.shapes.keys(), (n) => [n, after.get(n)!.map(from(n))]));
}

/**
 * Scales changes to a norm, with what earlier updates have rounded away: it is a part of what
 * leaves.
 */
export function clip(changes: Values, left: Values, most: number): Values {
  const whole: Values = new Map();
  for (const [name, x] of changes)
    whole.set(
      name,
      x.map((v, i) => v + (left.get(name)?.[i] ?? 0)),
    );
  const factor = Math.min(1, most / normOf(whole));
  for (const x of whole.values()) for (let i = 0; i < x.length; i++) x[i]! *= factor;
  return whole;
}
