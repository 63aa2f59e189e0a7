// Fine-tuning of a text generation pipeline: `fineTune` and `Trainer`. The work is done in the
// pipeline's worker; this module checks the options and sends the messages.

import type { LossName } from "../../logic/training/preferences.ts";
import type { ScheduleName } from "../../logic/training/schedules.ts";
import type { ModelInfo } from "../../protocol/loading.ts";
import type { Methods } from "../../protocol/methods.ts";
import type {
  StepEvent,
  TrainingEstimate,
  TrainingFields,
  TrainingInfo,
  TrainingRecord,
  TrainingResult,
} from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import { optionsOf } from "../../shared/inputs.ts";
import { levelOf, type Priority, USUAL } from "../../shared/priority.ts";
import { askToPersist } from "../persist.ts";
import type { ImageTextToTextPipeline } from "../pipelines/asking.ts";
import type { SpeechRecognitionPipeline, Text2TextPipeline } from "../pipelines/types.ts";
import { type Profile, watched } from "../profile.ts";
import type { TextGenerationPipeline } from "../text-generation.ts";
import type { TrainingData } from "./data.ts";
import { type Handle, handleOf } from "./handles.ts";

/** Options of {@link fineTune} and {@link Trainer}. */
export interface FineTuneOptions {
  /**
   * `lora` trains low-rank matrices beside the layers and leaves the model's own weights, quantized
   * or not, unchanged. `full` trains a copy of all parameters. Default: what the model was compiled
   * for; `lora` if it was compiled for both.
   */
  adapter?: "lora" | "full";
  /**
   * Name of the result in `model.adapters`; an adapter of the same name is replaced. Default:
   * `adapter` (LoRA) or `trained` (full), followed by a number if that name is taken.
   */
  name?: string;
  /**
   * Name of an adapter in `model.adapters` from whose values training starts, with its `r` and
   * `lora_alpha`. Default: new values.
   */
  initial?: string;
  /** Rank of the adapter, at most the rank that the model was compiled with. Default: that rank. */
  r?: number;
  /**
   * The adapter's output is scaled by `lora_alpha / r`, as in PEFT. Default: the value that gives
   * the compiled scale.
   */
  lora_alpha?: number;
  /**
   * Short form of `adapter`, `r` and `lora_alpha`: `true` or `{ r, lora_alpha }` means
   * `adapter: "lora"` with these values, `false` means `adapter: "full"`.
   */
  lora?: boolean | { r?: number; lora_alpha?: number };
  /**
   * FedProx: after each update the values are drawn to those of the beginning, by the proximal step
   * of `proximal_mu / 2` times the squared distance. Default: 0.
   */
  proximal_mu?: number;
  /** LoRA: the matrices A keep their first values, and B alone is trained. Default: false. */
  freeze_A?: boolean;
  /**
   * The optimizer goes on from here: what {@link Trainer.optimizerState} of an earlier run of the
   * same compiled program has returned. Default: a new optimizer.
   */
  optimizer_state?: Uint8Array;
  /**
   * The optimizer that the model was compiled with, as a name (`"AdamW"`) or as `{ type, lr }`,
   * where `lr` sets `learning_rate`. To use another optimizer, compile the model with it
   * (`TrainingPrograms.optimizer`).
   */
  optimizer?: string | { type?: string; lr?: number };
  /**
   * Passes over the texts; may be a fraction. Default: 1, or as many as `max_steps` updates need.
   */
  epochs?: number;
  /** Maximum number of updates. Default: no limit. */
  max_steps?: number;
  /** Maximum learning rate of the schedule. Default: the compiled program's learning rate. */
  learning_rate?: number;
  /**
   * Schedule of the learning rate after the warmup: `constant`, or a decay to 0 that is linear or
   * follows half a cosine wave. Default: `constant`.
   */
  schedule?: ScheduleName;
  /** Updates over which the learning rate rises linearly from 0 to its maximum. Default: 0. */
  warmup_steps?: number;
  /**
   * Seed of the shuffle, the initial values and dropout. Runs with the same seed are equal, bit for
   * bit if the engine uses one thread. Default: 0.
   */
  seed?: number | bigint;
  /** Number of batches over which gradients are averaged for one update. Default: 1. */
  gradient_accumulation_steps?: number;
  /**
   * Learns preferences, with TRL's losses: `dpo`, `orpo` or `simpo` from records
   * `{ prompt, chosen, rejected }`, `kto` also from `{ prompt, completion, label }`; texts or
   * messages. The reference is the model as it was loaded, without the adapter. The learning rate
   * is then a tenth of the program's by default. KTO needs two completions in an update: with
   * batches of 2 rows, `gradient_accumulation_steps: 2`. Default: next tokens are learned.
   */
  loss?: LossName;
  /** Of preferences: how much the model may leave the reference. Default: 0.1. */
  beta?: number;
  /** Of SimPO: margin of the rewards. Default: 0.5. */
  simpo_gamma?: number;
  /** Of KTO: weight of completions with the label true. Default: 1. */
  desirable_weight?: number;
  /** Of KTO: weight of completions with the label false. Default: 1. */
  undesirable_weight?: number;
  /**
   * Held-out texts, or the fraction (0 to 1) of the blocks to hold out. They are evaluated before
   * the first update, after the last, and every `evaluate_every` updates.
   */
  evaluation?: TrainingData | number;
  /** Updates between evaluations. Default: only before the first update and after the last. */
  evaluate_every?: number;
  /**
   * Ends the run after so many evaluations in a row that did not improve on the best one. Default:
   * it does not end early.
   */
  early_stopping_patience?: number;
  /** Ends with the result of the best evaluation instead of the last. Default: false. */
  load_best_model_at_end?: boolean;
  /**
   * Saves the run under this name in the browser's storage every `every` updates (default
   * 50), at the end of the run and when it is aborted. A failed save (for example, no space left)
   * does not end the run: the step's event has the reason, and the previous save is kept.
   */
  checkpoint?: string | { name: string; every?: number };
  /**
   * Continues from the checkpoint, if there is one, with the same bits as an uninterrupted run.
   * Texts and options must be the same as those of the saved run. Default: false.
   */
  resume?: boolean;
  /**
   * Of pairs: options of the pipeline's calls that say what stands before the target, such as
   * `language` and `task`, or `src_lang` and `tgt_lang`.
   */
  call_options?: Record<string, unknown>;
  /** Called after each update. An exception that it throws ends the run. */
  onStep?: (event: StepEvent) => void;
  /**
   * Stops the run between two updates: the promise rejects with {@link Aborted}. The updates made
   * so far remain in effect, and are saved if there is a checkpoint.
   */
  signal?: AbortSignal;
  /**
   * Priority of the updates, evaluations and estimates: with "background", other calls of the page
   * come first. Default: that of the pipeline.
   */
  priority?: Priority;
}

