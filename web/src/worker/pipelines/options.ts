// Options of calls. logic/options.py reads their values.

import { check_known, read_flag, read_text, refused } from "../../logic/options.ts";

/** The options of a call, of which unknown ones are refused. All methods throw InputError. */
export class Options {
  constructor(
    readonly given: Readonly<Record<string, unknown>>,
    known: readonly string[],
  ) {
    check_known(Object.keys(given), known, "options");
  }

  /** Whether the caller gave an option. */
  has(name: string): boolean {
    return Object.hasOwn(this.given, name);
  }

  /** @throws InputError that shows an option */
  refuse(name: string, remedy: string): never {
    throw refused(name, this.given[name], remedy);
  }

  flag(name: string, otherwise: boolean): boolean {
    return read_flag(this.given, name, otherwise);
  }

  /** A string that may be left out or null. */
  optional(name: string): string | undefined {
    return read_text(this.given, name) ?? undefined;
  }
}
