// Messages of fine-tuning and adapters.

import type { Report } from "../logic/training/chat.ts";
import type { LossName } from "../logic/training/preferences.ts";
import type { Seen } from "../logic/training/preview.ts";
import type { ScheduleName } from "../logic/training/schedules.ts";
import type { DeviceInfo } from "../shared/platform.ts";

/** An adapter. */
export interface AdapterInfo {
  /** Name under which it was trained or loaded. */
  name: string;
  /** `lora`: low-rank matrices beside the layers; `full`: a copy of all trained parameters. */
  kind: "lora" | "full";
  /** Whether generation uses it. */
  active: boolean;
  /** Factor of its effect, as set by `setAdapter`; 1 by default and always for `full`. */
  scale: number;
  /** Size of its tensors in bytes, as float32. */
  bytes: number;
  /** Rank, for LoRA. */
  r?: number;
  /** LoRA scaling: its effect is multiplied by `lora_alpha / r`. */
  lora_alpha?: number;
}

/** An adapter in the browser's storage. */
export interface KeptAdapter {
  /** Name for `loadAdapter(name)`. */
  name: string;
  /** Size of its file in bytes. */
  bytes: number;
  /** Time of storing, in milliseconds since 1970. */
  saved: number;
}

/**
 * A record of training data, with TRL's names: `{ messages }`, `{ prompt, completion }`,
 * `{ text }`; or ShareGPT's `{ conversations }`, or Alpaca's `{ instruction, input, output }`.
 * Preferences are `{ prompt, chosen, rejected }`, and `{ prompt, completion, label }`. Models with
 * an encoder learn `{ audio, text }`, or `{ source, target }`.
 */
export type TrainingRecord = Record<string, unknown>;

/** What became of records. */
export type DataReport = Report;

/** A token as the model will see it in training. */
export type SeenToken = Seen;

/**
 * Options of a training run: FineTuneOptions as resolved by the page. `undefined` selects the
 * default.
 */
export interface TrainingFields {
  adapter: "lora" | "full" | undefined;
  name: string | undefined;
  initial: string | undefined;
  r: number | undefined;
  lora_alpha: number | undefined;
  proximal_mu: number | undefined;
  freeze_A: boolean | undefined;
  optimizer_state: Uint8Array | undefined;
  epochs: number | undefined;
  max_steps: number | undefined;
  learning_rate: number | undefined;
  schedule: ScheduleName | undefined;
  warmup_steps: number | undefined;
  seed: number | bigint | undefined;
  gradient_accumulation_steps: number | undefined;
  loss: LossName | undefined;
  beta: number | undefined;
  simpo_gamma: number | undefined;
  desirable_weight: number | undefined;
  undesirable_weight: number | undefined;
  evaluation: (string | TrainingRecord)[] | number | undefined;
  evaluate_every: number | undefined;
  early_stopping_patience: number | undefined;
  load_best_model_at_end: boolean | undefined;
  checkpoint: { name: string; every: number | undefined } | undefined;
  resume: boolean | undefined;
  call_options: Record<string, unknown> | undefined;
}

/** State of a run after an update. */
export interface StepEvent {
  /** Updates so far. */
  step: number;
  /** Total number of updates. */
  total: number;
  /** Passes over the data so far, fractional. */
  epoch: number;
  /**
   * Mean cross entropy of the update's tokens, before the update, in nats per token; or the loss of
   * its preferences.
   */
  loss: number;
  /** Learning rate of this update. */
  learning_rate: number;
  /** Training tokens per second, without pauses. */
  tokens_per_second: number;
  /** Estimated remaining seconds, at the speed of the latest steps. */
  seconds_left: number;
  /**
   * Bytes. `engine` is the total that the engine holds; `states` (parameters, optimizer) and
   * `activations` (of a step) are parts of it.
   */
  memory: { engine: number; states: number; activations: number };
  /** The device that goes on, in the first event after the GPU was lost. */
  device?: DeviceInfo;
  /** Loss on the evaluation texts, if evaluated after this update. */
  evaluation?: number;
  /** If a checkpoint was due: its size in bytes, or the reason why it could not be written. */
  checkpoint?: number | string;
}