/**
 * A pipeline that learns: from texts and records; with an encoder from pairs. Speech recognition
 * is Whisper's.
 */
export type LearningPipeline =
  | TextGenerationPipeline
  | SpeechRecognitionPipeline
  | ImageTextToTextPipeline
  | Text2TextPipeline<string, never>;

const NAMES = [
  "adapter",
  "name",
  "initial",
  "lora",
  "optimizer",
  "r",
  "lora_alpha",
  "proximal_mu",
  "freeze_A",
  "optimizer_state",
  "epochs",
  "max_steps",
  "learning_rate",
  "schedule",
  "warmup_steps",
  "seed",
  "gradient_accumulation_steps",
  "loss",
  "beta",
  "simpo_gamma",
  "desirable_weight",
  "undesirable_weight",
  "evaluation",
  "evaluate_every",
  "early_stopping_patience",
  "load_best_model_at_end",
  "checkpoint",
  "resume",
  "call_options",
  "onStep",
  "signal",
  "priority",
];

/** Replaces the short forms `lora` and `optimizer` by the options that they stand for. */
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
          "it is fixed when the model is compiled",
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
        "it is fixed when the model is compiled",
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
 * Trains a model on texts in its worker, then generates with the result.
 *
 * ```js
 * const write = await pipeline("text-generation", "model.edge");
 * await fineTune(write, [text], { epochs: 5, onStep: ({ step, total, loss }) => console.log(step,
 * total, loss) });
 * await write("Once upon a time");
 * await write.setAdapter(null); // the model without the adapter
 * await fineTune(write, [{ prompt, chosen, rejected }], { loss: "dpo" });
 * const asr = await pipeline("automatic-speech-recognition", "whisper.edge");
 * await fineTune(asr, [{ audio: file, text: "Edgewise" }], { call_options: { language: "en" } });
 * ```
 *
 * The texts are tokenized with the tokenizer's special tokens, concatenated with an end-of-text
 * token after each, and cut into blocks of the sequence length that the model was compiled to train
 * on. Records, such as `{ messages: [...] }`, make one row each; of them the assistant's turns or
 * the completion are learned. Of pairs, `{ audio, text }` or `{ source, target }`, the target is
 * learned; their sources go through the encoder once, whose states are kept in memory.
 * @param model - the pipeline to train
 * @param texts - one text or several, or records (see {@link readData})
 * @param options - see {@link FineTuneOptions}
 * @returns losses (nats per token) of all updates and evaluations, and the adapter's name
 * @throws InputError if the model was compiled without training, if an option or the texts are
 *   invalid, or if the checkpoint belongs to another run
 * @throws OutOfMemory if training does not fit; the message has the number of bytes required
 * @throws EngineError if the loss became infinite or NaN
 * @throws Aborted if `options.signal` was aborted
 */
