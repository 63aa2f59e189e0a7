// Stopping criteria of generations, as in transformers.js.

import { INTERRUPTED } from "../protocol/generation.ts";
import { Aborted, InputError } from "../shared/errors.ts";

/**
 * Ends a generation from outside, with the tokens so far: `interrupt()`. Pass it as
 * `stopping_criteria`; after `reset()` it can be used again.
 */
export class InterruptableStoppingCriteria {
  /** Whether it ends generations. */
  interrupted = false;
  private readonly listeners = new Set<() => void>();

  /** Ends the generations that it was passed to. */
  interrupt(): void {
    this.interrupted = true;
    for (const listener of this.listeners) listener();
  }

  /** Lets generations go on from now on. */
  reset(): void {
    this.interrupted = false;
  }

  /**
   * Calls `listener` when it interrupts; returns what ends that.
   * @internal
   */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}

/** What `stopping_criteria` takes. */
export type StoppingCriteria =
  | InterruptableStoppingCriteria
  | readonly InterruptableStoppingCriteria[];

/**
 * Runs a generation with a signal that fires with the caller's, or when a criterion interrupts.
 * @throws InputError if a criterion is another one
 */
export async function interruptible<T>(
  given: unknown,
  signal: AbortSignal | undefined,
  run: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  const list = (given ?? undefined) === undefined ? [] : [given].flat();
  for (const one of list)
    if (!(one instanceof InterruptableStoppingCriteria))
      throw new InputError(
        "it is no InterruptableStoppingCriteria",
        "options.stopping_criteria",
        "Others cannot be sent to the worker: use the fields of GenerationConfig.",
      );
  const criteria = list as InterruptableStoppingCriteria[];
  if (!criteria.length) return run(signal);
  const either = new AbortController();
  const follow = (): void => either.abort(signal?.reason);
  const interrupt = (): void =>
    either.abort(new Aborted(INTERRUPTED, "generate", "Call its reset()."));
  const ends = criteria.map((one) => one.listen(interrupt));
  signal?.addEventListener("abort", follow, { once: true });
  try {
    if (signal?.aborted) follow();
    const answer = run(either.signal);
    if (criteria.some((one) => one.interrupted)) interrupt(); // the worker answers this, too
    return await answer;
  } finally {
    for (const end of ends) end();
    signal?.removeEventListener("abort", follow);
  }
}
