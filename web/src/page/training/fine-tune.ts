// Training as a page sees it. Everything happens in the pipeline's worker; here are the words for
// it.

import type { ModelInfo } from "../../protocol/loading.ts";
import type {
  StepEvent,
  TrainingFields,
  TrainingInfo,
  TrainingResult,
} from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import type { Schedule } from "../../shared/schedules.ts";
import { type Profile, watched } from "../profile.ts";
import type { TextGenerationPipeline } from "../text-generation.ts";
import { type Handle, handleOf } from "./handles.ts";

/** Options of {@link fineTune} and {@link Trainer}. */
export interface FineTuneOptions {
  /**
   * `lora`: low-rank matrices beside the layers are trained and the model stays as it is, quantized
   * or not; `full`: a copy of all its parameters. Default: what the model was compiled for, `lora`
   * where it was for both.
   */
  adapter?: "lora" | "full";
  /**
   * The result's name in `model.adapters`; one of that name is replaced. Default: `adapter` or
   * `trained`, with a number where taken.
   */
  name?: string;
  /** Rank of the adapter, at most the one that the model was compiled with. Default: that one. */
  r?: number;
  /** The adapter counts `lora_alpha / r`. Default: so that it counts as compiled. */
  lora_alpha?: number;
  /**
   * The same in one word: `true` or `{ r, lora_alpha }` is `adapter: "lora"` with these, `false` is
   * `adapter: "full"`.
   */
  lora?: boolean | { r?: number; lora_alpha?: number };
  /**
   * The optimizer that the model was compiled with, by its name (`"AdamW"`) or as `{ type, lr }`;
   * `lr` is `learning_rate`. Another one needs another compilation (`TrainingPrograms.optimizer`).
   */
  optimizer?: string | { type?: string; lr?: number };
  /** Passes over the texts; fractions are fine. Default: 1, or as many as `max_steps` takes. */
  epochs?: number;
  /** Most updates. Default: no limit. */
  max_steps?: number;
  /** Of the optimizer, at the schedule's top. Default: the compiled program's. */
  learning_rate?: number;
  /**
   * How the learning rate goes: `constant`, or down to 0 by a line or half a cosine wave. Default:
   * `constant`.
   */
  schedule?: Schedule;
  /** Updates over which the learning rate rises from 0 before that. Default: 0. */
  warmup_steps?: number;
  /**
   * What order, first values and dropout follow from: the same seed gives the same run, bit for bit
   * with one thread. Default: 0.
   */
  seed?: number | bigint;
  /** Batches whose gradients are averaged for one update. Default: 1. */
  gradient_accumulation_steps?: number;
  /**
   * Texts that are not learned from, or the share (0 to 1) of the blocks to hold back. They are
   * evaluated before the first step, after the last, and as `evaluate_every` says.
   */
  evaluation?: string | string[] | number;
  /** Updates between evaluations. Default: none in between. */
  evaluate_every?: number;
  /**
   * Keep the run in this browser's storage (OPFS) under a name, every so many updates (default 50)
   * and at its end or abort. A save that fails (no room, say) does not end the run: the step's
   * event has the reason, and the save before is still there.
   */
  checkpoint?: string | { name: string; every?: number };
  /**
   * Go on from that checkpoint, if there is one: bit for bit as the run would have gone on. Texts
   * and options must be the same. Default: false.
   */
  resume?: boolean;
  /** Gets each update. What it throws ends the run. */
  onStep?: (event: StepEvent) => void;
  /**
   * Stops between two steps: the promise rejects with {@link Aborted}. What was learned stays, and
   * is kept if there is a checkpoint.
   */
  signal?: AbortSignal;
}

const NAMES = [
  "adapter",
  "name",
  "lora",
  "optimizer",
  "r",
  "lora_alpha",
  "epochs",
  "max_steps",
  "learning_rate",
  "schedule",
  "warmup_steps",
  "seed",
  "gradient_accumulation_steps",
  "evaluation",
  "evaluate_every",
  "checkpoint",
  "resume",
  "onStep",
  "signal",
];