/** What a run will take. Bytes and seconds. */
export interface TrainingEstimate {
  /** What is trained: adapters or all parameters. */
  program: "lora" | "full";
  /** Rows of a batch. */
  batch: number;
  /** Tokens of a row. */
  sequence: number;
  /** Batches of an update. */
  gradient_accumulation_steps: number;
  /** Number of updates. */
  total: number;
  /**
   * Engine memory: the model's weights (which the engine holds already), parameters, adapters and
   * optimizer (`states`), activations of a step, plans; and their sum.
   */
  memory: {
    weights: number;
    states: number;
    activations: number;
    plans: number;
    total: number;
  };
  /** Bytes that a run may take; null on a GPU, which does not tell. */
  available: number | null;
  /** Whether it fits, as far as is known. */
  fits: boolean;
  /** The change that makes it fit; null if it fits. */
  change: string | null;
  /** Of an update, measured; absent if it does not fit, or was not measured. */
  seconds_per_step?: number;
  /** Of all updates, without evaluations. */
  seconds?: number;
}

/** Properties of a run before its first step. */
export interface TrainingInfo {
  /** What is trained: adapters or all parameters. */
  program: "lora" | "full";
  /** Name of the adapter in `model.adapters`. */
  adapter: string;
  /** Updates already made, in a resumed run. */
  step: number;
  /** Total number of updates. */
  total: number;
  /** Sequences per batch. */
  batch: number;
  /** Tokens per sequence. */
  sequence: number;
  /** Batches per update. */
  gradient_accumulation_steps: number;
  /** Number of blocks of `sequence` tokens in the texts; of preferences, comparisons. */
  blocks: number;
  /** Of data that are records: how many are too long, and the tokens that were cut off. */
  report: DataReport | undefined;
  /** Training tokens per epoch. */
  tokens: number;
  /** Tokens that an evaluation predicts. */
  evaluation_tokens: number;
  /** Number of trained parameters. */
  parameters: number;
  /** The device in use, with what does not run on the GPU. */
  device: DeviceInfo;
  /** Whether averages of the weights are made, with which the run ends. */
  averages: boolean;
  /** Memory in bytes before the first step. */
  memory: StepEvent["memory"];
  /** Losses of the updates already made. */
  losses: number[];
  /** [update, loss on the evaluation texts] so far. */
  evaluations: [step: number, loss: number][];
}

/** Result of a run. */
export interface TrainingResult {
  /** Name of the adapter in `model.adapters`. */
  adapter: string;
  /** Updates made. */
  step: number;
  /** Planned updates. */
  total: number;
  /** Losses of all updates, in nats per token. */
  losses: number[];
  /** [update, loss on the evaluation texts]. */
  evaluations: [step: number, loss: number][];
  /** Seconds spent in steps since the run was created or resumed. */
  seconds: number;
  /** Why the last checkpoint could not be written; empty if there was no error. */
  checkpoint_error: string;
  /** Why it ended; empty if it has not. */
  stopped: "" | "done" | "early_stopping";
  /** Updates before the best evaluation; null if none was due. */
  best_step: number | null;
}

/** A request for the files of another library. */
export interface AdapterExport {
  model: number;
  /** Of the adapter; null: the model as it is. */
  name: string | null;
  /** Of a model: "gguf", "safetensors" or "mlx"; of an adapter: "gguf", "mlx" or "peft". */
  format: string;
  quantization: string | null;
  /** Of the model card: the base's id on a hub, and its license. */
  base_model: string | undefined;
  license: string | undefined;
  /** Whether the adapter alone is wanted. */
  alone: boolean;
  /** Files of the model, or the address of its .onnx file. */
  files: { name: string; blob: Blob }[] | string | undefined;
}
