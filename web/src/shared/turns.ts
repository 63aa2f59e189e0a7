// Tasks that cannot run at the same time.

import { aborted } from "./abort.ts";

/** How many later tasks may overtake one: so each has its turn, whatever follows. */
const PATIENCE = 8;

/** The place of a task after all others, those that come later, too. */
export const LAST = 9;

interface Waiting {
  order: number;
  overtaken: number;
  start(): void;
}

/** Tasks that run one after the other: of those that wait, the earliest of the least `order`. */
export class Turns {
  private readonly waiting: Waiting[] = [];
  private busy = false;

  /** Whether a task would run at once. */
  get idle(): boolean {
    return !this.busy;
  }

  /**
   * Runs a task in its turn; at once if there is no other. A failed task does not affect the next.
   * @param signal ends the wait
   * @returns the task's result
   * @throws Aborted if the signal fires before its turn
   */
  take<T>(work: () => T | Promise<T>, order = 0, signal?: AbortSignal): Promise<T> {
    if (!this.busy) return this.run(work);
    return new Promise((resolve, reject) => {
      const start = (): void => {
        signal?.removeEventListener("abort", stop);
        resolve(this.run(work));
      };
      const waits = { order, overtaken: 0, start };
      const stop = (): void => {
        this.waiting.splice(this.waiting.indexOf(waits), 1);
        reject(aborted(signal));
      };
      if (signal?.aborted) return reject(aborted(signal));
      signal?.addEventListener("abort", stop, { once: true });
      this.waiting.push(waits);
    });
  }

  /** The least place behind the tasks that wait now; those of `LAST` do not count. */
  get behind(): number {
    return Math.max(...this.waiting.map(({ order }) => order).filter((order) => order < LAST));
  }

  private async run<T>(work: () => T | Promise<T>): Promise<T> {
    this.busy = true;
    try {
      return await work();
    } finally {
      this.busy = false;
      this.next();
    }
  }

  private next(): void {
    const { waiting } = this;
    if (!waiting.length) return;
    let at = waiting.findIndex(({ overtaken }) => overtaken >= PATIENCE);
    if (at < 0) {
      at = 0;
      for (let i = 1; i < waiting.length; i++) if (waiting[i]!.order < waiting[at]!.order) at = i;
    }
    for (let i = 0; i < at; i++) waiting[i]!.overtaken++;
    const [first] = waiting.splice(at, 1);
    first!.start();
  }
}
