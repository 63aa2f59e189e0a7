// A training run in the worker: data, schedule, steps, evaluation, checkpoints. The worker handles
// messages between steps.

import type { Device } from "../../device/device.ts";
import { batch_of, learned, Order, type Row, Updates } from "../../logic/training/data.ts";
import { factor } from "../../logic/training/schedules.ts";
import type {
  StepEvent,
  TrainingFields,
  TrainingInfo,
  TrainingResult,
} from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import type { RunRecord } from "../../shared/checkpoints/checkpoint.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import type { Model } from "../model/model.ts";
import { checkAdapterName } from "./adapter-config.ts";
import { adaptersOf } from "./adapters-of.ts";
import { Anchor } from "./anchor.ts";
import { macrotask } from "./macrotask.ts";
import { type Data, readData } from "./read-data.ts";
import { compare, fillFrom, recordOf, type Stored, type Update } from "./record.ts";
import { opened, type Place, Recovery } from "./recovery/recovery.ts";
import {
  chooseProgram,
  freshName,
  type RunSettings,
  resolveSettings,
  writeFirst,
} from "./run-options.ts";
import { Session } from "./session.ts";

/** A training run: the worker's side of Trainer. */
export class TrainingRun {
  /** Properties of the run. */
  readonly info: TrainingInfo;
  /** Updates so far. */
  step = 0;
  private readonly losses: number[] = [];
  private readonly evaluations: [number, number][] = [];
  private readonly pace = new Pace();
  private checkpointError = "";
  private wake: (() => void) | undefined;
  private paused = false;
  private closed = false;
  private readonly recovery: Recovery;
  /** The latest event, where the evaluation that was due did not end. */
  private untold: StepEvent | undefined;
  /** The device of the latest event. */
  private device: Device;
  /** Updates in the stored checkpoint. */
  saved: number | undefined;
  /** The loss became infinite or NaN: the adapter is removed at the end. */
  private failed = false;

  private constructor(
    private readonly model: Model,
    readonly session: Session,
    readonly adapter: string,
    private readonly data: Data,
    private readonly options: RunSettings,
    private readonly order: Order,
    private readonly updates: Updates,
    private readonly total: number,
    private readonly config: Record<string, unknown>,
    private readonly anchor: Anchor | undefined,
    readonly begin: () => void,
  ) {
    this.recovery = new Recovery(model, this);
    this.device = model.device;
    const { program } = session;
    let parameters = 0;
    for (const state of session.results)
      if (state.shape.length > 1 || state.kind === "parameter")
        parameters += state.shape.reduce((a, b) => a * b, 1);
    this.info = {
      program: program.lora ? "lora" : "full",
      adapter,
      step: 0,
      total,
      batch: program.batch,
      sequence: program.sequence,
      gradient_accumulation_steps: options.gradient_accumulation_steps,
      blocks: data.rows.length,
      tokens: learned(data.rows),
      evaluation_tokens: learned(data.held ?? []),
      parameters,
      memory: this.memory(),
      device: model.device.info,
      losses: this.losses,
      evaluations: this.evaluations,
    };
  }

  /**
   * Prepares a run: rows of tokens, memory, and initial values or those of a checkpoint. If a GPU
   * was lost, again with the device in its place.
   * @throws InputError if an option, the texts or the checkpoint are invalid
   * @throws OutOfMemory, Aborted
   */
  static open(...of: Parameters<typeof TrainingRun.prepare>): Promise<TrainingRun> {
    const [model, , , signal] = of;
    return opened(model, signal, () => TrainingRun.prepare(...of));
  }

