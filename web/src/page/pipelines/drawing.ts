// text-to-image in a page. Options are those of diffusers' StableDiffusionPipeline.

import type { DrawEvent, Drawn, DrawnPicture } from "../../protocol/drawing.ts";
import type { LoadRequest, ProgressEvent } from "../../protocol/loading.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { checkFunction } from "../../shared/inputs.ts";
import { type Client, startClient } from "../client.ts";
import { warn } from "../env-aliases.ts";
import { Tensor } from "../tensor.ts";
import type { CallOptions, PipelineBase } from "./base-types.ts";
import { type ImageInput, RawImage, sendable } from "./pictures.ts";

/** What happened in a step. */
export interface DrawStep {
  /** From 0 on. */
  step: number;
  /** How many there are. */
  steps: number;
  timestep: number;
  /** See {@link TextToImageOptions.preview_steps}. */
  previews: RawImage[];
}

/** Options of text-to-image. Tensors are of float32. */
export interface TextToImageOptions extends CallOptions {
  /** A picture to begin with, or several: image-to-image. */
  image?: ImageInput | ImageInput[];
  /** White where `image` is made anew, black where it is kept: inpainting. */
  mask_image?: ImageInput;
  /**
   * How much of `image` is replaced, from 0 to 1. Default: 0.8, with a mask 1; of Stable Diffusion
   * XL 0.3 and 0.9999.
   */
  strength?: number;
  /** Of the picture; that which the package was built for. */
  height?: number;
  width?: number;
  /** Default: 50; of latent consistency models 4. */
  num_inference_steps?: number;
  /** Instead of num_inference_steps, where the scheduler takes them. */
  timesteps?: number[];
  sigmas?: number[];
  /** Of LCMScheduler. */
  original_inference_steps?: number;
  /** Above 1 each step runs the model twice. Default: 7.5; of XL 5. Of Turbo models: 0. */
  guidance_scale?: number;
  guidance_rescale?: number;
  negative_prompt?: string | string[];
  /** Default: 1. */
  num_images_per_prompt?: number;
  /** Of DDIMScheduler. */
  eta?: number;
  /** 0 to 2^63 - 1, or one for each picture. Picture i has the seed plus i. */
  seed?: number | bigint | (number | bigint)[];
  /** [pictures, channels, height / 8, width / 8] to begin with. */
  latents?: Tensor;
  /** [prompts, tokens, size] instead of prompts. */
  prompt_embeds?: Tensor;
  negative_prompt_embeds?: Tensor;
  /** Texts for the second text encoder of Stable Diffusion XL. Default: those of the first. */
  prompt_2?: string | string[];
  negative_prompt_2?: string | string[];
  /** [prompts, size], with prompt_embeds of Stable Diffusion XL. */
  pooled_prompt_embeds?: Tensor;
  negative_pooled_prompt_embeds?: Tensor;
  /** [height, width] and [top, left] that Stable Diffusion XL is told of. */
  original_size?: [number, number];
  crops_coords_top_left?: [number, number];
  target_size?: [number, number];
  negative_original_size?: [number, number];
  negative_crops_coords_top_left?: [number, number];
  negative_target_size?: [number, number];
  /** A scheduler of diffusers, such as "DPMSolverMultistepScheduler", or its configuration. */
  scheduler?: string | (Record<string, unknown> & { _class_name?: string });
  /** Default: image. */
  output_type?: "image" | "latent";
  /** false: pictures are not checked. Default: true. */
  safety_checker?: boolean;
  /** Is called after each step. */
  onStep?: (step: DrawStep) => void;
  /**
   * After so many steps `onStep` gets previews, with a pixel for each latent. Their colors are
   * those of Stable Diffusion 1 and 2. Default: 0, none.
   */
  preview_steps?: number;
}

/** Pictures of texts. */
export interface TextToImageResult {
  images: RawImage[];
  /** With `output_type: "latent"` instead of images. */
  latents?: Tensor;
  /** For each picture, whether the safety checker has blackened it; null without a checker. */
  nsfw_content_detected: boolean[] | null;
  /** The seed that gives each picture alone. */
  seeds: bigint[];
}

/** Makes pictures of texts with Stable Diffusion. */
export interface TextToImagePipeline extends PipelineBase {
  (
    prompt: string | readonly string[] | undefined,
    options?: TextToImageOptions,
  ): Promise<TextToImageResult>;
}

/** Loads the pipeline. */
export async function drawingPipeline(
  request: LoadRequest,
  { signal, onProgress }: CallOptions & { onProgress?: unknown },
): Promise<TextToImagePipeline> {
  const client = await startClient(request.priority);
  try {
    const transfer =
      typeof request.model === "object" && "port" in request.model ? [request.model.port] : [];
    const listener = onProgress as ((event: ProgressEvent) => void) | undefined;
    const info = await client.call("draw_open", request, {
      signal,
      onProgress(event) {
        if (event.status === "warning") warn(event.message);
        listener?.(event);
      },
      transfer,
    });
    client.info = info;
    const dispose = async (): Promise<void> => client.end();
    const call = (prompt: unknown, options: TextToImageOptions = {}) =>
      draw(client, prompt, options ?? {});
    return Object.assign(call, { task: request.task, info, dispose }) as TextToImagePipeline;
  } catch (e) {
    client.end(); // each pipeline has its own worker, so this frees everything
    throw e;
  }
}

async function draw(
  client: Client,
  prompt: unknown,
  { signal, image, mask_image, onStep, ...rest }: TextToImageOptions,
): Promise<TextToImageResult> {
  const task = "text-to-image";
  if (signal?.aborted) throw new Aborted("the call was aborted by its signal", task, "");
  checkFunction("onStep", onStep);
  const pictures = [];
  const given = Array.isArray(image) ? image : image === undefined ? [] : [image];
  for (const one of given) pictures.push(await sendable(one));
  const masked = mask_image !== undefined && mask_image !== null;
  const mask = masked ? await sendable(mask_image) : undefined;
  const options: Record<string, unknown> = {};
  for (const [name, value] of Object.entries({ ...rest, prompt }))
    if (typeof value === "function")
      throw new InputError(
        "it is a function",
        `options.${name}`,
        "Give onStep: it gets each step.",
      );
    else if (value !== undefined)
      options[name] = value instanceof Tensor ? { dims: value.dims, data: value.data } : value;
  const made = await client.call(
    "draw_call",
    { pictures, mask, options },
    {
      signal,
      onProgress(event) {
        const { step, steps, timestep, previews } = event as unknown as DrawEvent;
        onStep?.({ step, steps, timestep, previews: previews.map(imageOf) });
      },
      transfer: [...pictures, mask].filter(
        (p): p is ImageBitmap => typeof p === "object" && "close" in p,
      ),
    },
  );
  return resultOf(made);
}

function resultOf({ pictures, latents, unsafe, seeds }: Drawn): TextToImageResult {
  return {
    images: pictures.map(imageOf),
    ...(latents ? { latents: new Tensor("float32", latents.data, [...latents.dims]) } : {}),
    nsfw_content_detected: unsafe ?? null,
    seeds,
  };
}

function imageOf({ data, width, height }: DrawnPicture): RawImage {
  return new RawImage(data, width, height, 3);
}
