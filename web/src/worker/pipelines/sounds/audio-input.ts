// What happens to samples before a processor's graph, as its description in a package says.
// Mirrors Length and Mask of python/edgewise/compiler/processors/audio/processor.py.

import type { AudioFields, SoundLength, SoundMask } from "../../../gen/schema.ts";
import { InputError } from "../../../shared/errors.ts";

/** Inputs of a processor's graph, and the model's mask. */
export interface AudioInput {
  /** [1, n] */
  audio: Float32Array<ArrayBuffer>;
  /** [1]: frames within the sound */
  valid: bigint | undefined;
  /** [1, n] of ones and zeros */
  mask: BigInt64Array | undefined;
}

/**
 * Cuts, repeats or fills samples.
 * @param samples one channel at the processor's rate
 * @throws InputError if there are too few or too many
 */
export function audioInput(
  description: AudioFields,
  samples: Float32Array<ArrayBuffer>,
): AudioInput {
  const { length, mask, frames } = description;
  const count = samples.length;
  if (count < length.least)
    throw new InputError(
      `the sound has ${count} samples, ${description.type} needs ${length.least}`,
      "audio",
      "Give a longer recording.",
    );
  const total = totalOf(length, count);
  if (count > total && !length.truncate)
    throw new InputError(
      `the sound has ${count} samples, ${description.type} takes ${total}`,
      "audio",
      `Cut it to ${total / description.sampling_rate} s.`,
    );
  const used = Math.min(count, total);
  return {
    audio: fitted(samples, total, length.repeat),
    valid: frames && BigInt(Math.floor((used - frames[0]) / frames[1]) + 1),
    mask: mask && maskOf(mask, used, total),
  };
}

function totalOf(length: SoundLength, count: number): number {
  if (typeof length.exact === "number") return length.exact;
  if (length.chunk) return (Math.ceil(count / length.stride) - 1) * length.stride + length.chunk;
  return Math.ceil(count / length.multiple) * length.multiple;
}

function fitted(
  samples: Float32Array<ArrayBuffer>,
  total: number,
  repeat: SoundLength["repeat"],
): Float32Array<ArrayBuffer> {
  if (samples.length === total) return samples;
  const out = new Float32Array(total);
  const whole = Math.max(1, repeat ? Math.floor(total / samples.length) : 1);
  const end = repeat === "repeat" ? total : Math.min(total, whole * samples.length);
  for (let at = 0; at < end; at += samples.length) out.set(samples.subarray(0, total - at), at);
  return out;
}

/** The mask of `count` samples that are padded to `total`. */
export function maskOf(mask: SoundMask, count: number, total: number): BigInt64Array {
  const valid = Math.max(0, Math.floor((count - mask.base) / mask.hop) + mask.valid);
  const steps = Math.floor((total - mask.base) / mask.hop) + mask.more;
  const out = new BigInt64Array(Math.ceil(steps / mask.group));
  return out.fill(1n, 0, Math.floor(valid / mask.group));
}
