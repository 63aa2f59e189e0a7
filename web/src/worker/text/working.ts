// Work that may never end and that nothing can interrupt, such as a backtracking matcher. The page
// is told when it begins and when it has ended, and ends the worker if it takes too long.

/** Tells the page what is being worked at; null: nothing of that kind any more. */
export const working = { report: (_what: string | null): void => undefined };

/** Does some work, and tells the page of it. */
export function reported<T>(what: string, work: () => T): T {
  working.report(what);
  try {
    return work();
  } finally {
    working.report(null);
  }
}
