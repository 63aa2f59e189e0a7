// Guidance of diffusion models, and previews of their latents. Mirrors
// python/edgewise/logic/diffusion/guidance.py.

import type { Numbers } from "./stepper.ts";

/** Red, green and blue of the four latents of Stable Diffusion 1 and 2. */
const COLORS = [
  [0.298, 0.207, 0.208],
  [0.187, 0.286, 0.173],
  [-0.158, 0.189, 0.264],
  [-0.184, -0.271, -0.473],
] as const;

/**
 * Classifier-free guidance.
 * @param without the model's output for the negative prompt
 * @param prompted its output for the prompt
 * @param scale guidance_scale
 * @param rescale guidance_rescale: how far the deviation is brought back to that of `prompted`
 */
export function guided(
  without: Numbers,
  prompted: Numbers,
  scale: number,
  rescale: number,
): Numbers {
  const made = without.map((u, i) => u + scale * (prompted[i]! - u));
  if (!rescale) return made;
  const factor = (rescale * deviation(prompted)) / deviation(made) + 1 - rescale;
  return made.map((x) => factor * x);
}

function deviation(values: Numbers): number {
  let [mean, sum] = [0, 0];
  for (const x of values) mean += x / values.length;
  for (const x of values) sum += (x - mean) ** 2;
  return Math.sqrt(sum / Math.max(values.length - 1, 1));
}

/** The input `timestep_cond` of models whose guidance is distilled. */
export function scaleEmbedding(scale: number, size: number): Numbers {
  const half = size >> 1;
  const rate = Math.log(10000) / Math.max(half - 1, 1);
  return Float32Array.from({ length: size }, (_, i) => {
    const angle = (scale - 1) * 1000 * Math.exp(-rate * (i % half));
    return i < half ? Math.sin(angle) : i < 2 * half ? Math.cos(angle) : 0;
  });
}

/**
 * An estimate of a picture, a pixel for each latent.
 * @param latents [4, size] of a picture that the model expects
 * @returns RGB
 */
export function previewPixels(latents: Numbers): Uint8Array<ArrayBuffer> {
  const size = latents.length / 4;
  const pixels = new Uint8ClampedArray(3 * size);
  for (let i = 0; i < size; i++)
    for (let c = 0; c < 3; c++) {
      let value = 1;
      for (let k = 0; k < 4; k++) value += COLORS[k]![c]! * latents[k * size + i]!;
      pixels[3 * i + c] = Math.floor(Math.min(Math.max(127.5 * value, 0), 255) + 0.5);
    }
  return new Uint8Array(pixels.buffer);
}
