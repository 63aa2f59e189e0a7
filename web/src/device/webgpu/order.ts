// Work in the order of calls. A device's calls return at once; most work is done within the call,
// and the rest (what waits for pipelines or for the GPU) keeps what follows waiting.

import { EdgewiseError, EngineError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";

/** A queue whose work runs within the call where nothing is waiting. */
export class Order {
  private last: Promise<void> | undefined;
  /** The first failure of waiting work since the last call of `thrown`. */
  private failure: unknown;
  /** How many there were, and the latest one. */
  failures = 0;
  private latest: unknown;

  /** Whether nothing is waiting. */
  get idle(): boolean {
    return this.last === undefined;
  }

  /** Whether work failed that nobody has heard of. */
  get failed(): boolean {
    return this.failure !== undefined;
  }

  /** Does the work now, or after what is waiting. Throws if it fails now. */
  add(work: () => void | Promise<void>): void {
    if (!this.last) {
      const more = work();
      if (more) this.wait(more);
    } else this.wait(this.last.then(work));
  }

  private wait(work: Promise<void>): void {
    const mine = work
      .catch((e: unknown) => this.fail(e))
      .then(() => {
        if (this.last === mine) this.last = undefined;
      });
    this.last = mine;
  }

  /** Notes a failure, which the next read reports. */
  fail(e: unknown): void {
    this.latest =
      e instanceof EdgewiseError ? e : new EngineError(`the GPU failed (${message(e)})`);
    this.failure ??= this.latest;
    this.failures++;
  }

  /** Throws the failure of earlier work, once. */
  thrown(): void {
    const { failure } = this;
    this.failure = undefined;
    if (failure) throw failure;
  }

  /** Throws the latest failure if there were more than so many, and leaves it to others. */
  since(failures: number): void {
    if (this.failures > failures) throw this.latest;
  }

  /** Resolves when nothing is waiting. */
  async settled(): Promise<void> {
    while (this.last) await this.last;
  }
}
