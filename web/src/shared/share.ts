// A worker's share of the processors: what the page tells it, and how it waits for its turn.

/** What the page writes in the cell of a worker while no other one computes. */
export const ALL = 0x7fffffff;

/**
 * What the page and this worker know of each other. An isolated page and its worker share `cell`,
 * which has the number of threads that may run; `report` tells the page how many threads the
 * worker's largest engine has.
 */
export const shares: {
  cell: Int32Array<SharedArrayBuffer> | undefined;
  report(threads: number): void;
} = { cell: undefined, report: () => undefined };

/** Milliseconds that work without a share may go on after a wait, and that it waits at most. */
const RUNS_MS = 5;
const WAITS_MS = 95;

/** Steps of a plan between two looks at the cell, at most, and while no other worker computes. */
const MAX_STEPS = 128;
/** Milliseconds that lie between two looks at least, and at most where the steps allow it. */
const OFTEN_MS = 0.5;
const SELDOM_MS = 2;

/**
 * The share of an engine. Work that has none waits before runs and between steps, while others of a
 * higher priority have the processors, but gets at least a twentieth of the time, however long they
 * go on. It looks often: a step that takes long is the most that it works on between two waits.
 */
export class Share {
  private now = ALL;
  private steps = 0;
  /** Steps until the next look. Each run begins with 1: its steps may be longer than the last's. */
  private each = 1;
  private looked = 0;
  private until = 0;

  /** @param set sets how many threads run, and after how many steps a run returns */
  constructor(private readonly set: (threads: number, steps: number) => void) {}

  /** Called before a run: waits, if it has no share. */
  begin(): void {
    const { cell } = shares;
    if (!cell) return;
    this.each = 1;
    if (Atomics.load(cell, 0) === ALL) this.obey(ALL);
    else this.look(cell, performance.now());
  }

  /** Called where a run returned: waits, if it has no share. */
  turn(): void {
    const now = performance.now();
    const ms = now - this.looked;
    if (ms > SELDOM_MS) this.each = Math.max(1, this.each >> 1);
    else if (ms < OFTEN_MS) this.each = Math.min(MAX_STEPS, 2 * this.each);
    this.look(shares.cell!, now);
  }

  private look(cell: Int32Array<SharedArrayBuffer>, now: number): void {
    this.looked = now;
    if (Atomics.load(cell, 0) === 0 && now >= this.until) {
      Atomics.wait(cell, 0, 0, WAITS_MS);
      this.looked = performance.now();
      this.until = this.looked + RUNS_MS;
    }
    this.obey(Atomics.load(cell, 0));
  }

  private obey(share: number): void {
    const steps = share === ALL ? MAX_STEPS : this.each;
    if (share === this.now && steps === this.steps) return;
    this.now = share;
    this.steps = steps;
    this.set(Math.max(1, share), steps);
  }
}

/** The same without shared memory: by messages, which are received between pieces of work. */
export class Pace {
  private waits = false;
  private readonly wakers = new Set<() => void>();
  private since = 0;

  /** A call begins, and there was none: the time until now was no work. */
  begin(): void {
    this.since = performance.now();
  }

  /** Whether others have the processors. */
  set(waits: boolean): void {
    this.waits = waits;
    if (!waits) this.hurry();
  }

  /** Ends a wait: a call was aborted. */
  hurry(): void {
    for (const wake of this.wakers) wake();
  }

  /** Lets the event loop handle messages, then waits. */
  async breathe(): Promise<void> {
    await macrotask();
    await this.wait();
  }

  /**
   * Waits while others have the processors: at most 19 times as long as the work since the last
   * wait, or since the call began, took.
   */
  async wait(): Promise<void> {
    if (this.waits) {
      const ms = ((performance.now() - this.since) * WAITS_MS) / RUNS_MS;
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          clearTimeout(timer);
          this.wakers.delete(wake);
          resolve();
        };
        const timer = setTimeout(wake, Math.min(ms, MAX_WAIT_MS));
        this.wakers.add(wake);
      });
    }
    this.since = performance.now();
  }
}

/** Milliseconds that a piece of work waits at most. */
const MAX_WAIT_MS = 2000;

/** The pace of this thread. */
export const pace = new Pace();

/** Waits for one turn of the event loop. Timers would take at least 4 ms, a message does not. */
function macrotask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
