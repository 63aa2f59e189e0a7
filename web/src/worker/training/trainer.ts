// A training run in the worker: data, schedule, steps, evaluation, checkpoints. One step at a time,
// so that the worker hears what the page says between them.

import type {
  StepEvent,
  TrainingFields,
  TrainingInfo,
  TrainingResult,
} from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { Checkpoint, type RunRecord } from "../../shared/checkpoints/checkpoint.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import { factor, SCHEDULES, type Schedule } from "../../shared/schedules.ts";
import { sha256 } from "../../shared/sha256.ts";
import type { Model } from "../model/model.ts";
import { checkName } from "./adapter-config.ts";
import { type Blocks, batchOf, blocksOf, Order, split } from "./data.ts";
import { choose, compare, freshName, loraOf, lowerRank, seedOf, whole } from "./run-options.ts";
import { Session } from "./session.ts";

const SPEED_STEPS = 16; // that the speed is a mean of

/** A run in the worker, behind a Trainer. */
export class TrainingRun {
  /** What it will be. */
  readonly info: TrainingInfo;
  /** Updates so far. */
  step = 0;
  private readonly losses: number[] = [];
  private readonly evaluations: [number, number][] = [];
  private cursor = 0;
  private seconds = 0;
  private readonly speed: { seconds: number; tokens: number }[] = [];
  private readonly order: Order;
  private checkpointError = "";
  private wake: (() => void) | undefined;
  private paused = false;
  private closed = false;
  /** It learned no numbers: nothing of it stays. */
  private failed = false;

  private constructor(
    private readonly model: Model,
    readonly session: Session,
    private readonly adapter: string,
    private readonly blocks: Blocks,
    private readonly held: Blocks | undefined,
    private readonly settings: {
      total: number;
      rate: number;
      schedule: Schedule;
      warmup: number;
      accumulation: number;
      seed: bigint;
      evaluateEvery: number;
      pad: number;
      config: Record<string, unknown>;
    },
    private readonly checkpoint: { file: Checkpoint; every: number } | undefined,
  ) {
    this.order = new Order(blocks.count, settings.seed);
    const { program } = session;
    let parameters = 0;
    for (const state of session.results)
      if (state.shape.length > 1 || state.kind === "parameter")
        parameters += state.shape.reduce((a, b) => a * b, 1);
    this.info = {
      program: program.lora ? "lora" : "full",
      adapter,
      step: 0,
      total: settings.total,
      batch: program.batch,
      sequence: program.sequence,
      gradient_accumulation_steps: settings.accumulation,
      blocks: blocks.count,
      tokens: blocks.learned,
      evaluation_tokens: held?.learned ?? 0,
      parameters,
      memory: this.memory(),
      losses: this.losses,
      evaluations: this.evaluations,
    };
  }