  private static async prepare(
    model: Model,
    texts: string[],
    fields: TrainingFields,
    signal: AbortSignal,
  ): Promise<TrainingRun> {
    const program = chooseProgram(model, fields.adapter);
    const { device } = model;
    const adapters = adaptersOf(model);
    adapters.check(program);
    const options = resolveSettings(program, adapters.continued(fields));
    const name = fields.name ?? freshName(model, program.lora ? "adapter" : "trained");
    checkAdapterName(name);
    const data = await readData(model, program, texts, fields.evaluation, options.seed, signal);
    const order = new Order(data.rows.length, program.batch, options.seed);
    const updates = new Updates(order.batches, options.gradient_accumulation_steps);
    const total = updates.total(options.epochs ?? null, options.max_steps ?? null);
    const config = recordOf(model, program, options, total, data.rows);
    const { checkpoint } = options;
    const found = fields.resume && checkpoint ? await checkpoint.file.read() : undefined;
    if (found) compare(config, found.record.config, checkpoint!.file.name);

    const session = new Session(
      device,
      program,
      model.files,
      model.weights,
      options.seed,
      model.where,
    );
    await adapters.makeRoom(program);
    try {
      const { lora } = options;
      const { initial, optimizer_state: moments } = fields;
      const values =
        initial === undefined ? undefined : await adapters.valuesFor(program, initial, lora);
      const begin = () => writeFirst(session, options, values, moments);
      begin();
      await session.ready();
      const anchor = await Anchor.of(session, options);
      const run = new TrainingRun(
        model,
        session,
        name,
        data,
        options,
        order,
        updates,
        total,
        config,
        anchor,
        begin,
      );
      if (found) await run.restore(found);
      throwIfAborted(signal);
      await adapters.begin(name, session, lora);
      return run;
    } catch (e) {
      session.free();
      await adapters.restore();
      throw e;
    }
  }

  /** Continues from a checkpoint. */
  private async restore(found: Stored): Promise<void> {
    const { record } = found;
    const { backup } = this.recovery;
    const values = await fillFrom(this.session, found, this.options.checkpoint!.file.name);
    this.step = this.info.step = this.saved = record.step;
    if (values && backup.useful)
      backup.last = { values, mark: { step: record.step, runs: record.runs } };
    this.losses.push(...record.losses);
    this.evaluations.push(...record.evaluations);
  }

  /** See {@link Recovered}: the values of the checkpoint that this run has written. */
  async stored(): Promise<Place | undefined> {
    if (this.saved === undefined || this.saved > this.step) return undefined;
    const { file } = this.options.checkpoint!;
    const found = await file.read();
    if (found?.record.step !== this.saved) return undefined;
    compare(this.config, found.record.config, file.name);
    await fillFrom(this.session, found, file.name);
    return found.record;
  }

  /** See {@link Recovered}. */
  rollBack(step: number): void {
    this.step = step;
    this.losses.length = step;
    const after = this.evaluations.findIndex(([at]) => at > step);
    if (after >= 0) this.evaluations.length = after;
  }

  /** The optimizer's states, one after the other. */
  async optimizerState(): Promise<Uint8Array<ArrayBuffer>> {
    this.alive();
    const { session } = this;
    return this.during(async () => {
      const parts = [];
      for (const state of session.moments) parts.push(await session.readState(state));
      return new Uint8Array(await new Blob(parts).arrayBuffer());
    });
  }

  /** Work with the states, for which the adapter is active. */
  private during<T>(work: () => Promise<T>): Promise<T> {
    return this.recovery.kept(() => adaptersOf(this.model).during(this.adapter, work));
  }

  private memory(): StepEvent["memory"] {
    const { states, arena } = this.session.memory;
    return { engine: this.model.device.memoryBytes, states, activations: arena };
  }

  private alive(): void {
    if (this.closed)
      throw new InputError(
        "this trainer has been closed",
        "",
        "Make a new one; with a checkpoint, it can go on with resume: true.",
      );
  }

  /**
   * Makes one update, and what is due after it: where that did not end, it is first tried again.
   * @throws InputError if the run is over, closed or has failed
   * @throws EngineError if the loss became infinite or NaN
   */
  async advance(): Promise<StepEvent> {
    const again = this.untold?.step === this.step ? this.untold : undefined;
    this.untold = undefined;
    const event = again ?? (await this.next());
    try {
      await this.evaluateAndSave(event);
    } catch (e) {
      if (!again) this.untold = event;
      throw e;
    }
    return event;
  }

