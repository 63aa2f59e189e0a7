// Time and surroundings of a hybrid, which tests replace.

import { sleep } from "../shared/abort.ts";

/** Where the time comes from. */
export interface Clock {
  /** Milliseconds. */
  now(): number;
  /** Waits. @throws Aborted when the signal fires */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Milliseconds of a browser's timers at most: longer ones, such as Infinity, fire at once. */
export const LONGEST = 2 ** 31 - 1;

/** The page's own. */
export const realClock: Clock = {
  now: () => performance.now(),
  sleep: (ms, signal) => sleep(Math.min(ms, LONGEST), signal),
};
