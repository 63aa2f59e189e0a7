// The change that a client sends.

import { InputError } from "../../shared/errors.ts";
import { normOf, type Schema, sha256, type Values } from "./codec.ts";
import type { Message } from "./connection.ts";
import { SETTINGS } from "./trainers.ts";

/** What tells an update of an audit from others of its round: a server may give other texts. */
export async function auditKey(audit: unknown): Promise<string> {
  if (!audit) return "";
  return ` audit ${await sha256(new TextEncoder().encode(JSON.stringify(audit)))}`;
}

/**
 * The settings of a task, with its part and audit.
 * @param known of SETTINGS those that the trainer applies
 * @throws InputError if there are others
 */
export function configOf(
  { config, part, audit }: Message,
  known: readonly string[] = [],
): Record<string, unknown> {
  const all: Record<string, unknown> = { ...(config as object), part, audit };
  for (const name of SETTINGS)
    if (all[name] && !known.includes(name))
      throw new InputError("this page does not train with it", `config '${name}'`);
  return all;
}

/** The public texts of an audit. @throws InputError if it has none */
export function textsOf(audit: unknown): string[] {
  const { texts } = audit as { texts?: unknown };
  if (!Array.isArray(texts) || !texts.length || texts.some((text) => typeof text !== "string"))
    throw new InputError("it has no texts", "task 'audit'");
  return texts;
}

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