export async function fineTune(
  model: LearningPipeline,
  texts: TrainingData,
  options: FineTuneOptions = {},
): Promise<TrainingResult> {
  const trainer = await Trainer.create(model, texts, options);
  try {
    const result = await trainer.run();
    await trainer.close();
    return result;
  } catch (e) {
    await trainer.close().catch(() => undefined); // fails if the pipeline was disposed
    throw e;
  }
}

/**
 * A training run that a page can step through, pause, evaluate and save.
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
  private paused = false;

  private constructor(
    private readonly handle: Handle,
    private readonly options: FineTuneOptions,
    /** Properties of the run before its first step. */ readonly info: TrainingInfo,
  ) {}

  /**
   * Prepares a run: tokenizes the texts, allocates memory and, with `resume`, reads the checkpoint.
   * A model has at most one Trainer at a time.
   * @param model - the pipeline to train
   * @param texts - one text or several, or records (see {@link readData})
   * @param options - see {@link FineTuneOptions}
   * @throws the same errors as {@link fineTune}
   */
  static async create(
    model: LearningPipeline,
    texts: TrainingData,
    options: FineTuneOptions = {},
  ): Promise<Trainer> {
    options = optionsOf(options);
    const { handle, request } = await Trainer.request(model, texts, options);
    if (options.checkpoint) askToPersist();
    const info = await handle.client.call("train", request, {
      signal: options.signal,
      priority: options.priority,
    });
    return new Trainer(handle, options, info);
  }

  /**
   * Memory and time of a run, before anybody waits for it. The time is that of an update, which is
   * made and forgotten; adapters stay as they are.
   *
   * ```js
   * const { fits, change, memory, seconds } = await Trainer.estimate(write, texts, { epochs: 3 });
   * ```
   * @param model - the pipeline to train
   * @param texts - one text or several, or records (see {@link readData})
   * @param options - of the run, see {@link FineTuneOptions}; and `measure`: whether an update is
   *   timed. Default: true
   * @throws InputError if the model was compiled without training, or an option or the texts are
   *   invalid
   * @throws Aborted if `options.signal` was aborted
   */
  static async estimate(
    model: LearningPipeline,
    texts: TrainingData,
    options: FineTuneOptions & { measure?: boolean } = {},
  ): Promise<TrainingEstimate> {
    const { measure = true, ...rest } = optionsOf(options);
    const { handle, request } = await Trainer.request(model, texts, rest);
    const { signal, priority } = rest;
    return handle.client.call("train_estimate", { ...request, measure }, { signal, priority });
  }

  private static async request(
    model: LearningPipeline,
    texts: TrainingData,
    options: FineTuneOptions,
  ): Promise<{ handle: Handle; request: Parameters<Methods["train"]>[0] }> {
    const handle = handleOf(model);
    const unknown = Object.keys(options).find((name) => !NAMES.includes(name));
    if (unknown !== undefined)
      throw new InputError(
        "there is no such option",
        `options.${unknown}`,
        `There are ${NAMES.join(", ")}.`,
      );
    if (options.call_options !== undefined && !handle.prepare)
      throw new InputError("texts have no calls", "options.call_options", "Leave it out.");
    options = spelledOut(options, model.info.training ?? []);
    levelOf(options.priority, USUAL);
    const { checkpoint, signal } = options;
    let { evaluation } = options;
    if (handle.prepare) {
      texts = (await handle.prepare(texts, "pairs", signal)) as TrainingData;
      evaluation = (await handle.prepare(
        evaluation,
        "options.evaluation",
        signal,
      )) as FineTuneOptions["evaluation"];
    }
    const fields = {
      ...options,
      onStep: undefined,
      signal: undefined,
      priority: undefined,
      evaluation: typeof evaluation === "string" ? [evaluation] : evaluation,
      checkpoint: typeof checkpoint === "string" ? { name: checkpoint } : checkpoint,
    } as unknown as TrainingFields;
    // what is no list is refused by the worker
    const given = (
      typeof texts === "string" ? [texts] : Array.isArray(texts) ? [...texts] : texts
    ) as (string | TrainingRecord)[];
    return { handle, request: { model: handle.model, texts: given, fields } };
  }

  /**
   * Makes the remaining updates and calls `onStep` after each. The promise stays pending while the
   * run is paused. Can be called again after an abort.
   * @returns losses (nats per token) of all updates and evaluations, and the adapter's name
   * @throws Aborted if `options.signal` was aborted
   */
  run(): Promise<TrainingResult> {
    return this.handle.client.call(
      "train_fit",
      { model: this.handle.model },
      {
        signal: this.options.signal,
        priority: this.options.priority,
        onStep: (event) => this.heard(event),
        rests: () => this.paused,
      },
    );
  }

  /**
   * Makes one update and calls `onStep`.
   * @returns the update's number, loss and learning rate
   * @throws InputError if all updates have been made
   * @throws EngineError if the loss became infinite or NaN; the run's result is discarded
   */
  async step(): Promise<StepEvent> {
    const event = await this.handle.client.call(
      "train_step",
      { model: this.handle.model },
      { priority: this.options.priority },
    );
    this.heard(event);
    return event;
  }

  private heard(event: StepEvent): void {
    if (event.device) this.info.device = event.device;
    this.options.onStep?.(event);
  }

  /**
   * Pauses `run` after the current update. Generation has the worker to itself meanwhile.
   */
  pause(): Promise<void> {
    this.paused = true;
    return this.handle.client.call("train_pause", { model: this.handle.model, paused: true });
  }

  /** Continues a paused `run`. */
  resume(): Promise<void> {
    this.paused = false;
    return this.handle.client.call("train_pause", { model: this.handle.model, paused: false });
  }

  /**
   * Evaluates the held-out texts without dropout.
   * @returns mean loss in nats per token
   * @throws InputError if the run has no evaluation texts
   */
  evaluate(): Promise<number> {
    return this.handle.client.call(
      "train_evaluate",
      { model: this.handle.model },
      { priority: this.options.priority },
    );
  }

  /**
   * The optimizer's states, with the number of its updates: for the option `optimizer_state` of a
   * later run with the same program.
   */
  optimizerState(): Promise<Uint8Array<ArrayBuffer>> {
    return this.handle.client.call("train_optimizer", { model: this.handle.model });
  }

  /**
   * Writes the checkpoint.
   * @returns its size in bytes
   * @throws StorageError if there is not enough space; the previous checkpoint is kept
   */
  save(): Promise<number> {
    return this.handle.client.call("train_save", { model: this.handle.model });
  }

  /**
   * Profiles the engine while `work` uses this trainer or its model:
   * `await trainer.profile(() => trainer.step())`.
   * @param work - function to profile; may be async
   * @throws what `work` throws
   */
  profile(work: () => unknown): Promise<Profile> {
    return watched(this.handle.client, this.handle.model, work);
  }

  /** Returns the losses and evaluations so far. */
  result(): Promise<TrainingResult> {
    return this.handle.client.call("train_result", { model: this.handle.model });
  }

  /** Frees the memory that only training needs. The result stays in `model.adapters`. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.handle.adapters = await this.handle.client.call("train_close", {
      model: this.handle.model,
    });
  }
}
