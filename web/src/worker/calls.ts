// The methods of a worker, and what their calls get. Each kind of session has a file of methods in
// sessions/. worker.js has all kinds; a session without a worker (inline.ts) has those of
// InferenceSession.

import type { Device } from "../device/device.ts";
import type { CallEvent, FromWorker } from "../protocol/messages.ts";
import type { Methods } from "../protocol/methods.ts";
import { InputError } from "../shared/errors.ts";
import { Turns } from "../shared/turns.ts";
import type { Learner, Model } from "./model/model.ts";

/** A call of a method. */
export interface Call {
  readonly signal: AbortSignal;
  /** Its place among calls that wait: less is earlier. */
  readonly order: number;
  /** Sends the page an event of this call. */
  send(event: CallEvent): void;
  /** Transfers buffers to the page with the result, instead of copying them. */
  move(buffers: readonly Transferable[]): void;
}

/** The methods by their names. */
export type Handlers = {
  [M in keyof Methods]: (
    request: Parameters<Methods[M]>[0],
    call: Call,
  ) => ReturnType<Methods[M]> | Promise<ReturnType<Methods[M]>>;
};

/** Methods of one kind of session: those whose names begin so. */
export type HandlersOf<Prefix extends string> = {
  [M in keyof Handlers as M extends `${Prefix}${string}` ? M : never]: Handlers[M];
};

/** What the kinds of sessions of a worker share. */
export class Scope {
  /** Aborted when the worker ends: sessions free what they have. */
  readonly ended = new AbortController();
  /** Language models by the numbers that `load` returned. */
  readonly models = new Map<number, Model>();
  /** The worker's pipeline of another task, as a model that learns. */
  task: (() => Promise<Learner>) | undefined;
  /** The device of the worker's InferenceSession or TrainingSession, for profiles. */
  device: (() => Device) | undefined;
  private readonly turns = new Map<number, Turns>();

  /** @param post sends the page a message that belongs to no call */
  constructor(readonly post: (message: FromWorker) => void) {}

  /**
   * Runs a task of a model (0: of the worker's only session) in its turn. Generations and training
   * steps of a model run one after the other, since they share the arena of its plans.
   * @param order its place among those that wait, see Turns
   * @param signal ends the wait
   */
  turn<T>(
    id: number,
    work: () => T | Promise<T>,
    order?: number,
    signal?: AbortSignal,
  ): Promise<T> {
    let turns = this.turns.get(id);
    if (!turns) this.turns.set(id, (turns = new Turns()));
    return turns.take(work, order, signal);
  }

  /**
   * A model that may learn; 0: that of the worker's pipeline of another task.
   * @throws InputError if it was unloaded, or cannot learn
   */
  async learner(id: number): Promise<Learner> {
    return id === 0 && this.task ? this.task() : this.model(id);
  }

  /** @throws InputError if the model was unloaded */
  model(id: number): Model {
    const found = this.models.get(id);
    if (!found) throw new InputError("this pipeline has been disposed of", "", "Make a new one.");
    return found;
  }
}

/** The error of a session that was released. */
export const released = (where: string): InputError =>
  new InputError("this session has been released", where, "Make a new one.");
