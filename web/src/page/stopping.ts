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

/** Several criteria; any of them ends a generation. */
export class StoppingCriteriaList {
  /** The criteria. */
  readonly criteria: InterruptableStoppingCriteria[] = [];

  /** Adds a criterion. */
  push(item: InterruptableStoppingCriteria): void {
    this.criteria.push(item);
  }

  /** Adds criteria. */
  extend(items: StoppingCriteria): void {
    this.criteria.push(...(listed(items) as InterruptableStoppingCriteria[]));
  }

  [Symbol.iterator](): ArrayIterator<InterruptableStoppingCriteria> {
    return this.criteria.values();
  }
}

/** What `stopping_criteria` takes. */
export type StoppingCriteria =
  | InterruptableStoppingCriteria
  | StoppingCriteriaList
  | readonly InterruptableStoppingCriteria[];

const listed = (given: unknown): unknown[] =>
  given instanceof StoppingCriteriaList ? given.criteria : [given].flat();

/**
 * Runs a generation with a signal that fires when a criterion interrupts.
 * @throws InputError if a criterion is another one
 */
export async function interruptible<T>(
  given: unknown,
  run: (interrupt: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  const list = (given ?? undefined) === undefined ? [] : listed(given);
  for (const one of list)
    if (!(one instanceof InterruptableStoppingCriteria))
      throw new InputError(
        "it is no InterruptableStoppingCriteria",
        "options.stopping_criteria",
        "Others cannot be sent to the worker: use the fields of GenerationConfig.",
      );
  const criteria = list as InterruptableStoppingCriteria[];
  if (!criteria.length) return run(undefined);
  const ending = new AbortController();
  const interrupt = (): void =>
    ending.abort(new Aborted(INTERRUPTED, "generate", "Call its reset()."));
  const ends = criteria.map((one) => one.listen(interrupt));
  try {
    const answer = run(ending.signal);
    if (criteria.some((one) => one.interrupted)) interrupt(); // the worker answers this, too
    return await answer;
  } finally {
    for (const end of ends) end();
  }
}