/** `lora` and `optimizer` in the other options' words. */
function spelledOut(options: FineTuneOptions, programs: ModelInfo["training"]): FineTuneOptions {
  const { lora, optimizer, ...rest } = options;
  const out: FineTuneOptions = { ...rest };
  if (lora !== undefined) {
    if (typeof lora !== "boolean" && (typeof lora !== "object" || lora === null))
      throw new InputError(
        `${String(lora)} is neither true, false nor { r, lora_alpha }`,
        "options.lora",
      );
    const adapter = lora === false ? "full" : "lora";
    if (out.adapter !== undefined && out.adapter !== adapter)
      throw new InputError(
        `adapter is '${out.adapter}', lora says '${adapter}'`,
        "options.lora",
        "Give one of them.",
      );
    out.adapter = adapter;
    if (typeof lora === "object") {
      const unknown = Object.keys(lora).find((name) => name !== "r" && name !== "lora_alpha");
      if (unknown !== undefined)
        throw new InputError(
          "it is decided when the model is compiled",
          `options.lora.${unknown}`,
          "Compile with it: `pipeline(..., { training: { ... } })`, or `edgewise build " +
            "--train lora`.",
        );
      out.r ??= lora.r;
      out.lora_alpha ??= lora.lora_alpha;
    }
  }
  if (optimizer !== undefined) {
    const { type, lr, ...more } =
      typeof optimizer === "string" ? { type: optimizer, lr: undefined } : optimizer;
    const compiled = programs.find((p) => p.adapter === (out.adapter ?? p.adapter))?.optimizer;
    const unknown = Object.keys(more)[0];
    if (unknown !== undefined)
      throw new InputError(
        "it is decided when the model is compiled",
        `options.optimizer.${unknown}`,
        "Compile with it: `pipeline(..., { training: { optimizer: { ... } } })`.",
      );
    if (
      type !== undefined &&
      compiled !== undefined &&
      type.toLowerCase() !== compiled.toLowerCase()
    )
      throw new InputError(
        `the model was compiled to train with ${compiled}, not ${type}`,
        "options.optimizer",
        `Compile it with \`pipeline(..., { training: { optimizer: "${type}" } })\`.`,
      );
    out.learning_rate ??= lr;
  }
  return out;
}

/**
 * Trains a model on texts, in its worker, and uses the result from then on.
 *
 * ```js
 * const write = await pipeline("text-generation", "model.edge");
 * await fineTune(write, [text], { epochs: 5, onStep: ({ step, total, loss }) => console.log(step,
 * total, loss) });
 * await write("Once upon a time");
 * await write.setAdapter(null); // the model as it was
 * ```
 *
 * The texts are tokenized with the tokenizer's special tokens, put in one row with an end of text
 * behind each, and cut into blocks of as many tokens as the model was compiled to train on.
 * @returns losses (nats per token) of all updates and evaluations, and the adapter's name
 * @throws InputError: the model was compiled without training, an option or the texts are wrong, a
 *   checkpoint is of another run. OutOfMemory: it does not fit; says how much it would take.
 *   EngineError: the loss became infinite. Aborted.
 */
export async function fineTune(
  model: TextGenerationPipeline,
  texts: string | string[],
  options: FineTuneOptions = {},
): Promise<TrainingResult> {
  const trainer = await Trainer.create(model, texts, options);
  try {
    const result = await trainer.run();
    await trainer.close();
    return result;
  } catch (e) {
    await trainer.close().catch(() => undefined); // of a pipeline that was disposed of meanwhile
    throw e;
  }
}

/**
 * A training run, step by step or as a whole.
 *
 * ```js
 * const trainer = await Trainer.create(write, texts, { epochs: 5, evaluation: 0.1 });
 * const { loss } = await trainer.step();
 * const done = trainer.run(); // trainer.pause(), trainer.resume()
 * await done;
 * await trainer.close();
 * ```
 */
export class Trainer {
  private closed = false;

