// Messages of a TrainingSession on ONNX Runtime's training artifacts.

import type { DeviceInfo } from "../shared/platform.ts";

/** What artifacts are, as python/edgewise/training/artifact_calls.py reads them. */
export interface ArtifactsInfo {
  /** Names of what the training model is fed and gives, the loss first. */
  train: { inputs: string[]; outputs: string[] };
  /** Of the evaluation model, if there is one. */
  eval?: { inputs: string[]; outputs: string[] };
  /** There is an optimizer model. */
  optimizer: boolean;
  /** The checkpoint's, else the optimizer's. */
  learning_rate: number;
  /** Those that are trained first; `bytes` of float32. */
  parameters: { name: string; dtype: string; shape: number[]; bytes: number; trainable: boolean }[];
  /** What it runs on, and why on nothing faster. */
  device: DeviceInfo;
}
/** A tensor on its way between page and worker: bytes, little-endian. */
export interface PlainTensor {
  type: string;
  dims: number[];
  data: Uint8Array<ArrayBuffer>;
}
