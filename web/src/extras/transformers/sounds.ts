// Sounds as samples, as transformers.js reads them.

import { InputError } from "../../page/index.ts";

/**
 * Samples of a sound at a sampling rate. Two channels are added, scaled by the square root of 2;
 * of more the first is taken, as there.
 * @param url address
 * @param sampling_rate Hz
 */
export async function load_audio(
  url: string | URL,
  sampling_rate: number,
): Promise<Float32Array<ArrayBuffer>> {
  if (!globalThis.OfflineAudioContext)
    throw new InputError(
      "there is no WebAudio here to decode the sound with",
      "read_audio",
      "In Node give the address of a WAV file, its bytes or samples to the pipeline itself.",
    );
  const answer = await fetch(url);
  if (!answer.ok)
    throw new InputError(
      `the sound cannot be read (status ${answer.status})`,
      String(url).slice(0, 200),
      "Check the address.",
    );
  const context = new OfflineAudioContext(1, 1, sampling_rate);
  const decoded = await context.decodeAudioData(await answer.arrayBuffer());
  const left = decoded.getChannelData(0);
  if (decoded.numberOfChannels !== 2) return left;
  const right = decoded.getChannelData(1);
  return left.map((x, i) => (Math.SQRT2 * (x + right[i]!)) / 2);
}

/** The former name of {@link load_audio}. */
export const read_audio = load_audio;
