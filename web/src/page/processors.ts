// Divides the processors among the workers of a page that compute at the same time.

import { BACKGROUND, type Level } from "../shared/priority.ts";

/** A worker that computes: the priority of its most urgent call, and the threads that it has. */
export interface Claim {
  level: Level;
  threads: number;
}

/**
 * The threads of each worker that may run, so that there are no more than processors. Those of the
 * highest priority have equal parts, one thread at least; the others what is left, which may be
 * none. Work in the background leaves a processor to the page.
 */
export function divided(claims: readonly Claim[], processors: number): number[] {
  const shares = claims.map(() => 0);
  let left = processors;
  for (const [n, level] of [...new Set(claims.map((one) => one.level))].sort().entries()) {
    const least = n ? 0 : 1;
    if (level === BACKGROUND) left = Math.max(least, left - 1);
    // those that want least first, so that the others have what these do not need
    const group = claims.flatMap((one, i) => (one.level === level ? [i] : []));
    group.sort((a, b) => claims[a]!.threads - claims[b]!.threads);
    group.forEach((i, before) => {
      const part = Math.floor(left / (group.length - before));
      shares[i] = Math.min(claims[i]!.threads, Math.max(part, least));
      left = Math.max(0, left - shares[i]!);
    });
  }
  return shares;
}
