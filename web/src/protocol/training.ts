// Messages about fine-tuning and adapters.

import type { Schedule } from "../shared/schedules.ts";

/** What the page sees of an adapter. */
export interface AdapterInfo {
  /** As it was trained or loaded. */
  name: string;
  /** `lora`: low-rank matrices beside the layers; `full`: a copy of all trained parameters. */
  kind: "lora" | "full";
  /** Generation uses it. */
  active: boolean;
  /**
   * What its effect is multiplied with; 1 unless `setAdapter` said otherwise. Of `full` always 1.
   */
  scale: number;
  /** Of its tensors, in float32. */
  bytes: number;
  /** Rank, of LoRA. */
  r?: number;
  /** Its effect is multiplied with `lora_alpha / r`. */
  lora_alpha?: number;
}

/** An adapter that is kept in this browser. */
export interface KeptAdapter {
  /** For `loadAdapter(name)`. */
  name: string;
  /** Of its file. */
  bytes: number;
  /** When it was kept, in milliseconds since 1970. */
  saved: number;
}

/**
 * What a run is made of, besides the texts: FineTuneOptions as the page resolved them, see there.
 * `undefined` stands for the default.
 */
export interface TrainingFields {
  adapter: "lora" | "full" | undefined;
  name: string | undefined;
  r: number | undefined;
  lora_alpha: number | undefined;
  epochs: number | undefined;
  max_steps: number | undefined;
  learning_rate: number | undefined;
  schedule: Schedule | undefined;
  warmup_steps: number | undefined;
  seed: number | bigint | undefined;
  gradient_accumulation_steps: number | undefined;
  evaluation: string[] | number | undefined;
  evaluate_every: number | undefined;
  checkpoint: { name: string; every: number | undefined } | undefined;
  resume: boolean | undefined;
}

/** Where a run stands after an update. */
export interface StepEvent {
  /** Updates so far. */
  step: number;
  /** Updates in all. */
  total: number;
  /** Passes over the data so far, with a fraction. */
  epoch: number;
  /** Mean cross entropy of this update's batch before the update, in nats per token. */
  loss: number;
  /** That this update was made with. */
  learning_rate: number;
  /** Tokens learned from per second, pauses left out. */
  tokens_per_second: number;
  /** Expected, at the speed of the last steps. */
  seconds_left: number;
  /**
   * Bytes. `engine` is all that the engine holds; states (parameters, optimizer) and `activations`
   * (of a step) are parts of it.
   */
  memory: { engine: number; states: number; activations: number };
  /** Loss on the evaluation texts, where it was computed now. */
  evaluation?: number;
  /** A checkpoint was written now: its bytes; or why it could not be. */
  checkpoint?: number | string;
}

/** What a run will be, before its first step. */
export interface TrainingInfo {
  /** What is trained: adapters, or all parameters. */
  program: "lora" | "full";
  /** The adapter's name in `model.adapters`. */
  adapter: string;
  /** Updates made already, by a run that is resumed. */
  step: number;
  /** Updates in all. */
  total: number;
  /** Rows of a batch. */
  batch: number;
  /** Tokens of a row. */
  sequence: number;
  /** Batches of an update. */
  gradient_accumulation_steps: number;
  /** Blocks of `sequence` tokens that the texts make. */
  blocks: number;
  /** Tokens that are learned from per epoch. */
  tokens: number;
  /** Tokens that evaluations predict. */
  evaluation_tokens: number;
  /** Numbers that are trained. */
  parameters: number;
  /** Bytes, before the first step. */
  memory: StepEvent["memory"];
  /** Of the steps made already. */
  losses: number[];
  /** (update, loss on the evaluation texts) so far. */
  evaluations: [step: number, loss: number][];
}

/** How a run ended. */
export interface TrainingResult {
  /** The adapter's name in `model.adapters`. */
  adapter: string;
  /** Updates made. */
  step: number;
  /** Updates that there were to be. */
  total: number;
  /** Nats per token, of all updates. */
  losses: number[];
  /** (update, loss on the evaluation texts). */
  evaluations: [step: number, loss: number][];
  /** Spent in steps, on this visit. */
  seconds: number;
  /** Why the last checkpoint could not be written; empty where there is none to tell of. */
  checkpoint_error: string;
}
