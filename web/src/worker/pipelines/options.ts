// Options of calls: each is checked, and unknown ones are refused.

import { InputError } from "../../shared/errors.ts";

/** Reads the options of a call. All methods throw InputError. */
export class Options {
  constructor(
    readonly given: Readonly<Record<string, unknown>>,
    known: readonly string[],
  ) {
    for (const name of Object.keys(given))
      if (!known.includes(name))
        throw new InputError(
          `there is no option '${name}'`,
          "options",
          known.length ? `There are: ${known.join(", ")}.` : "This pipeline has none.",
        );
  }

  /** Whether the caller gave an option. */
  has(name: string): boolean {
    return Object.hasOwn(this.given, name);
  }

  private refuse(name: string, remedy: string): never {
    const value = this.given[name];
    const shown = typeof value === "string" ? `'${value.slice(0, 100)}'` : String(value);
    throw new InputError(`it is ${shown}`, `options.${name}`, remedy);
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.given[name] ?? otherwise;
    return typeof value === "boolean" ? value : this.refuse(name, "Give true or false.");
  }

  /** A number from 0 to 1. */
  part(name: string, otherwise: number): number {
    const value = this.given[name] ?? otherwise;
    return typeof value === "number" && value >= 0 && value <= 1
      ? value
      : this.refuse(name, "Give a number from 0 to 1.");
  }

  text(name: string, otherwise: string): string {
    const value = this.given[name] ?? otherwise;
    return typeof value === "string" ? value : this.refuse(name, "Give a string.");
  }

  /** A string that may be left out or null. */
  optional(name: string): string | undefined {
    const value = this.given[name] ?? undefined;
    return value === undefined || typeof value === "string"
      ? value
      : this.refuse(name, "Give a string.");
  }

  /** A finite number; null stands for none. */
  real(name: string, otherwise: number | null): number | null {
    const value = this.given[name] ?? otherwise;
    return value === null || Number.isFinite(value)
      ? (value as number | null)
      : this.refuse(name, "Give a number.");
  }

  /** Token ids. */
  ids(name: string): number[] {
    const value = this.given[name] ?? [];
    const list =
      Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as []) : [NaN];
    return list.every((id) => Number.isInteger(id) && (id as number) >= 0)
      ? list
      : this.refuse(name, "Give a list of token ids.");
  }

  /** One of several names. */
  choice<T extends string>(name: string, otherwise: T, among: readonly T[]): T {
    const value = this.given[name] ?? otherwise;
    return among.includes(value as T)
      ? (value as T)
      : this.refuse(name, `Give one of: ${among.join(", ")}.`);
  }

  /** An integer of at least `least`; null stands for `none`. */
  count<N>(name: string, otherwise: number | N, none: N, least = 1): number | N {
    const value = this.has(name) ? this.given[name] : otherwise;
    if (value === null || value === none) return none;
    return Number.isInteger(value) && (value as number) >= least
      ? (value as number)
      : this.refuse(name, `Give an integer of ${least} or more.`);
  }

  /** A number within a range; Infinity only where the range has it. */
  number(name: string, otherwise: number, low: number, high: number): number {
    const value = this.given[name] ?? otherwise;
    return typeof value === "number" && value >= low && value <= high
      ? value
      : this.refuse(name, `Give a number from ${low} to ${high}.`);
  }

  /** Lists of numbers by names. */
  vectors(name: string): Map<string, number[]> {
    const found = Object.entries(this.given[name] ?? {});
    for (const [, list] of found)
      if (!Array.isArray(list) || !list.length || !list.every((x) => typeof x === "number"))
        this.refuse(name, "Give a list of numbers for each name.");
    return new Map(found as [string, number[]][]);
  }

  /** A list whose items pass a check; undefined if there is none. */
  list<T>(name: string, check: (item: unknown) => item is T, remedy: string): T[] | undefined {
    const value = this.given[name] ?? undefined;
    if (value === undefined) return undefined;
    return Array.isArray(value) && value.every(check) ? value : this.refuse(name, remedy);
  }

  /** A list of strings, or one string. */
  texts(name: string, otherwise: string[] | undefined): string[] | undefined {
    const value = this.given[name] ?? otherwise;
    if (value === undefined) return undefined;
    const list: unknown[] = Array.isArray(value) ? value : [value];
    return list.every((x): x is string => typeof x === "string")
      ? list
      : this.refuse(name, "Give a list of strings.");
  }
}
