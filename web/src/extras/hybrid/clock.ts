// Time and surroundings of a hybrid, which tests replace.

import { sleep } from "../../shared/abort.ts";

/** Where the time comes from. */
export interface Clock {
  /** Milliseconds. */
  now(): number;
  /** Waits. @throws Aborted when the signal fires */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The page's own. */
export const realClock: Clock = {
  now: () => performance.now(),
  sleep,
};
