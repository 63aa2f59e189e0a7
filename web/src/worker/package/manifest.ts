// A package's manifest that has been checked.

import type { CacheDType } from "../../protocol/loading.ts";
import type { InferenceInfo } from "../inference/manifest.ts";
import type { Slot, Weight } from "./checker.ts";

/**
 * A plan for `tokens` tokens at once. `registers`: numbers of those that hold the past length and
 * the last token's place.
 */
export interface PlanInfo {
  tokens: number;
  file: string;
  registers: { past: number; last: number };
  slots: Slot[];
}
/** A language model's plans. */
export interface DecoderInfo {
  /** The model has no cache: every run is given the whole text. */
  recompute: boolean;
  /** Most tokens of a sequence. */
  capacity: number;
  /** Number of logits. */
  vocabSize: number;
  /** What keys and values are kept as: "float32" or "float16". */
  cacheDtype: CacheDType;
  /** Of one sequence. */
  caches: { name: string; bytes: number }[];
  /** In the order of their tokens. */
  plans: PlanInfo[];
}
/** What the plans of a training program are for: see python/edgewise/training/program.py. */
export const TRAINING_PLANS = ["train", "accumulate", "update", "evaluate", "initialize"] as const;
/** One of them. */
export type TrainingPlan = (typeof TRAINING_PLANS)[number];
/**
 * A tensor that persists between runs, and how it begins: as a weight of the package, filled with a
 * number, or random.
 */
export interface StateInfo {
  name: string;
  kind: "parameter" | "adapter" | "buffer" | "optimizer" | "gradient" | "step";
  dtype: string;
  shape: number[];
  bytes: number;
  initial: ["constant", string] | ["fill", number] | ["uniform" | "normal", number, number];
}
/** Fields of PEFT's adapter_config.json that the program was made with. */
export interface LoraInfo {
  r: number;
  lora_alpha: number;
  use_rslora: boolean;
  [field: string]: unknown;
}
/**
 * A way to train the model: plans for a batch of `batch` rows of `sequence` tokens, and the states
 * they share.
 */
export interface ProgramInfo {
  name: string;
  batch: number;
  sequence: number;
  /** Null: all parameters are trained. */
  lora: LoraInfo | null;
  optimizer: { type: string; lr: number; [field: string]: unknown };
  /** Null: any. */
  maxGradNorm: number | null;
  plans: Map<TrainingPlan, { file: string; slots: Slot[]; arenaBytes: number }>;
  states: Map<string, StateInfo>;
  padTokenId: number | undefined;
  eosTokenId: number | undefined;
}
/** A manifest that has been checked. */
export interface Manifest {
  /** Of the engine's kernels that it was made for. */
  tableHash: number;
  /** `text-generation` or `inference`. */
  task: string;
  /** Names of the kernels that its plans call. */
  kernels: string[];
  /** Where they lie, from the beginning of the data. */
  files: Map<string, { offset: number; bytes: number }>;
  /** Of files that are checked, in hexadecimal digits. */
  sha256: Map<string, string>;
  weights: Map<string, Weight>;
  /** Of packages for text-generation. */
  decoder: DecoderInfo | undefined;
  /** Of packages of any other model. */
  inference: InferenceInfo | undefined;
  /** By name. Empty where the package cannot train. */
  training: Map<string, ProgramInfo>;
  /** Of entries of the page's own cache: what the compiler looked at (storage.ts). */
  cache: unknown;
}