  private constructor(
    private readonly handle: Handle,
    private readonly options: FineTuneOptions,
    /** What the run will be. */ readonly info: TrainingInfo,
  ) {}

  /**
   * Prepares a run: tokenizes, takes memory, and reads the checkpoint if it is to go on from there.
   * A model has one Trainer at a time. Throws as {@link fineTune}.
   */
  static async create(
    model: TextGenerationPipeline,
    texts: string | string[],
    options: FineTuneOptions = {},
  ): Promise<Trainer> {
    const handle = handleOf(model);
    const unknown = Object.keys(options).find((name) => !NAMES.includes(name));
    if (unknown !== undefined)
      throw new InputError(
        "there is no such option",
        `options.${unknown}`,
        `There are ${NAMES.join(", ")}.`,
      );
    options = spelledOut(options, model.info.training);
    const { checkpoint, evaluation } = options;
    const fields: TrainingFields = {
      adapter: options.adapter,
      name: options.name,
      r: options.r,
      lora_alpha: options.lora_alpha,
      epochs: options.epochs,
      max_steps: options.max_steps,
      learning_rate: options.learning_rate,
      schedule: options.schedule,
      warmup_steps: options.warmup_steps,
      seed: options.seed,
      gradient_accumulation_steps: options.gradient_accumulation_steps,
      evaluation: typeof evaluation === "string" ? [evaluation] : evaluation,
      evaluate_every: options.evaluate_every,
      checkpoint:
        typeof checkpoint === "string"
          ? { name: checkpoint, every: undefined }
          : checkpoint && { name: checkpoint.name, every: checkpoint.every },
      resume: options.resume,
    };
    const info = await handle.client.call(
      "train",
      { model: handle.model, texts: typeof texts === "string" ? [texts] : texts, fields },
      { signal: options.signal },
    );
    return new Trainer(handle, options, info);
  }

  /**
   * Steps to the end; `onStep` gets each. While paused, the promise waits. Rejects with Aborted
   * when the signal stops it; it can be called again.
   */
  run(): Promise<TrainingResult> {
    return this.handle.client.call(
      "train_fit",
      { model: this.handle.model },
      { signal: this.options.signal, onStep: this.options.onStep },
    );
  }

  /**
   * One update. `onStep` gets it, too. @throws InputError: all have been made. EngineError: the
   * loss became infinite; nothing of the run stays
   */
  async step(): Promise<StepEvent> {
    const event = await this.handle.client.call("train_step", { model: this.handle.model });
    this.options.onStep?.(event);
    return event;
  }

  /**
   * `run` stops after the step that it is in, and waits. Generation is as fast as ever meanwhile.
   */
  pause(): Promise<void> {
    return this.handle.client.call("train_pause", { model: this.handle.model, paused: true });
  }

  /** `run` goes on. */
  resume(): Promise<void> {
    return this.handle.client.call("train_pause", { model: this.handle.model, paused: false });
  }

  /**
   * Loss on the evaluation texts, in nats per token, dropout off. @throws InputError: there are
   * none
   */
  evaluate(): Promise<number> {
    return this.handle.client.call("train_evaluate", { model: this.handle.model });
  }

  /**
   * Writes the checkpoint now. Returns its bytes. Throws StorageError where there is no room, and
   * what was there before stays.
   */
  save(): Promise<number> {
    return this.handle.client.call("train_save", { model: this.handle.model });
  }

  /**
   * Where the time of what `work` does with this trainer or its model goes: `await
   * trainer.profile(() => trainer.step())`. Throws what `work` throws.
   */
  profile(work: () => unknown): Promise<Profile> {
    return watched(this.handle.client, this.handle.model, work);
  }

  /** Losses and evaluations so far. */
  result(): Promise<TrainingResult> {
    return this.handle.client.call("train_result", { model: this.handle.model });
  }

  /** Gives back the memory that only training needs. What was learned stays in `model.adapters`. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.handle.adapters = await this.handle.client.call("train_close", {
      model: this.handle.model,
    });
  }
}
