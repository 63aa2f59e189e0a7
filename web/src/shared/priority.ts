// Priorities of calls, with the names of the Prioritized Task Scheduling API.

import { InputError } from "./errors.ts";

/** The priorities, the highest first. */
export const PRIORITIES = ["user-blocking", "user-visible", "background"] as const;

/**
 * How soon calls get processors, by the names of the Prioritized Task Scheduling API:
 * `user-blocking` is what the user waits for, `user-visible` the rest of what the user sees, and
 * `background` what may wait.
 */
export type Priority = (typeof PRIORITIES)[number];

/** The place of a priority among {@link PRIORITIES}. */
export type Level = 0 | 1 | 2;

/** That of "user-visible", the default. */
export const USUAL: Level = 1;

/** That of "background". */
export const BACKGROUND: Level = 2;

/**
 * The level of a priority; undefined and null stand for none.
 * @throws InputError if there is no such priority
 */
export function levelOf<T extends Level | undefined>(priority: unknown, none: T): Level | T {
  if ((priority ?? undefined) === undefined) return none;
  const level = PRIORITIES.indexOf(priority as Priority);
  if (level >= 0) return level as Level;
  const is = typeof priority === "string" ? `'${priority.slice(0, 100)}'` : `a ${typeof priority}`;
  throw new InputError(
    `it is ${is}`,
    "options.priority",
    `Give ${PRIORITIES.map((one) => `'${one}'`).join(", ")}.`,
  );
}
