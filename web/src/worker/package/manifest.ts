// Types of a validated manifest.

import type {
  Cache,
  DecoderPlan,
  ManifestSlot,
  OptimizerFields,
  PlanFile,
  Processor,
  SavedParameter,
  Seq2SeqPlan,
  SlidingWindow,
  State,
  TrainingPlans,
  Weight,
} from "../../gen/schema.ts";
import type { Sees } from "../../logic/multimodal/prompt.ts";
import type { CacheDType } from "../../protocol/loading.ts";
import type { InferenceInfo } from "../inference/manifest.ts";

/** The decoder of a language model. */
export interface DecoderInfo {
  /** Whether the model has no cache, so that every run processes the whole sequence. */
  recompute: boolean;
  /** Whether a run may hold fewer tokens than its plan is for. */
  padded: boolean;
  /** Maximum number of tokens of a sequence. */
  capacity: number;
  /** Size of the vocabulary. */
  vocabSize: number;
  /** Element type of the key/value cache. */
  cacheDtype: CacheDType;
  /** Caches of one sequence. */
  caches: Cache[];
  /** The window of those that hold the last positions alone; undefined: there are none. */
  window: SlidingWindow | undefined;
  /** Numbers of a row that may replace the embedding of a token; 0: plans take none. */
  features: number;
  /** Whether plans take positions of time, height and width. */
  positions: boolean;
  /** Where tokens see others that come after them. */
  sees: Sees | null;
  /** In ascending order of `tokens`. */
  plans: DecoderPlan[];
}
/** Plans of a training program: see python/edgewise/compiler/training/program.py. */
export const TRAINING_PLANS = [
  "train",
  "accumulate",
  "update",
  "evaluate",
  "initialize",
  "magnitudes",
  "swap",
] as const;
/** Name of a plan of a training program. */
export type TrainingPlan = keyof TrainingPlans;
/**
 * A tensor that persists between runs. `initial`: its initial value, which is a weight of the
 * package, a constant, or random.
 */
export interface StateInfo extends State {
  initial: ["constant", string] | ["fill", number] | ["uniform" | "normal", number, number];
}
/** The LoRA configuration of a program: fields of PEFT's adapter_config.json. */
export interface LoraInfo {
  r: number;
  lora_alpha: number;
  use_rslora: boolean;
  use_dora?: boolean;
  [field: string]: unknown;
}
/** A way to train the model: plans for batches of `batch` x `sequence` tokens, and their states. */
export interface ProgramInfo {
  name: string;
  batch: number;
  sequence: number;
  /** Null if all parameters are trained. */
  lora: LoraInfo | null;
  /** Parameters that are trained as a whole and kept in the adapter. */
  saved: readonly SavedParameter[];
  optimizer: OptimizerFields & { [field: string]: unknown };
  /** Null: no clipping. */
  maxGradNorm: number | null;
  /** Batches of an update, where none are given. */
  accumulation: number | undefined;
  /** Whether a part of the loss balances experts. */
  balances?: boolean;
  /** Whether rows have several documents. */
  packing?: boolean;
  /** Tokens that a teacher tells of each one; undefined: there is no teacher. */
  topK?: number | undefined;
  plans: Map<TrainingPlan, { file: string; slots: ManifestSlot[]; arenaBytes: number }>;
  states: Map<string, StateInfo>;
  padTokenId: number | undefined;
  eosTokenId: number | undefined;
  /** Positions of the encoder's output in a row; undefined: there is no encoder. */
  source: number | undefined;
}
/** The encoder for inputs of up to `size`, and the keys and values of what it returns. */
export interface SourcePlans {
  size: number;
  /** Positions of the encoder's output. */
  positions: number;
  run: PlanFile | undefined;
  cross: PlanFile;
}
/** An encoder-decoder model. Caches: bytes by name. */
export interface Seq2SeqInfo {
  /** Maximum number of tokens of a sequence. */
  capacity: number;
  vocabSize: number;
  /** Caches of a sequence. */
  caches: ReadonlyMap<string, number>;
  /** Caches of an input, which its sequences share. */
  cross: ReadonlyMap<string, number>;
  encoder: {
    input: string;
    masked: boolean;
    /** Whether all inputs have the same size. */
    fixed: boolean;
    /** In ascending order of `size`. */
    plans: SourcePlans[];
  };
  plans: Seq2SeqPlan[];
}
/** A validated manifest. */
export interface Manifest {
  /** Checksum of the kernel table that it was built for. */
  tableHash: number;
  /** `text-generation`, `inference`, or one of PROGRAM_TASKS. */
  task: string;
  /** The device that its plans are for; wasm runs all of them. */
  target: "cpu" | "webgpu";
  /** Names of the kernels used by its plans. */
  kernels: string[];
  /** Parts of the package; offsets are relative to the data section. */
  files: Map<string, { offset: number; bytes: number }>;
  /** SHA-256 of the parts that are verified, in hexadecimal digits. */
  sha256: Map<string, string>;
  weights: Map<string, Weight>;
  /** For packages for text-generation, and of pipelines with a language model. */
  decoder: DecoderInfo | undefined;
  /** For packages of any other model. */
  inference: InferenceInfo | undefined;
  /** For packages of other pipelines: their graphs by name. */
  programs: Map<string, InferenceInfo> | undefined;
  /** For packages of pipelines that generate text with an encoder. */
  seq2seq: Seq2SeqInfo | undefined;
  /** What a pipeline does with its inputs before they reach a graph; see the schema. */
  processor: Processor;
  /** Training programs by name; empty if there are none. */
  training: Map<string, ProgramInfo>;
  /** For packages in the page's own storage: the files that the compiler read (compiled.ts). */
  cache: unknown;
}
