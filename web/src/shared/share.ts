// A worker's share of the processors: what the page tells it, and how it waits for its turn.

/** An engine tells its page of itself: its number, its memory, where its share is in it. */
export interface EngineShare {
  engine: number;
  memory: WebAssembly.Memory;
  /** Address of the word (ew_share in core/engine.h). */
  at: number;
  threads: number;
}

/** Tells the page of an engine, or that it is closed; set in a worker. */
export const shares: { report(share: EngineShare | { engine: number }): void } = {
  report: () => undefined,
};

/** Milliseconds that work without a share may go on after a wait, and that it waits at most. */
const RUNS_MS = 5;
const WAITS_MS = 95;

/**
 * Waits of work that has no share, while others of a higher priority have the processors. It gets
 * at least a twentieth of the time, however long they go on.
 */
export class Patience {
  private until = 0;

  /** Called between steps: blocks the thread until the word is no longer 0, or for a moment. */
  wait(word: Int32Array<SharedArrayBuffer>): void {
    if (performance.now() < this.until) return;
    Atomics.wait(word, 0, 0, WAITS_MS);
    this.until = performance.now() + RUNS_MS;
  }
}

/** The same without shared memory: by messages, which are received between pieces of work. */
export class Pace {
  private waits = false;
  private wake: (() => void) | undefined;
  private since = 0;

  /** Whether others have the processors. */
  set(waits: boolean): void {
    this.waits = waits;
    if (!waits) this.hurry();
  }

  /** Ends a wait: a call was aborted. */
  hurry(): void {
    this.wake?.();
  }

  /** Lets the event loop handle messages, then waits. */
  async breathe(): Promise<void> {
    await macrotask();
    await this.wait();
  }

  /**
   * Waits while others have the processors: at most 19 times as long as the work since the last
   * wait took.
   */
  async wait(): Promise<void> {
    if (this.waits) {
      const ms = ((performance.now() - this.since) * WAITS_MS) / RUNS_MS;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.min(ms, LONGEST_MS));
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = undefined;
    }
    this.since = performance.now();
  }
}

/** Milliseconds that a piece of work waits at most. */
const LONGEST_MS = 2000;

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
