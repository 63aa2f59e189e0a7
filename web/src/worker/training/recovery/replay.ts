// What a TrainingSession has done since the latest copy of its states, to do it again on another
// device after a GPU was lost.

import { EngineError, OutOfMemory } from "../../../shared/errors.ts";
import { message } from "../../../shared/words.ts";
import type { Session } from "../session.ts";
import { Backup, TRIES } from "./backup.ts";

/** Bytes of feeds, and calls, for which a copy is due. */
const MAX_BYTES = 2 ** 25;
const MAX_CALLS = 1000;

/** The calls of a session that changed its states. */
export class Replay {
  private readonly calls: { again(): void; bytes: number }[] = [];
  private readonly backup: Backup<{ calls: number; runs: number; seed: bigint }>;
  private readonly seed: bigint;
  /** Calls before the first one here. */
  private before = 0;
  /** Whether calls were forgotten that no copy has. */
  private incomplete = false;
  /** Why the states are on no device. */
  private broken: unknown;

  /** @param session the one that owns the states */
  constructor(private readonly session: Session) {
    this.backup = new Backup(session, () => session.allStates);
    this.seed = session.seed;
  }

  /**
   * Notes a call after it was made.
   * @param again makes it once more
   * @param bytes that it keeps
   */
  async add(again: () => void, bytes = 0): Promise<void> {
    const { calls, session, backup } = this;
    if (!session.replaceable || this.incomplete) return;
    calls.push({ again, bytes });
    if (this.interrupted) return; // there is nothing to copy
    const sum = calls.reduce((n, call) => n + call.bytes, 0);
    const full = sum > MAX_BYTES || calls.length > MAX_CALLS;
    const { runs, seed } = session;
    const mark = { calls: this.before + calls.length, runs, seed };
    if (full) await backup.settled();
    await backup.keep(mark, full || undefined);
    if (full) await backup.settled();
    this.forget();
    if (full && !backup.useful) {
      this.incomplete = true; // its states are too many to be copied
      calls.length = 0;
    }
  }

  /** Forgets the calls that the latest copy has. */
  private forget(): void {
    const known = (this.backup.last?.mark.calls ?? 0) - this.before;
    if (known <= 0) return;
    this.calls.splice(0, known);
    this.before += known;
  }

  /**
   * Makes a call; if a GPU was lost, again with the device in its place.
   * @param move makes states and plans there, with their first values; false if no GPU was lost
   * @throws EngineError if the GPU was lost and not all calls are known
   */
  async kept<T>(work: () => Promise<T>, move: (error: unknown) => Promise<boolean>): Promise<T> {
    const { session, backup } = this;
    for (let tries = 0; ; tries++) {
      try {
        if (this.interrupted) {
          if (this.incomplete || !(await move(this.broken))) throw this.broken;
          await this.again();
        }
        backup.thrown();
        return await work();
      } catch (e) {
        const lost = this.interrupted || session.lost;
        if (!session.replaceable || !(lost || e instanceof OutOfMemory)) throw e;
        if (this.incomplete) throw lost ? ended(e) : e;
        this.broken = e;
        if (tries === TRIES) throw e;
      }
    }
  }

  /** Whether the states are on no device, until a call has made them anew. */
  get interrupted(): boolean {
    return this.broken !== undefined;
  }

  private async again(): Promise<void> {
    const { session, calls } = this;
    const last = await this.backup.settled();
    this.backup.clear();
    this.forget();
    if (last) session.fill(last.values);
    session.runs = last?.mark.runs ?? 0;
    session.seed = last?.mark.seed ?? this.seed;
    for (const { again } of calls) again();
    await session.ready();
    this.broken = undefined;
    if (!session.replaceable) calls.length = 0; // WebAssembly cannot be lost
  }
}

function ended(e: unknown): EngineError {
  return new EngineError(
    `what was trained was lost with the GPU (${message(e)})`,
    "TrainingSession",
    "Load the latest checkpoint in a new session: this one has more than is copied.",
  );
}
