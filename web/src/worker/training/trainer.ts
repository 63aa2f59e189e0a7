// A training run in the worker: data, steps, evaluation, checkpoints. logic/training/run.py decides
// what follows what. The worker handles messages between steps.

import type { Device } from "../../device/device.ts";
import { BEST, is_kept } from "../../logic/training/checkpoints.ts";
import {
  learned,
  Order,
  type Row,
  token_weights,
  type Updates,
} from "../../logic/training/data.ts";
import { judged, preferred, tokens_of_units, type Unit } from "../../logic/training/preferences.ts";
import {
  type Event,
  type Made,
  mean_loss,
  Run,
  type RunRequest,
  UNKNOWN,
  type UpdateRequest,
  update,
} from "../../logic/training/run.ts";
import { factor } from "../../logic/training/schedules.ts";
import type {
  StepEvent,
  TrainingFields,
  TrainingInfo,
  TrainingRecord,
  TrainingResult,
} from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import type { RunRecord } from "../../shared/checkpoints/checkpoint.ts";
import { drive } from "../../shared/drive.ts";
import { InputError } from "../../shared/errors.ts";
import { pace } from "../../shared/share.ts";
import { message } from "../../shared/words.ts";
import type { Learner } from "../model/model.ts";
import { checkAdapterName } from "./adapter-config.ts";
import type { RunFacts } from "./adapters.ts";
import { adaptersOf } from "./adapters-of.ts";
import { Anchor } from "./anchor.ts";
import { sourceFeeds } from "./pairs.ts";
import { batchOf, preferenceAnswers, refer } from "./preferences.ts";
import { comparisons, type Data, orderOf, readData, toldFeeds, updatesOf } from "./read-data.ts";
import { compare, fillFrom, recordOf, type Stored } from "./record.ts";
import { opened, type Place, Recovery } from "./recovery/recovery.ts";
import {
  chooseProgram,
  freshName,
  type RunSettings,
  resolveSettings,
  writeFirst,
} from "./run-options.ts";
import { type Batch, Session, weighs } from "./session.ts";

/** A training run: the worker's side of Trainer. */
export class TrainingRun {
  /** Properties of the run. */
  readonly info: TrainingInfo;
  private readonly run: Run;
  private checkpointError = "";
  private wake: (() => void) | undefined;
  /** What was trained at the best evaluation, by state. */
  private best = new Map<string, Uint8Array<ArrayBuffer>>();
  private paused = false;
  private closed = false;
  private readonly recovery: Recovery;
  /** The device of the latest event. */
  private device: Device;
  /** Updates in the stored checkpoint. */
  saved: number | undefined;

