// Options of calls: each is checked, and unknown ones are refused.

import { InputError } from "../../shared/errors.ts";
import { meant } from "../../shared/words.ts";

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
          known.length
            ? meant(name.slice(0, 100), known, `There are: ${known.join(", ")}.`)
            : "This pipeline has none.",
        );
  }

  /** Whether the caller gave an option. */
  has(name: string): boolean {
    return Object.hasOwn(this.given, name);
  }

  /** @throws InputError that shows an option */
  refuse(name: string, remedy: string): never {
    const value = this.given[name];
    const shown = typeof value === "string" ? `'${value.slice(0, 100)}'` : String(value);
    throw new InputError(`it is ${shown}`, `options.${name}`, remedy);
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.given[name] ?? otherwise;
    return typeof value === "boolean" ? value : this.refuse(name, "Give true or false.");
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
