// Loops that run too long.

import { ModelError } from "./errors.ts";

/** The error for loops that ran more iterations than a session allows. */
export function tooManyTrips(limit: bigint | number, where: string): ModelError {
  return new ModelError(
    `its loops ran ${limit} iterations`,
    where,
    "If that is intended, raise SessionOptions.max_loop_trips; otherwise check their conditions.",
  );
}
