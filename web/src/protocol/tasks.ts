// Messages of pipelines other than text generation.

import type { ModelInfo } from "./loading.ts";

/** Properties of a loaded pipeline. */
export interface TaskInfo
  extends Pick<
    ModelInfo,
    "device" | "flavour" | "threads" | "isolated" | "whyNotThreads" | "origin" | "dtype"
  > {
  /** Bytes. `engine` is the total that the engine holds, of which `weights` are a part. */
  memory: { engine: number; weights: number };
  /** As `ModelInfo.ms`. */
  ms: ModelInfo["ms"];
}

/** A tensor in a message. `data`: its bytes, little-endian. */
export interface TaskTensor {
  type: string;
  dims: number[];
  data: Uint8Array<ArrayBuffer>;
}

/** A picture: an absolute address, a file, a bitmap, or pixels. */
export type TaskPicture =
  | string
  | Blob
  | ImageBitmap
  | ImageData
  | { data: Uint8Array | Uint8ClampedArray; width: number; height: number; channels: number };

/** One input of a call. */
export type TaskInput =
  | string
  | { text: string; text_pair: string }
  | { question: string; context: string }
  | { image: TaskPicture };

/** A call of a pipeline. */
export interface TaskCall {
  inputs: TaskInput[];
  /** Options of the task, as the caller gave them, without undefined ones. */
  options: Record<string, unknown>;
}