  private constructor(
    private readonly model: Learner,
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
    const { checkpoint, evaluate_every } = options;
    this.run = new Run(
      updates,
      {
        total,
        evaluate_every,
        evaluates_first: true,
        checkpoint_every: checkpoint?.every ?? 0,
        early_stopping: options.early_stopping_patience,
        load_best: options.load_best_model_at_end,
        averages: program.plans.has("swap"),
      },
      (step) => options.learning_rate * factor(options.schedule, step, total, options.warmup_steps),
      { epoch: 0, cursor: 0 },
      (data.held ?? data.heldUnits) !== undefined,
      `adapter '${adapter}'`,
    );
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
      blocks: (data.units ?? data.rows).length,
      report: data.report,
      tokens: this.learnedOf(data.rows, data.units),
      evaluation_tokens: this.learnedOf(data.held ?? [], data.heldUnits),
      parameters,
      memory: this.memory(),
      device: model.device.info,
      averages: program.plans.has("swap"),
      losses: [],
      evaluations: [],
    };
  }

  /** Updates so far. */
  get step(): number {
    return this.run.step;
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
    model: Learner,
    texts: (string | TrainingRecord)[],
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
    const data = await readData(model, program, texts, fields.evaluation, options, signal);
    const order = orderOf(data, program, options.seed);
    const updates = updatesOf(order, options);
    const total = updates.total(options.epochs ?? null, options.max_steps ?? null);
    const config = recordOf(model, program, options, total, data);
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
      if (data.units) {
        session.initialize(true); // adapters begin without an effect
        await session.ready();
        await refer(session, options, data, signal);
      }
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
    for (const { name } of this.session.results)
      if (found.contents.tensors.has(BEST + name))
        this.best.set(name, await found.tensor(BEST + name));
    this.saved = record.step;
    if (values && backup.useful)
      backup.last = { values, mark: { step: record.step, runs: record.runs } };
    const { best_step = UNKNOWN } = record;
    this.run.restore(record.step, record.losses, record.evaluations, best_step);
    const { step, losses, evaluations } = this.run;
    Object.assign(this.info, { step, losses: [...losses], evaluations: [...evaluations] });
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
    this.run.back_to(step);
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
    this.alive();
    return this.told(await drive(this.run.advance(), (request) => this.answer(request)));
  }

  /** Does what a request asks for. */
  private answer(request: RunRequest): unknown {
    const { recovery } = this;
    switch (request.kind) {
      case "update":
        return recovery.kept(async () => {
          await adaptersOf(this.model).train(this.adapter);
          return this.update(request.step);
        });
      case "back_up":
        return recovery.keep();
      case "evaluate":
        return this.during(() => this.session.averaged(() => this.evaluateNow()));
      case "keep":
        return this.during(async () => {
          const { session } = this;
          this.best = await session.averaged(() => session.copies(session.results, true));
        });
      case "take_averages":
        return this.during(async () => {
          await adaptersOf(this.model).train(this.adapter);
          await this.session.takeAverages();
        });
      case "take_back":
        return this.during(async () => {
          await adaptersOf(this.model).train(this.adapter);
          this.session.fill(this.best);
        });
      case "save":
        // the run continues, since its state is in memory
        return this.save().catch((e: unknown) => (this.checkpointError = message(e)));
      default:
        return true;
    }
  }

  /** Makes the update after `step` ones. */
  async update(step: number): Promise<Made> {
    const started = performance.now();
    const { session, data } = this;
    const rate = this.run.rate(step);
    const [epoch, first] = this.updates.place(step);
    const count = this.updates.end(first) - first;
    if (data.units) return this.prefer(rate, epoch, first, count, started);
    let tokens = 0;
    const weighed = weighs(session.program);
    const batches = Array.from({ length: count }, (_, i) =>
      this.batch(data.rows, this.order.chosen(first + i, epoch), data.sources, data.told),
    );
    for (const made of batches) tokens += made.learned;
    const answer = (request: UpdateRequest): unknown => {
      if (request.kind === "reset") return session.reset();
      if (request.kind === "apply") return session.update(request.rate, request.scale);
      // a GPU need not wait until the loss of one batch has been read to begin the next
      return Promise.all(
        batches.map((made) => {
          if (request.rate !== null) return session.train(made, request.rate);
          const { ids, labels, more } = made;
          const weight = 1 / Math.max(1, tokens);
          const weights = weighed
            ? Float32Array.from(
                token_weights(Array.from(labels, Number), session.program.sequence, weight),
              )
            : undefined;
          return session.accumulate({ ids, labels, weights, more });
        }),
      );
    };
    const { accumulates } = this.options;
    const loss = await drive(update(count, rate, accumulates, weighed), answer);
    await this.anchor?.pull(rate);
    return { loss, tokens, seconds: (performance.now() - started) / 1000 };
  }

  /** Makes an update on preferences. */
  private async prefer(
    rate: number,
    epoch: number,
    first: number,
    count: number,
    started: number,
  ): Promise<Made> {
    const { session, data, options, order } = this;
    const units = Array.from({ length: count }, (_, i) => order.chosen(first + i, epoch))
      .flat()
      .map((i) => data.units![i]!);
    const by = options.preference!;
    const steps = preferred(units, by, session.program.batch, rate);
    const loss = await drive(steps, preferenceAnswers(session, data.pad));
    await this.anchor?.pull(rate);
    const seconds = (performance.now() - started) / 1000;
    return { loss, tokens: tokens_of_units(units, by), seconds };
  }

  private learnedOf(rows: readonly Row[], units: Unit[] | undefined): number {
    return units ? tokens_of_units(units, this.options.preference!) : learned(rows);
  }

  /** Ids and labels of rows as int64, with padding up to a batch. */
  private batch(
    rows: readonly Row[],
    which: readonly number[],
    sources: Data["sources"],
    told: Data["told"],
  ): Batch & { learned: number } {
    const chosen = which.map((i) => rows[i]!);
    const { program } = this.session;
    const made = batchOf(chosen, program.batch, this.data.pad);
    const pick = <T>(list: readonly T[]) => which.map((i) => list[i]!);
    const more = {
      ...(sources && sourceFeeds(program, pick(sources), this.data.feeds)),
      ...(told && toldFeeds(program, pick(told))),
    };
    return { ...made, more, learned: learned(chosen) };
  }

  /** An event as the page gets it. */
  private told(event: Event): StepEvent {
    const { device } = this.model;
    const { step, total, epoch, loss, learning_rate, evaluation, checkpoint } = event;
    const { tokens_per_second, seconds_left } = event;
    const memory = this.memory();
    const told: StepEvent = {
      step,
      total,
      epoch,
      loss,
      learning_rate,
      tokens_per_second,
      seconds_left,
      memory,
    };
    if (evaluation !== null) told.evaluation = evaluation;
    if (checkpoint !== null) told.checkpoint = checkpoint;
    if (this.device !== device) told.device = device.info;
    this.device = device;
    return told;
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
    const answer = (request: RunRequest): Promise<unknown> =>
      request.kind === "advance"
        ? this.advanceIn(turn, onStep, signal)
        : turn(async () => this.answer(request));
    this.recovery.signal = signal;
    signal.addEventListener("abort", stop, { once: true });
    try {
      if (!(await drive(this.run.fit(), answer))) throwIfAborted(signal);
      return this.result();
    } finally {
      signal.removeEventListener("abort", stop);
      this.recovery.signal = undefined;
    }
  }

  /** Waits while the run is paused, makes and tells an update; returns false if it was aborted. */
  private async advanceIn(
    turn: <T>(work: () => Promise<T>) => Promise<T>,
    onStep: (event: StepEvent) => void,
    signal: AbortSignal,
  ): Promise<boolean> {
    while (this.paused && !signal.aborted && !this.closed)
      await new Promise<void>((resolve) => (this.wake = resolve));
    this.alive();
    if (signal.aborted) return false;
    try {
      onStep(await turn(() => this.advance()));
    } catch (e) {
      if (signal.aborted) return false; // while a GPU was replaced
      throw e;
    }
    await pace.breathe();
    return true;
  }

  /** The result so far. */
  result(): TrainingResult {
    return {
      adapter: this.adapter,
      step: this.step,
      total: this.total,
      losses: this.run.losses,
      evaluations: this.run.evaluations,
      seconds: this.run.pace.seconds,
      checkpoint_error: this.checkpointError,
      stopped: this.run.ended as TrainingResult["stopped"],
      best_step: this.run.best_step,
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
    if (!(this.data.held ?? this.data.heldUnits))
      throw new InputError(
        "there are no evaluation texts",
        "evaluate",
        "Give them as the option evaluation.",
      );
    return drive(this.run.evaluate(), (request) => this.answer(request));
  }

  private evaluateNow(): Promise<number> {
    const { session, data } = this;
    if (data.heldUnits) return this.judge(data.heldUnits);
    const held = data.held!;
    const order = new Order(held.length, session.program.batch, this.options.seed);
    return drive(mean_loss(order.batches), async (at) => {
      const made = this.batch(held, order.chosen(at), data.heldSources, data.heldTold);
      return [await session.evaluate(made), made.learned];
    });
  }

  /** The mean loss of preferences. */
  private judge(units: Unit[]): Promise<number> {
    const { session, data, options } = this;
    const answer = preferenceAnswers(session, data.pad);
    const order = new Order(units.length, comparisons(session.program), options.seed);
    return drive(mean_loss(order.batches), async (at) => {
      const some = order.chosen(at).map((i) => units[i]!);
      const steps = judged(some, options.preference!, session.program.batch);
      return [(await drive(steps, answer)).loss, some.length];
    });
  }

  /**
   * Writes a checkpoint.
   * @returns its size in bytes
   * @throws StorageError, InputError
   */
  async save(): Promise<number> {
    this.alive();
    if (this.run.failed)
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
    const kept = session.allStates.filter(({ kind }) => is_kept(kind));
    const states = new Map(kept.map((s) => [s.name, s]));
    const record = (runs: number): RunRecord => ({
      step: this.step,
      total: this.total,
      runs,
      adapter: this.adapter,
      program: session.program.name,
      losses: this.run.losses,
      evaluations: this.run.evaluations,
      best_step: this.best.size ? (this.run.best_step ?? UNKNOWN) : 0,
      config: this.config,
      saved: Date.now(),
    });
    const { file } = checkpoint;
    const { best } = this;
    for (const name of best.keys()) states.set(BEST + name, states.get(name)!);
    const reading =
      (read: (name: string) => Promise<Uint8Array<ArrayBuffer>>) => async (name: string) =>
        name.startsWith(BEST) ? best.get(name.slice(BEST.length))! : read(name);
    const bytes = await (only
      ? file.write(
          record(only.mark.runs),
          states,
          reading(async (state) => only.values.get(state)!),
        )
      : this.during(() => file.write(record(session.runs), states, reading(session.reader()))));
    this.saved = this.step;
    this.checkpointError = "";
    return bytes;
  }

  /** What a model card says of this run. */
  private facts(): RunFacts | undefined {
    const { losses, evaluations } = this.run;
    if (!losses.length) return undefined;
    const { blocks, tokens, batch, sequence, gradient_accumulation_steps } = this.info;
    const { learning_rate, schedule, warmup_steps, seed, preference, lora } = this.options;
    const options = {
      loss: preference?.loss ?? "causal_lm",
      optimizer: this.session.program.optimizer.type,
      learning_rate,
      schedule,
      warmup_steps,
      batch_size: batch,
      gradient_accumulation_steps,
      sequence_length: sequence,
      ...(lora ? { r: lora.r, lora_alpha: lora.lora_alpha } : {}),
      seed: String(seed),
    };
    const evaluation = evaluations.at(-1)?.[1] ?? null;
    return { updates: losses.length, losses, examples: blocks, tokens, evaluation, options };
  }

  /** Frees the memory of training. The trained adapter stays. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.wake?.();
    const end = () => adaptersOf(this.model).end(this.session, this.facts());
    await (this.recovery.onlyCopy ? end() : this.recovery.kept(end).catch(end));
    if (this.run.failed) await adaptersOf(this.model).remove(this.adapter);
  }
}
