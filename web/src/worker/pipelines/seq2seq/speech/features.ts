// Log-mel features of recordings of any length for Whisper: windows of one graph, normalized over
// the whole recording, as logic/speech/features.py says; only what is needed is in memory.

import type { AudioFields } from "../../../../gen/schema.ts";
import {
  around,
  floor_of,
  HOP,
  LOWEST,
  type Part,
  parts_of,
} from "../../../../logic/speech/features.ts";
import type { TaskTensor } from "../../../../protocol/tasks.ts";
import { drive } from "../../../../shared/drive.ts";
import { ModelError } from "../../../../shared/errors.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { described } from "../../inputs.ts";
import { numbers } from "../../outputs.ts";

/** Samples of a recording, read in order. */
export interface Samples {
  readonly length: number;
  /**
   * Samples [start, end), which may be outside of the recording and are then left out. `start` does
   * not decrease, unless `again` is called.
   */
  read(start: number, end: number): Promise<Float32Array<ArrayBuffer>>;
  /** Begins again. */
  again(): void;
}

/** Features of a recording. */
export interface Features {
  readonly frames: number;
  /** Frames that are not padding. */
  readonly spoken: number;
  /** Frames [start, start + size of a window), zeros after the last one: [bins, size]. */
  window(start: number): Promise<Float32Array<ArrayBuffer>>;
}

/** What a host knows of Whisper's feature extractor. */
export function descriptionOf(host: TaskHost): AudioFields & { length: { exact: number } } {
  const found = described(host, "audio");
  if (found.type !== "Whisper" || !found.length.exact || found.sampling_rate !== 16000)
    throw new ModelError(
      "its processor is not Whisper's",
      host.task,
      "Build the package again with this version: `edgewise build --task`.",
    );
  return found as AudioFields & { length: { exact: number } };
}

/**
 * The features of samples. Those of at most a window are padded to one, longer ones keep their
 * length: a multiple of the hop, without the last frame.
 */
export async function featuresOf(
  host: TaskHost,
  samples: Samples,
  ending: Ending,
  onPass?: (done: number) => void,
): Promise<Features> {
  const { exact } = descriptionOf(host).length;
  if (samples.length > exact) return LongFeatures.of(host, samples, exact, ending, onPass);
  const audio = new Float32Array(exact);
  audio.set(await samples.read(0, samples.length));
  const { input_features } = await host.run("pre", { audio: tensor(audio, [1, exact]) }, ending);
  const { data, dims } = numbers(input_features!);
  const frames = dims.at(-1)!;
  return {
    frames,
    spoken: Math.ceil(samples.length / HOP),
    window: async (start) => rowsOf(parts_of(start, frames, frames, frames), [data], frames),
  };
}

/**
 * A window of parts of clips, zeros where there is none.
 * @param clips [bins, size], of each part
 */
function rowsOf(
  parts: readonly Part[],
  clips: readonly Float32Array[],
  size: number,
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(clips[0]?.length ?? 0);
  parts.forEach(({ first, length, at }, i) => {
    for (let row = 0; row < out.length; row += size)
      out.set(clips[i]!.subarray(row + first, row + first + length), row + at);
  });
  return out;
}

/** Clips side by side: a first pass finds the recording's maximum. */
class LongFeatures implements Features {
  readonly frames: number;
  /** The latest clips by number. */
  private readonly kept = new Map<number, Float32Array<ArrayBuffer>>();
  private readonly around: number;
  private floor = LOWEST;

  private constructor(
    private readonly host: TaskHost,
    private readonly samples: Samples,
    private readonly size: number,
    private readonly ending: Ending,
  ) {
    this.frames = Math.floor(samples.length / HOP);
    const { inputs } = host.graph("clip");
    this.around = Number(inputs.find(({ name }) => name === "audio")?.shape?.at(-1));
  }

  static async of(
    host: TaskHost,
    samples: Samples,
    size: number,
    ending: Ending,
    onPass?: (done: number) => void,
  ): Promise<LongFeatures> {
    const made = new LongFeatures(host, samples, size, ending);
    const count = Math.ceil(samples.length / size);
    made.floor = await drive(floor_of(samples.length, size), async ({ number }) => {
      onPass?.(number / count);
      return (await made.run(number))[1];
    });
    samples.again();
    return made;
  }

  get spoken(): number {
    return this.frames;
  }

  async window(start: number): Promise<Float32Array<ArrayBuffer>> {
    const size = this.size / HOP;
    const parts = parts_of(start, size, this.frames, size);
    for (const n of this.kept.keys()) if (n < parts[0]!.clip) this.kept.delete(n);
    const clips: Float32Array<ArrayBuffer>[] = [];
    for (const { clip } of parts) {
      if (!this.kept.has(clip)) this.kept.set(clip, (await this.run(clip))[0]);
      clips.push(this.kept.get(clip)!);
    }
    return rowsOf(parts, clips, size);
  }

  /** Features of clip `n`, and the highest value in it. */
  private async run(n: number): Promise<[Float32Array<ArrayBuffer>, number]> {
    const { around: width, floor, host, ending } = this;
    const feeds = {
      audio: tensor(await this.read(n), [1, width]),
      floor: tensor(Float32Array.of(floor), [1]),
    };
    const { input_features, maximum } = await host.run("clip", feeds, ending);
    return [numbers(input_features!).data as Float32Array<ArrayBuffer>, numbers(maximum!).data[0]!];
  }

  /** The samples of clip `n`, and what lies around it. */
  private async read(n: number): Promise<Float32Array<ArrayBuffer>> {
    const { around: width, samples, size } = this;
    const { start, left, inner: count, right } = around(n, size, width, samples.length);
    const out = new Float32Array(width);
    const inner = await samples.read(start, start + count);
    out.set(inner, left);
    for (let i = 0; i < left; i++) out[i] = inner[Math.min(left - i, samples.length - 1)]!;
    for (let i = 0; i < right; i++) out[left + count + i] = inner[count - 2 - i] ?? 0;
    return out;
  }
}

function tensor(values: Float32Array<ArrayBuffer>, dims: number[]): TaskTensor {
  const data = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return { type: "float32", dims, data };
}
