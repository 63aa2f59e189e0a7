// Messages of personal pipelines: heads that are trained on the features of a pipeline's inputs.

import type { TaskInput } from "./tasks.ts";

/** A file of a model with a head in its graph. */
export type ExportFormat = "onnx" | "edge";

/** Options of a caller, which the worker checks. */
interface Examining {
  validation_split: unknown;
  seed: unknown;
}

/** A method of worker/pipelines/heads/heads.ts, with its arguments. */
export type HeadRequest =
  | ({ do: "begin"; fields: Record<string, unknown>; name: unknown } & Examining)
  /** Frees it. */
  | { do: "end" }
  | ({
      do: "teach";
      name: unknown;
      examples: [label: string, inputs: TaskInput[]][];
      lora: unknown;
    } & Examining)
  | { do: "add"; label: string; inputs: TaskInput[] }
  | { do: "remove"; label: string }
  | { do: "use"; name: string }
  | { do: "call"; inputs: TaskInput[]; options: Record<string, unknown> }
  | { do: "evaluate"; examples: [label: string, inputs: TaskInput[]][] }
  | { do: "save"; name: string | undefined }
  | { do: "export"; format: string }
  | { do: "load"; file: Blob; name: string | undefined };

/** How often the head is right on examples that it was not trained with. */
export interface Measures {
  /** Share of examples whose best label is right; null without examples. */
  accuracy: number | null;
  /** Number of examples. */
  count: number;
  /** How many examples of a label have which best label. */
  confusion: Record<string, Record<string, number>>;
  /**
   * Of a verification of one label, for labels with examples of it and of others: where as many
   * of its own are refused as of others are accepted, and the score at which that is.
   */
  equal_error_rates: Record<string, { rate: number; threshold: number }>;
}

/** The state of a personal pipeline. */
export interface HeadInfo {
  /** Name of the head in use. */
  name: string;
  /** Names of all heads. */
  heads: string[];
  /** Labels of the head in use, and how many examples each has. */
  labels: Record<string, number>;
  /** The loss of each step of its training; empty if it was loaded. */
  losses: number[];
  /** Milliseconds that the last features and the last training took. */
  ms: { features: number; training: number };
  validation: Measures | null;
  /** Where adapters were to be trained with the head; null for other heads. */
  lora: LoraReport | null;
}

/** What a training of adapters gave. */
export interface LoraReport {
  /** Whether the head has them: held-out examples are told apart better with them. */
  kept: boolean;
  /** Measures on the held-out examples without adapters. */
  before: Measures;
  /** With them; null if they are not kept. */
  after: Measures | null;
  /** The mean loss of each step's examples. */
  losses: number[];
  /** Mean cross entropy of the held-out examples: of the head alone, and of each measurement. */
  held_out_losses: number[];
}

/** A request to one of the personal pipelines that are made of the worker's pipeline. */
export interface HeadCall {
  /** Its number. */
  personal: number;
  request: HeadRequest;
}

/** What a method gives: results of a call, measures, or a file. */
export interface HeadAnswer {
  info: HeadInfo;
  results?: unknown[];
  measures?: Measures;
  file?: Blob;
}
