// Messages of a TrainingSession on ONNX Runtime's training artifacts.

import type { DeviceInfo } from "../shared/platform.ts";

/** Description of training artifacts, made by
 * python/edgewise/extras/onnxruntime_training/artifact_files/calls.py. */
export interface ArtifactsInfo {
  /** Inputs and outputs of the training model, the loss first. */
  train: { inputs: string[]; outputs: string[] };
  /** Inputs and outputs of the evaluation model, if there is one. */
  eval?: { inputs: string[]; outputs: string[] };
  /** Whether there is an optimizer model. */
  optimizer: boolean;
  /** Learning rate of the checkpoint, else of the optimizer model. */
  learning_rate: number;
  /** Trained parameters first; `bytes` as float32. */
  parameters: { name: string; dtype: string; shape: number[]; bytes: number; trainable: boolean }[];
  /** The device in use, and why no faster one is used. */
  device: DeviceInfo;
}

/** Result of a step. */
export interface ArtifactsAnswer {
  /** Outputs by name. */
  values: Record<string, PlainTensor>;
  /** The device, where it is a GPU: plans were compiled of which parts may run elsewhere. */
  device?: DeviceInfo;
}

/** A tensor in a message between page and worker; `data` is little-endian. */
export interface PlainTensor {
  type: string;
  dims: number[];
  data: Uint8Array<ArrayBuffer>;
}
