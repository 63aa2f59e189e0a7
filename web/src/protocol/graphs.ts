// Messages of models of several graphs, whose rules run them: codecs and others.

import type { DeviceInfo } from "../shared/platform.ts";
import type { TaskTensor } from "./tasks.ts";

/** What is known of a model that was opened. */
export interface GraphsInfo {
  /** The device in use, and why no faster one is used. */
  device: DeviceInfo;
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
