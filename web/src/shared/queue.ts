// Values that one side puts and another one awaits.

/** Values in their order, for one reader. */
export class Queue<T> implements AsyncIterable<T> {
  private readonly values: T[] = [];
  private ended = false;
  private wake: () => void = () => undefined;

  /** Adds a value. */
  put(value: T): void {
    this.values.push(value);
    this.wake();
  }

  /** Says that no further one comes. */
  end(): void {
    this.ended = true;
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (;;) {
      while (this.values.length) yield this.values.shift()!;
      if (this.ended) return;
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }
}
