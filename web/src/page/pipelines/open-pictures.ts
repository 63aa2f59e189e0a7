// Pictures that a pipeline keeps, for masks of one prompt after the other.

import type { Tensor } from "../tensor.ts";
import type { CallOptions } from "./base-types.ts";
import type { ImageInput } from "./pictures.ts";

/** What shows an object. Coordinates are pixels of the picture, x before y. */
export interface MaskPrompts extends CallOptions {
  /** [x, y]; or lists of these: the points of an object, or of several objects. */
  input_points?: number[] | number[][] | number[][][] | number[][][][];
  /** Of the points: 1: of the object, 0: not of it. Default: 1. */
  input_labels?: number[] | number[][] | number[][][];
  /** [left, top, right, bottom] of each object. */
  input_boxes?: number[] | number[][] | number[][][];
  /** false: only the mask of each object with the highest score. Default: true. */
  multimask_output?: boolean;
  /** Logit above which a pixel is in a mask. Default: 0. */
  mask_threshold?: number;
}

/** The masks of prompts. */
export interface PromptedMasks {
  /** bool [objects, masks, height, width] */
  masks: Tensor;
  /** float32 [objects, masks] */
  iou_scores: Tensor;
  /** float32 [objects, 1], of models that have it. */
  object_score_logits?: Tensor;
}

/** A picture that the model has seen: masks of prompts take milliseconds. */
export interface OpenPicture {
  readonly height: number;
  readonly width: number;
  /** The masks of prompts. */
  masks(prompts: MaskPrompts): Promise<PromptedMasks>;
  /** Frees its memory. */
  close(): Promise<void>;
}

/**
 * `open` of a pipeline.
 * @param run calls the pipeline
 */
export function opener(
  run: (input: unknown, options: Record<string, unknown>) => Promise<unknown>,
): (image: ImageInput, options?: CallOptions) => Promise<OpenPicture> {
  let count = 0;
  return async (image, options = {}) => {
    const picture = ++count;
    const size = (await run(image, { ...options, open: picture })) as OpenPicture;
    return {
      ...size,
      masks: async (prompts) => (await run({ picture }, { ...prompts })) as PromptedMasks,
      close: async () => void (await run({ picture }, { close: true })),
    };
  };
}