  private async next(): Promise<StepEvent> {
    this.alive();
    if (this.failed)
      throw new InputError(
        "its loss is not a number",
        `adapter '${this.adapter}'`,
        "Close it and start over.",
      );
    const { total } = this;
    if (this.step >= total)
      throw new InputError(
        `all ${total} steps have been made`,
        "step",
        "Make a new trainer with more epochs.",
      );
    const { loss, rate, tokens, seconds } = await this.recovery.kept(async () => {
      await adaptersOf(this.model).train(this.adapter);
      // the loss before training
      if (this.step === 0 && this.data.held && !this.evaluations.length) await this.evaluateNow();
      return this.update(this.step);
    });
    this.pace.add(seconds, tokens);
    this.step++;
    this.losses.push(loss);
    this.failed = !Number.isFinite(loss);
    if (this.failed)
      throw new EngineError(
        `the loss became ${loss} at step ${this.step}`,
        `adapter '${this.adapter}'`,
        "Lower learning_rate, or add warmup_steps, and start over.",
      );
    const event = this.event(loss, rate);
    if (this.step < total) await this.recovery.keep();
    return event;
  }

  /** Makes the update after `step` ones. Returns the mean loss of its batches, and its tokens. */
  async update(step: number): Promise<Update> {
    const started = performance.now();
    const { session, data, options, total } = this;
    const { schedule, warmup_steps: warmup } = options;
    const rate = options.learning_rate * factor(schedule, step, total, warmup);
    const accumulates = options.gradient_accumulation_steps > 1;
    const [epoch, first] = this.updates.place(step);
    const count = this.updates.end(first) - first;
    let tokens = 0;
    if (accumulates) session.reset();
    // a GPU need not wait until the loss of one batch has been read to begin the next
    const losses = Array.from({ length: count }, (_, i) => {
      const made = this.batch(data.rows, this.order.chosen(first + i, epoch));
      tokens += made.learned;
      return accumulates ? session.accumulate(made) : session.train(made, rate);
    });
    const read = await Promise.all(losses);
    if (accumulates) session.update(rate, 1 / count);
    await this.anchor?.pull(rate);
    const loss = read.reduce((a, b) => a + b) / count;
    return { loss, rate, tokens, seconds: (performance.now() - started) / 1000 };
  }

  /** Ids and labels of rows as int64, with padding up to a batch. */
  private batch(
    rows: readonly Row[],
    which: readonly number[],
  ): { ids: BigInt64Array; labels: BigInt64Array; learned: number } {
    const chosen = which.map((i) => rows[i]!);
    const made = batch_of(chosen, this.session.program.batch, this.data.pad);
    const [ids, labels] = made.map((numbers) => BigInt64Array.from(numbers, BigInt));
    return { ids: ids!, labels: labels!, learned: learned(chosen) };
  }

  private event(loss: number, rate: number): StepEvent {
    const { step, total } = this;
    const { device } = this.model;
    const moved = this.device !== device;
    this.device = device;
    const { speed } = this.pace;
    return {
      step,
      total,
      epoch: this.updates.epochs(step),
      loss,
      learning_rate: rate,
      tokens_per_second: speed.tokens,
      seconds_left: (total - step) * speed.update,
      memory: this.memory(),
      ...(moved ? { device: device.info } : {}),
    };
  }

  /** Evaluates and writes a checkpoint if these are due after this update. */
  private async evaluateAndSave(event: StepEvent): Promise<void> {
    const { step, total } = this;
    const { checkpoint, evaluate_every: every } = this.options;
    if (this.data.held && (step === total || (every && step % every === 0)))
      event.evaluation = await this.evaluate();
    if (checkpoint && (step === total || step % checkpoint.every === 0)) {
      try {
        event.checkpoint = await this.save();
      } catch (e) {
        // the run continues, since its state is in memory
        this.checkpointError = message(e);
        event.checkpoint = this.checkpointError;
      }
    }
  }

  /**
   * Runs to the end.
   * @param turn executes a step in the model's turn
   * @throws Aborted; a checkpoint is then written
   */
  async fit(
    turn: <T>(work: () => Promise<T>) => Promise<T>,
    onStep: (event: StepEvent) => void,
    signal: AbortSignal,
  ): Promise<TrainingResult> {
    const stop = () => this.wake?.();
    this.recovery.signal = signal;
    signal.addEventListener("abort", stop, { once: true });
    try {
      while (this.step < this.total || this.untold) {
        this.alive();
        if (this.paused && !signal.aborted) {
          await new Promise<void>((resolve) => (this.wake = resolve));
          continue;
        }
        if (signal.aborted) {
          if (this.options.checkpoint && this.step)
            await turn(() => this.save()).catch(() => undefined);
          throwIfAborted(signal);
        }
        const event = await turn(() => this.advance()).catch((e: unknown) => {
          if (signal.aborted) return undefined; // while a GPU was replaced
          throw e;
        });
        if (event) onStep(event);
        await macrotask();
      }
      return this.result();
    } finally {
      signal.removeEventListener("abort", stop);
      this.recovery.signal = undefined;
    }
  }

