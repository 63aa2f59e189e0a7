// The sound that pipelines speak, and their options.

import type { GenerationFields } from "../../protocol/generation.ts";
import type { Tensor } from "../tensor.ts";
import type { CallOptions } from "./base-types.ts";
import type { SoundInput } from "./sounds.ts";

/** Phonemes of a text: a string, or a list of sentences. */
export type Phonemes = string | readonly (string | readonly string[])[];

/** Options of text-to-speech. An option that the model does not have is refused. */
export interface TextToSpeechOptions extends CallOptions {
  /**
   * Of Kokoro: the name of a voice; default: "af_heart", or the only one. Of language models: a
   * name (Orpheus), or a speaker (OuteTTS).
   */
  voice?: string | object;
  /**
   * Numbers of a voice: of Kokoro instead of `voice`, float32 [rows, 1, 256]; of SpeechT5 an
   * x-vector, of Supertonic a style, which may be an address; of Chatterbox and Pocket TTS what
   * `encode_speech` returned.
   */
  speaker_embeddings?: Float32Array | Tensor | string | URL | Record<string, Tensor>;
  /** Of Chatterbox and Pocket TTS: a recording of the voice. */
  audio_values?: SoundInput;
  /** Of Chatterbox: how much emotion the voice has. Default: 0.5. */
  exaggeration?: number;
  /** Of Pocket TTS: of the noise. Default: 0.7. */
  temperature?: number;
  /** Of Pocket TTS: where the speech ends. Defaults: -4 (a logit), 3, 500. */
  eos_threshold?: number;
  frames_after_eos?: number;
  max_frames?: number;
  /** Of Supertonic and Pocket TTS. Defaults: 5, 1. */
  num_inference_steps?: number;
  /** Of SpeechT5. Defaults: 0.5, 0, 20. */
  threshold?: number;
  minlenratio?: number;
  maxlenratio?: number;
  /** Of language models and Chatterbox: fields of GenerationConfig. */
  generate_kwargs?: GenerationFields;
  /** Number or name of a speaker, where the model has several. Default: 0. */
  speaker?: number | string;
  /** Above 1 is faster. Of Piper and Kokoro. Default: 1. */
  speed?: number;
  /** Of Piper. Default: as in its .onnx.json. */
  noise_scale?: number;
  length_scale?: number;
  noise_w?: number;
  /** Makes phonemes of a text. Piper and Kokoro need one. */
  phonemizer?: (text: string) => Phonemes | Promise<Phonemes>;
  /** Of a call: whether each sentence is spoken by itself. Default: true; VITS: false. */
  split?: boolean;
  /** 0 to 2^63 - 1, of models that draw random numbers. Default: unpredictable. */
  seed?: number | bigint;
}

/** A sound. */
export interface SpeechSound {
  /** Samples of one channel, from -1 to 1. */
  audio: Float32Array<ArrayBuffer>;
  /** Hz. */
  sampling_rate: number;
  /** The sound as a WAV file of 16 bits. */
  toBlob(): Blob;
}

/** A WAV file of 16 bits. What exceeds -1 to 1 is cut. */
export function wav(samples: Float32Array, rate: number): Blob {
  const size = 2 * samples.length;
  const view = new DataView(new ArrayBuffer(44 + size));
  const text = (at: number, of: string) => {
    for (let i = 0; i < of.length; i++) view.setUint8(at + i, of.charCodeAt(i));
  };
  text(0, "RIFF");
  view.setUint32(4, 36 + size, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint32(20, 0x10001, true); // PCM, one channel
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint32(32, 0x100002, true); // 2 bytes, 16 bits
  text(36, "data");
  view.setUint32(40, size, true);
  for (const [i, x] of samples.entries())
    view.setInt16(44 + 2 * i, Math.round(Math.max(-1, Math.min(1, x)) * 32767), true);
  return new Blob([view], { type: "audio/wav" });
}
