// Resampling of sound in the engine (core/media/media.h). The source is passed in pieces of about
// 1 MB. Mirrors python/edgewise/host/media/resampling.py, with the same results.

import type { Device, Host } from "../../device/device.ts";
import { MAX_RATE, MAX_RATIO, PIECE } from "../../gen/resampling.ts";
import { InputError } from "../../shared/errors.ts";
import { bytesOf, checked, Memory } from "./memory.ts";

/**
 * Changes the sampling rate of sound that arrives in pieces, by a windowed sinc, without delay.
 * Frequencies up to 0.9 of the lower rate's Nyquist frequency keep their amplitude; those above
 * that frequency are attenuated by more than 80 dB. The result does not depend on how the sound is
 * divided: ceil(samples * toRate / rate) samples in total. Rates are in Hz, 1 to 2^20, at most 256
 * times higher or lower than each other; others throw an InputError.
 */
export class Resampler {
  private readonly host: Host;
  private readonly memory: Memory;
  private readonly work: number;
  private readonly input: number;

  constructor(
    device: Pick<Device, "host">,
    readonly rate: number,
    readonly toRate: number,
  ) {
    checkRates(rate, toRate);
    this.host = device.host;
    this.memory = new Memory(this.host);
    this.work = this.memory.alloc(checked(this.host, "ew_resample_bytes", rate, toRate));
    this.input = this.memory.alloc(PIECE);
    checked(this.host, "ew_resample_open", this.work, rate, toRate);
  }

  /** The samples that are complete after these. */
  feed(samples: Float32Array): Float32Array<ArrayBuffer> {
    const pieces: Float32Array[] = [];
    for (let at = 0; at < samples.length; at += PIECE / 4) {
      const piece = samples.subarray(at, at + PIECE / 4);
      this.host.write(this.input, bytesOf(piece));
      pieces.push(this.run(this.input, piece.length));
    }
    const out = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const piece of pieces) {
      out.set(piece, at);
      at += piece.length;
    }
    return out;
  }

  /** The samples that were waiting for later ones. Call it once, after the last piece. */
  end(): Float32Array<ArrayBuffer> {
    return this.run(0, 0);
  }

  private run(address: number, count: number): Float32Array<ArrayBuffer> {
    const most = checked(this.host, "ew_resample_most", this.work, count);
    const memory = new Memory(this.host);
    try {
      const out = memory.alloc(4 * most);
      const done = checked(this.host, "ew_resample_feed", this.work, address, count, out, most);
      return new Float32Array(this.host.read(out, 4 * done).buffer);
    } finally {
      memory.free();
    }
  }

  /** Frees its memory. */
  close(): void {
    this.memory.free();
  }
}

function checkRates(rate: number, toRate: number): void {
  for (const [value, where] of [
    [rate, "rate"],
    [toRate, "to_rate"],
  ] as const)
    if (!Number.isInteger(value) || value < 1 || value > MAX_RATE)
      throw new InputError(
        `the sampling rate ${value} is not a whole number of Hz from 1 to ${MAX_RATE}`,
        where,
        "Give the rate at which the sound was recorded.",
      );
  if (Math.max(rate, toRate) > MAX_RATIO * Math.min(rate, toRate))
    throw new InputError(
      `the rates ${rate} and ${toRate} differ by more than ${MAX_RATIO} times`,
      "resample_audio",
      "Give the sampling rate of the sound.",
    );
}
