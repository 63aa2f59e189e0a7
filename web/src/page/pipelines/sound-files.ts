// Headers of sound files: the samples of WAV files, and the sampling rate of others, so that they
// are decoded without a change of rate.

import type { WavSamples } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";

const PCM = 1;
const FLOAT = 3;
const EXTENSIBLE = 0xfffe;
export const MAX_CHANNELS = 64; // as Python
const HEADER = 1 << 16; // bytes of a file that are read at once

/** What a WAV file contains. */
export interface Wav {
  /** Hz */
  sampling_rate: number;
  /** Undefined: its encoding needs a decoder. */
  wav: WavSamples | undefined;
}

/**
 * Reads the header of a WAV file. Mirrors read_wav of python/edgewise/host/media/wav.py.
 * @returns undefined if the file is none
 * @throws InputError if it is damaged
 */
export async function readWav(file: Blob, name: string): Promise<Wav | undefined> {
  let first = 0;
  let view = new DataView(await file.slice(0, HEADER).arrayBuffer());
  const tag = (at: number): string =>
    at + 4 > first + view.byteLength ? "" : textAt(view, at - first, 4);
  if (tag(0) !== "RIFF" || tag(8) !== "WAVE") return undefined;
  let format: DataView | undefined;
  for (let at = 12; at + 8 <= file.size; ) {
    if (at + 48 > first + view.byteLength) {
      first = at;
      view = new DataView(await file.slice(at, at + HEADER).arrayBuffer());
    }
    const size = view.getUint32(at - first + 4, true);
    const there = Math.min(size, file.size - at - 8); // a stream's last chunk may be shorter
    const chunk = tag(at);
    if (chunk === "fmt ") {
      if (there < 16) throw damaged("its format is truncated", name);
      format = new DataView(view.buffer, at - first + 8, Math.min(there, 40));
    } else if (chunk === "data") {
      if (!format) throw damaged("it has no format", name);
      return described(format, file, at + 8, there, name);
    }
    at += 8 + size + (size % 2);
  }
  throw damaged("it has no samples", name);
}

function described(format: DataView, file: Blob, at: number, bytes: number, name: string): Wav {
  const declared = format.getUint16(0, true);
  const extended = declared === EXTENSIBLE && format.byteLength >= 26;
  const kind = extended ? format.getUint16(24, true) : declared;
  const channels = format.getUint16(2, true);
  const sampling_rate = format.getUint32(4, true);
  const bits = format.getUint16(14, true);
  if (channels < 1 || channels > MAX_CHANNELS) throw damaged(`it has ${channels} channels`, name);
  if (!sampling_rate) throw damaged("its sampling rate is 0", name);
  const known =
    (kind === PCM && [8, 16, 24, 32].includes(bits)) || (kind === FLOAT && [32, 64].includes(bits));
  const length = Math.floor((8 * bytes) / (channels * bits));
  const float = kind === FLOAT;
  return { sampling_rate, wav: known ? { file, at, length, channels, bits, float } : undefined };
}

function damaged(what: string, name: string): InputError {
  return new InputError(`the WAV file is damaged: ${what}`, name, "Convert the recording again.");
}

function textAt(view: DataView, at: number, bytes: number): string {
  if (at + bytes > view.byteLength) return "";
  return String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + at, bytes));
}

const MP3_RATES = [44_100, 48_000, 32_000];
const OPUS_RATE = 48_000;

/** The sampling rate in a FLAC, Ogg or MP3 file's header, Hz; undefined if it is not known. */
export function rateOf(view: DataView): number | undefined {
  const n = view.byteLength;
  if (textAt(view, 0, 4) === "fLaC" && n >= 22) return view.getUint32(18) >>> 12;
  if (textAt(view, 0, 4) === "OggS" && n > 27) {
    const at = 27 + view.getUint8(26);
    if (textAt(view, at, 7) === "\u0001vorbis" && at + 16 <= n)
      return view.getUint32(at + 12, true);
    return textAt(view, at, 8) === "OpusHead" ? OPUS_RATE : undefined;
  }
  let at = 0;
  if (textAt(view, 0, 3) === "ID3" && n >= 10)
    for (let i = 6, size = 0; i < 10; i++, at = size + 10) size = size * 128 + view.getUint8(i);
  const head = at + 4 <= n ? view.getUint32(at) : 0;
  const [version, rate] = [(head >>> 19) & 3, MP3_RATES[(head >>> 10) & 3]];
  if (head >>> 21 !== 0x7ff || rate === undefined || version === 1 || !((head >>> 17) & 3))
    return undefined;
  return version === 3 ? rate : version === 2 ? rate / 2 : rate / 4;
}
