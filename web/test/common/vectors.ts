// Conformance vectors shared by Python and TypeScript: tests/conformance.
import { readFileSync } from "node:fs";

/**
 * The contents of tests/conformance/NAME.json, with abbreviated long values expanded (see
 * tests/conformance/vectors.py).
 */
export function vectors<T>(name: string): T {
  return expanded(
    JSON.parse(
      readFileSync(
        new URL(`../../tests/conformance/${name}.json`, `file://${process.cwd()}/test/`),
        "utf8",
      ),
    ),
  ) as T;
}

function expanded(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(expanded);
  if (typeof value !== "object" || value === null) return value;
  const object = value as Record<string, unknown>;
  if (object.$repeat)
    return (object.$repeat as [string, number])[0].repeat((object.$repeat as [string, number])[1]);
  if (object.$list)
    return Array.from({ length: (object.$list as [unknown, number])[1] }, () =>
      expanded((object.$list as [unknown, number])[0]),
    );
  const out = Object.fromEntries(
    Object.entries(object)
      .filter(([name]) => name !== "$long")
      .map(([name, x]) => [name, expanded(x)]),
  );
  if (object.$long) out["x".repeat(object.$long as number)] = 9;
  return out;
}
