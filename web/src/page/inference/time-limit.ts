import { timerMs } from "../../shared/abort.ts";
import { Aborted } from "../../shared/errors.ts";

/**
 * The time that a run of a session may take (`SessionOptions.max_run_seconds`). The worker checks
 * it between plans. The page enforces it here and can also end a run within a plan.
 */
export class TimeLimit {
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly seconds: number | undefined) {}

  /**
   * Makes a call with a signal that fires with the caller's, or when the call has taken too long.
   * Calls queue in the worker, so the time counts from the end of the call before.
   */
  async within<T>(
    signal: AbortSignal | undefined,
    call: (signal: AbortSignal | undefined) => Promise<T>,
  ): Promise<T> {
    const { seconds, last } = this;
    if (seconds === undefined) return call(signal);
    const either = new AbortController();
    const stop = () => either.abort(signal?.reason);
    signal?.addEventListener("abort", stop, { once: true });
    const answer = call(either.signal);
    let timer: ReturnType<typeof setTimeout> | undefined;
    let settled = false;
    this.last = answer.then(
      () => undefined,
      () => undefined,
    );
    void last.then(() => {
      if (settled) return;
      const late = new Aborted(
        `the run took longer than ${seconds} s`,
        "InferenceSession",
        "Raise SessionOptions.max_run_seconds, or check what makes it long.",
      );
      timer = setTimeout(() => either.abort(late), timerMs(1000 * seconds));
    });
    try {
      return await answer;
    } finally {
      settled = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }
}