  /** The result so far. */
  result(): TrainingResult {
    return {
      adapter: this.adapter,
      step: this.step,
      total: this.total,
      losses: this.losses,
      evaluations: this.evaluations,
      seconds: this.pace.seconds,
      checkpoint_error: this.checkpointError,
    };
  }

  /** Pauses `fit` after the current step, or resumes it. */
  pause(paused: boolean): void {
    this.paused = paused;
    this.wake?.();
  }

  /**
   * Computes the loss on the evaluation texts, in nats per token.
   * @throws InputError if there are none
   */
  async evaluate(): Promise<number> {
    this.alive();
    if (!this.data.held)
      throw new InputError(
        "there are no evaluation texts",
        "evaluate",
        "Give them as the option evaluation.",
      );
    return this.during(() => this.evaluateNow());
  }

  private async evaluateNow(): Promise<number> {
    const { session, data } = this;
    const held = data.held!;
    const order = new Order(held.length, session.program.batch, this.options.seed);
    let [sum, tokens] = [0, 0];
    for (let at = 0; at < order.batches; at++) {
      const made = this.batch(held, order.chosen(at));
      sum += made.learned * (await session.evaluate(made));
      tokens += made.learned;
    }
    const loss = sum / tokens;
    this.evaluations.push([this.step, loss]);
    return loss;
  }

  /**
   * Writes a checkpoint.
   * @returns its size in bytes
   * @throws StorageError, InputError
   */
  async save(): Promise<number> {
    this.alive();
    if (this.failed)
      throw new InputError(
        "its loss is not a number",
        `adapter '${this.adapter}'`,
        "The previous save is kept.",
      );
    const { checkpoint } = this.options;
    if (!checkpoint)
      throw new InputError(
        "the run has no checkpoint",
        "save",
        "Give the option checkpoint: {name}.",
      );
    const { session } = this;
    const only = this.recovery.onlyCopy;
    const kept = [...session.program.states.values()].filter((s) => s.kind !== "gradient");
    const states = new Map(kept.map((s) => [s.name, s]));
    const record = (runs: number): RunRecord => ({
      step: this.step,
      total: this.total,
      runs,
      adapter: this.adapter,
      program: session.program.name,
      losses: this.losses,
      evaluations: this.evaluations,
      config: this.config,
      saved: Date.now(),
    });
    const { file } = checkpoint;
    const bytes = await (only
      ? file.write(record(only.mark.runs), states, async (state) => only.values.get(state)!)
      : this.during(() => file.write(record(session.runs), states, session.reader())));
    this.saved = this.step;
    this.checkpointError = "";
    return bytes;
  }

  /** Frees the memory of training. The trained adapter stays. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.wake?.();
    const end = () => adaptersOf(this.model).end(this.session);
    await (this.recovery.onlyCopy ? end() : this.recovery.kept(end).catch(end));
    if (this.failed) await adaptersOf(this.model).remove(this.adapter);
  }
}

const STEPS = 16; // number of steps over which the speed is averaged

/** The time that updates took. */
export class Pace {
  /** Of all updates. */
  seconds = 0;
  private readonly latest: { seconds: number; tokens: number }[] = [];

  /** Counts an update. */
  add(seconds: number, tokens: number): void {
    this.seconds += seconds;
    this.latest.push({ seconds, tokens });
    if (this.latest.length > STEPS) this.latest.shift();
  }

  /** Tokens per second, and seconds per update, lately. */
  get speed(): { tokens: number; update: number } {
    const [seconds, tokens] = this.latest.reduce(
      ([s, t], one) => [s + one.seconds, t + one.tokens],
      [0, 0],
    );
    return { tokens: tokens / Math.max(seconds, 1e-9), update: seconds / this.latest.length };
  }
}