  /** Makes a run ready: texts to blocks, memory, first values; or where a checkpoint left off. */
  static async open(
    model: Model,
    texts: string[],
    fields: TrainingFields,
    signal: AbortSignal,
  ): Promise<TrainingRun> {
    const program = choose(model, fields.adapter);
    const { adapters, tokenizer, device } = model;
    adapters.check(program);
    const accumulation = whole(
      fields.gradient_accumulation_steps,
      "gradient_accumulation_steps",
      1,
      1,
    );
    const schedule = fields.schedule ?? "constant";
    if (!SCHEDULES.includes(schedule))
      throw new InputError(
        `there is no schedule '${String(schedule).slice(0, 40)}'`,
        "options.schedule",
        `Use one of ${SCHEDULES.join(", ")}.`,
      );
    const rate = fields.learning_rate ?? program.optimizer.lr;
    if (!(rate >= 0 && rate < Infinity))
      throw new InputError(
        `it is ${String(rate)}`,
        "options.learning_rate",
        "Give a number such as 0.001.",
      );
    const epochs = fields.epochs ?? 1;
    if (!(epochs > 0 && epochs < 1e9))
      throw new InputError(`it is ${String(epochs)}`, "options.epochs", "Give a number above 0.");
    const seed = seedOf(fields.seed);
    const lora = loraOf(program, fields);
    const name = fields.name ?? freshName(model, program.lora ? "adapter" : "trained");
    checkName(name);
    const checkpoint = fields.checkpoint && {
      file: new Checkpoint(fields.checkpoint.name),
      every: whole(fields.checkpoint.every, "checkpoint.every", 1, 50),
    };
    if (fields.resume && !checkpoint)
      throw new InputError(
        "there is no checkpoint to resume from",
        "options.resume",
        "Give checkpoint: {name}.",
      );

    const eos = program.eosTokenId ?? tokenizer.id("eos_token");
    const pad = program.padTokenId ?? eos ?? 0;
    const rows = async (list: unknown, where: string) => {
      if (!Array.isArray(list) || !list.every((t) => typeof t === "string"))
        throw new InputError("they are not texts", where, "Give a string or a list of strings.");
      const made: number[][] = [];
      for (const text of list as string[]) {
        throwIfAborted(signal);
        if (text) made.push(tokenizer.encode(text, true));
        if (made.length % 64 === 63) await macrotask();
      }
      return blocksOf(made, program.sequence, eos, pad);
    };
    let blocks = await rows(texts, "texts");
    let held: Blocks | undefined;
    if (typeof fields.evaluation === "number") {
      if (!(fields.evaluation > 0 && fields.evaluation < 1))
        throw new InputError(
          `it is ${fields.evaluation}`,
          "options.evaluation",
          "Give texts, or a share of the blocks between 0 and 1, such as 0.1.",
        );
      [blocks, held] = split(blocks, fields.evaluation, seed);
    } else if (fields.evaluation !== undefined)
      held = await rows(fields.evaluation, "options.evaluation");
    if (blocks.learned < 8)
      throw new InputError(
        `the texts have ${blocks.learned + 1} tokens`,
        "texts",
        "Give more text: some hundred words at least.",
      );
    if (held && !held.learned)
      throw new InputError(
        "there are no tokens in the texts",
        "options.evaluation",
        "Give more text.",
      );
    const most =
      fields.max_steps === undefined ? undefined : whole(fields.max_steps, "max_steps", 1, 1);
    const byEpochs = Math.max(
      1,
      Math.ceil((epochs * blocks.count) / (program.batch * accumulation)),
    );
    const total =
      most === undefined ? byEpochs : fields.epochs === undefined ? most : Math.min(most, byEpochs);
    const warmup = whole(fields.warmup_steps, "warmup_steps", 0, 0);
    const vocabulary = model.decoder.vocab_size;
    for (const { ids } of [blocks, ...(held ? [held] : [])])
      for (const id of ids)
        if (!(id >= 0 && id < vocabulary))
          throw new InputError(
            `token id ${id} is not one of the model's ${vocabulary}`,
            "texts",
            "Do model and tokenizer belong together?",
          );

    // Whatever the rest of a run follows from.
    const config = {
      program: program.name,
      model: model.key,
      batch: program.batch,
      sequence: program.sequence,
      optimizer: program.optimizer,
      max_grad_norm: program.maxGradNorm,
      learning_rate: rate,
      schedule,
      warmup_steps: warmup,
      seed: String(seed),
      gradient_accumulation_steps: accumulation,
      total,
      ...(lora ? { r: lora.r, lora_alpha: lora.lora_alpha } : {}),
      texts: sha256(new Uint8Array(blocks.ids.buffer), new Uint8Array(blocks.labels.buffer)),
    };
    const found = fields.resume ? await checkpoint!.file.read() : undefined;
    if (found) compare(config, found.record.config, checkpoint!.file.name);

    const session = new Session(device, program, model.files, model.weights, seed, model.where);
    await adapters.makeRoom(program);
    try {
      session.initialize(accumulation > 1);
      if (lora && lora.r < program.lora!.r) lowerRank(session, lora.r);
      const run = new TrainingRun(
        model,
        session,
        name,
        blocks,
        held,
        {
          total,
          rate,
          schedule,
          warmup,
          accumulation,
          seed,
          evaluateEvery: whole(fields.evaluate_every, "evaluate_every", 1, 0),
          pad,
          config,
        },
        checkpoint,
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

  private async restore(
    found: NonNullable<Awaited<ReturnType<Checkpoint["read"]>>>,
  ): Promise<void> {
    const { record, contents } = found;
    for (const state of this.session.kept) {
      const t = contents.tensors.get(state.name);
      if (t?.dtype !== state.dtype || t.shape.join() !== state.shape.join())
        throw new InputError(
          `it lacks the state '${state.name}' as the model has it`,
          `checkpoint '${this.checkpoint!.file.name}'`,
          "It is of another version of the model: start anew, or delete it.",
        );
      this.session.writeState(state, await found.tensor(state.name));
    }
    this.session.runs = record.runs;
    this.cursor = record.cursor;
    this.step = this.info.step = record.step;
    this.losses.push(...record.losses);
    this.evaluations.push(...record.evaluations);
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

  /** One update. */
  async advance(): Promise<StepEvent> {
    this.alive();
    if (this.failed)
      throw new InputError(
        "its loss is not a number",
        `adapter '${this.adapter}'`,
        "Close it and start anew.",
      );
    const { session, settings, blocks } = this;
    const { total, accumulation } = settings;
    if (this.step >= total)
      throw new InputError(
        `all ${total} steps have been made`,
        "step",
        "Make a new trainer with more epochs.",
      );
    await this.model.adapters.train(this.adapter);
    // before anything was learned
    if (this.step === 0 && this.held && !this.evaluations.length) await this.evaluateNow();
    const started = performance.now();
    const rate = settings.rate * factor(settings.schedule, this.step, total, settings.warmup);
    const { batch } = session.program;
    let [loss, tokens] = [0, 0];
    if (accumulation > 1) session.reset();
    for (let part = 0; part < accumulation; part++) {
      const rows = Array.from({ length: batch }, (_, i) =>
        this.order.at(this.cursor + part * batch + i),
      );
      const made = batchOf(blocks, rows, batch, settings.pad);
      tokens += made.learned;
      loss += await (accumulation > 1 ? session.accumulate(made) : session.train(made, rate));
    }
    loss /= accumulation;
    if (accumulation > 1) session.update(rate, 1 / accumulation);
    const seconds = (performance.now() - started) / 1000;
    this.seconds += seconds;
    this.speed.push({ seconds, tokens });
    if (this.speed.length > SPEED_STEPS) this.speed.shift();
    this.cursor += batch * accumulation;
    this.step++;
    this.losses.push(loss);
    this.failed = !Number.isFinite(loss);
    if (this.failed)
      throw new EngineError(
        `the loss became ${loss} at step ${this.step}`,
        `adapter '${this.adapter}'`,
        "Lower learning_rate, or add warmup_steps, and start anew.",
      );
    const sum = this.speed.reduce((a, b) => ({
      seconds: a.seconds + b.seconds,
      tokens: a.tokens + b.tokens,
    }));
    const event: StepEvent = {
      step: this.step,
      total,
      epoch: this.cursor / blocks.count,
      loss,
      learning_rate: rate,
      tokens_per_second: sum.tokens / Math.max(sum.seconds, 1e-9),
      seconds_left: ((total - this.step) * sum.seconds) / this.speed.length,
      memory: this.memory(),
    };
    if (
      this.held &&
      (this.step === total || (settings.evaluateEvery && this.step % settings.evaluateEvery === 0))
    )
      event.evaluation = await this.evaluateNow();
    if (this.checkpoint && (this.step === total || this.step % this.checkpoint.every === 0)) {
      try {
        event.checkpoint = await this.save();
      } catch (e) {
        // the run goes on: what it learns is in memory
        event.checkpoint = this.checkpointError = e instanceof Error ? e.message : String(e);
      }
    }
    return event;
  }

  /** Steps to the end. */
  async fit(
    turn: <T>(work: () => Promise<T>) => Promise<T>,
    onStep: (event: StepEvent) => void,
    signal: AbortSignal,
  ): Promise<TrainingResult> {
    const stop = () => this.wake?.();
    signal.addEventListener("abort", stop, { once: true });
    try {
      while (this.step < this.settings.total) {
        this.alive();
        if (this.paused && !signal.aborted) {
          await new Promise<void>((resolve) => (this.wake = resolve));
          continue;
        }
        if (signal.aborted) {
          if (this.checkpoint && this.step) await turn(() => this.save()).catch(() => undefined);
          throwIfAborted(signal);
        }
        onStep(await turn(() => this.advance()));
        await macrotask();
      }
      return this.result();
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /** Losses and evaluations so far. */
  result(): TrainingResult {
    return {
      adapter: this.adapter,
      step: this.step,
      total: this.settings.total,
      losses: this.losses,
      evaluations: this.evaluations,
      seconds: this.seconds,
      checkpoint_error: this.checkpointError,
    };
  }

  /** Lets `fit` wait behind the step it is in, or go on. */
  pause(paused: boolean): void {
    this.paused = paused;
    this.wake?.();
  }

  /** Loss on the evaluation texts. */
  async evaluate(): Promise<number> {
    this.alive();
    if (!this.held)
      throw new InputError(
        "there are no evaluation texts",
        "evaluate",
        "Give them as the option evaluation.",
      );
    return this.model.adapters.during(this.adapter, () => this.evaluateNow());
  }

  private async evaluateNow(): Promise<number> {
    const { session, settings } = this;
    const held = this.held!;
    const { batch } = session.program;
    let [sum, tokens] = [0, 0];
    for (let at = 0; at < held.count; at += batch) {
      const rows = Array.from({ length: Math.min(batch, held.count - at) }, (_, i) => at + i);
      const made = batchOf(held, rows, batch, settings.pad);
      sum += made.learned * (await session.evaluate(made));
      tokens += made.learned;
    }
    const loss = sum / tokens;
    this.evaluations.push([this.step, loss]);
    return loss;
  }

  /** Writes a checkpoint. Returns its bytes. */
  async save(): Promise<number> {
    this.alive();
    if (this.failed)
      throw new InputError(
        "its loss is not a number",
        `adapter '${this.adapter}'`,
        "The save before is still there.",
      );
    if (!this.checkpoint)
      throw new InputError("it has no place", "save", "Give the option checkpoint: {name}.");
    const { session } = this;
    const states = new Map(session.kept.map((s) => [s.name, s]));
    const record: RunRecord = {
      step: this.step,
      total: this.settings.total,
      runs: session.runs,
      cursor: this.cursor,
      adapter: this.adapter,
      program: session.program.name,
      losses: this.losses,
      evaluations: this.evaluations,
      config: this.settings.config,
      saved: Date.now(),
    };
    const { file } = this.checkpoint;
    const bytes = await this.model.adapters.during(this.adapter, () =>
      file.write(record, states, (name) => session.readState(states.get(name)!)),
    );
    this.checkpointError = "";
    return bytes;
  }

  /** Gives back the memory of training; what was learned stays as an adapter. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.wake?.();
    await this.model.adapters.end(this.session);
    if (this.failed) await this.model.adapters.remove(this.adapter);
  }
}

/** Lets the worker hear its messages. */
function macrotask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
