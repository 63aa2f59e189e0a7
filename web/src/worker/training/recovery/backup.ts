// Copies of a training's states in the worker's memory, from which it goes on after its GPU was
// lost.

import type { StateInfo } from "../../package/manifest.ts";
import type { Session } from "../session.ts";

/** Bytes of states, beyond which there are no copies. */
export const MAX = 2 ** 28;
/** How often work is tried on another device. */
export const TRIES = 3;
/** Bytes that are read at once, while steps go on: the GPU has them twice meanwhile. */
const TOGETHER = 2 ** 26;
/** Least time between two copies, in milliseconds, and how many times as long as a copy takes. */
const INTERVAL = 5000;
const TIMES = 20;

/** The latest copy of states on a GPU. `Mark`: what it says besides. */
export class Backup<Mark> {
  /** The values by state. */
  last: { values: Map<string, Uint8Array<ArrayBuffer>>; mark: Mark } | undefined;
  private due = 0;
  private reading: Promise<void> | undefined;
  private failure: unknown;

  /**
   * @param session whose states
   * @param states those to copy
   */
  constructor(
    private readonly session: Session,
    private readonly states: () => StateInfo[],
  ) {}

  /** Whether copies are made: the session is on a GPU, and its states are few. */
  get useful(): boolean {
    const bytes = this.states().reduce((sum, state) => sum + state.bytes, 0);
    return this.session.replaceable && bytes <= MAX;
  }

  /**
   * Begins to copy the states, if that is due. Where they are few, steps go on meanwhile.
   * @param mark what to say of them
   * @param now whether it is due
   */
  async keep(mark: Mark, now = performance.now() >= this.due): Promise<void> {
    if (this.reading || !now || !this.useful) return;
    const started = performance.now();
    const states = this.states();
    const together = states.reduce((sum, { bytes }) => sum + bytes, 0) <= TOGETHER;
    const done = () => {
      const at = performance.now();
      this.due = at + Math.max(INTERVAL, TIMES * (at - started));
      this.reading = undefined;
    };
    this.reading = this.session
      .copies(states, together)
      .then((values) => void (this.last = { values, mark }))
      .catch((e: unknown) => void (this.failure = e))
      .then(done);
    if (!together) await this.reading;
  }

  /** Throws the error of a copy, which is that of work before it. */
  thrown(): void {
    const { failure } = this;
    this.failure = undefined;
    if (failure) throw failure;
  }

  /** The latest copy, when no other one is being made. */
  async settled(): Promise<this["last"]> {
    await this.reading;
    return this.last;
  }

  /** Forgets the error of a copy, since the states are made anew. */
  clear(): void {
    this.failure = undefined;
  }
}
