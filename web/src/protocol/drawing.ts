// Messages of text-to-image.

import type { TaskPicture } from "./tasks.ts";

/** Float32 numbers with a shape. */
export interface PlainNumbers {
  dims: readonly number[];
  data: Float32Array;
}

/** A call. */
export interface DrawCall {
  /** What image-to-image begins with. */
  pictures: TaskPicture[];
  /** White where the pictures are made anew. */
  mask: TaskPicture | undefined;
  /** As the caller gave them, without undefined ones; tensors as PlainNumbers. */
  options: Record<string, unknown>;
}

/** RGB, 3 bytes a pixel, row by row. */
export interface DrawnPicture {
  data: Uint8Array<ArrayBuffer>;
  width: number;
  height: number;
}

/** The result of a call. */
export interface Drawn {
  pictures: DrawnPicture[];
  /** With `output_type: "latent"` instead of pictures. */
  latents: PlainNumbers | undefined;
  /** For each picture; undefined without a safety checker. */
  unsafe: boolean[] | undefined;
  seeds: bigint[];
}

/** After each step. */
export interface DrawEvent {
  status: "step";
  /** From 0 on. */
  step: number;
  /** How many there are. */
  steps: number;
  timestep: number;
  /** Estimates with a pixel for each latent, if they are asked for. */
  previews: DrawnPicture[];
}
