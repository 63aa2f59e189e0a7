// Messages of models of several graphs, whose rules run them: codecs and others.

import type { TaskInfo, TaskTensor } from "./tasks.ts";

/** What is known of a model that was opened. */
export interface GraphsInfo
  extends Pick<TaskInfo, "device" | "flavour" | "threads" | "isolated" | "whyNotThreads"> {
  /** What its kind says of it. */
  about: Record<string, unknown>;
}

/** A call. `given`: of the kind's method. */
export interface GraphsCall {
  method: string;
  given: Record<string, unknown>;
}

/** Results by name: tensors, and plain values. */
export type GraphsAnswer = Record<string, TaskTensor | unknown>;
