// A training run goes on after its GPU was lost: on a new one, or in WebAssembly. It begins with
// the latest copy of its states, the stored checkpoint or the first values, and repeats the updates
// since then, with the same batches: on the same adapter the result has the same bits.

import type { Device } from "../../../device/device.ts";
import { throwIfAborted } from "../../../shared/abort.ts";
import { EngineError, OutOfMemory } from "../../../shared/errors.ts";
import { pace } from "../../../shared/share.ts";
import { message } from "../../../shared/words.ts";
import type { Learner } from "../../model/model.ts";
import type { Weights } from "../../model/weights.ts";
import { adaptersOf } from "../adapters-of.ts";
import type { Rebuilding, Session } from "../session.ts";
import { Backup, TRIES } from "./backup.ts";

/** Begins a run; if a GPU was lost, again with the device in its place. */
export async function opened<T>(
  model: Learner,
  signal: AbortSignal,
  open: () => Promise<T>,
): Promise<T> {
  for (let tries = 0; ; tries++) {
    const { device } = model;
    try {
      return await open();
    } catch (e) {
      if (!device.lost || tries === TRIES) throw e;
      if (model.device === device) await model.decoder.recover(undefined, signal);
      throwIfAborted(signal);
    }
  }
}

/** An update, and the runs with dropout before it. */
export interface Place {
  step: number;
  runs: number;
}

/** What a run does for its recovery. */
export interface Recovered {
  readonly session: Session;
  /** Name of the adapter. */
  readonly adapter: string;
  /** Updates that the page has heard of. */
  readonly step: number;
  /** Updates in the checkpoint that it has stored. */
  readonly saved: number | undefined;
  /** Writes the first values. */
  begin(): void;
  /** Writes the values of the stored checkpoint; undefined if there is none of its updates. */
  stored(): Promise<Place | undefined>;
  /** Makes the update after `step` ones. */
  update(step: number): Promise<unknown>;
  /** Forgets the updates after the first `step` ones. */
  rollBack(step: number): void;
}

/** Repeats the work of a run after its GPU was lost. */
export class Recovery implements Rebuilding {
  /** Ends the repeating of updates. */
  signal: AbortSignal | undefined;
  readonly backup: Backup<Place>;
  /** Why the states are on no device. */
  private broken: unknown;
  /** Whether the run is at its latest copy, on no device. */
  private givenUp = false;
  private at = 0;

  constructor(
    private readonly model: Learner,
    private readonly run: Recovered,
  ) {
    this.backup = new Backup(run.session, () => run.session.kept);
    run.session.recovery = this;
  }

  /** Copies the states if that is due, after an update. */
  keep(): Promise<void> {
    const { step, session } = this.run;
    return this.backup.keep({ step, runs: session.runs });
  }

  /**
   * Does work; if a GPU was lost, again with the device in its place.
   * @throws Aborted; EngineError if no device could go on: the run is then at its latest copy
   */
  async kept<T>(work: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries++) {
      if (!this.broken)
        try {
          this.backup.thrown();
          return await work();
        } catch (e) {
          const { session } = this.run;
          if (!session.replaceable || !(session.lost || e instanceof OutOfMemory)) throw e;
          this.broken = e;
        }
      await this.replace(tries);
      throwIfAborted(this.signal);
    }
  }

  private async replace(tries: number): Promise<void> {
    const { broken } = this;
    try {
      if (tries === TRIES || !(await this.model.decoder.recover(broken, this.signal))) throw broken;
      this.broken = undefined;
    } catch (e) {
      this.broken = e;
      if (tries < TRIES && !this.signal?.aborted) return;
      const step = await this.giveUp();
      throwIfAborted(this.signal);
      throw new EngineError(
        `the GPU was lost, and no other device could go on (${message(e)})`,
        `adapter '${this.run.adapter}'`,
        `The run is at step ${step} now: save the adapter, or make the next step to try again.`,
      );
    }
  }

  /**
   * Returns to the latest copy, whose values remain the adapter's, or to the stored checkpoint.
   * @returns the step of that
   */
  private async giveUp(): Promise<number> {
    const { run } = this;
    const last = await this.backup.settled();
    const step = last?.mark.step ?? run.saved ?? 0;
    adaptersOf(this.model).keepOnly(run.adapter, last?.values);
    run.rollBack(Math.min(step, run.step));
    this.givenUp = true;
    return run.step;
  }

  /** The latest copy, if the states are nowhere else. */
  get onlyCopy(): Backup<Place>["last"] {
    return this.givenUp ? this.backup.last : undefined;
  }

  /** Makes plans and states on another device, with the values of a copy. `repeat` must follow. */
  async rebuild(device: Device, weights: Weights): Promise<void> {
    const { run, backup } = this;
    const { session } = run;
    this.broken ??= new EngineError("the GPU was lost", "webgpu");
    const last = await backup.settled();
    backup.clear();
    session.move(device, weights);
    run.begin();
    this.at = 0;
    if (last) {
      session.fill(last.values);
      session.runs = last.mark.runs;
      this.at = last.mark.step;
    } else this.at = (await run.stored())?.step ?? 0;
    await session.ready();
  }

  /** Repeats the updates since then. Stopped by the signal, the run is where it arrived. */
  async repeat(): Promise<void> {
    const { run } = this;
    for (; this.at < run.step && !this.signal?.aborted; this.at++) {
      await run.update(this.at);
      await pace.breathe();
    }
    if (this.at < run.step) run.rollBack(this.at);
    this.broken = undefined;
    this.givenUp = false;
    if (!run.session.replaceable) this.backup.last = undefined; // WebAssembly cannot be lost
  }
}
