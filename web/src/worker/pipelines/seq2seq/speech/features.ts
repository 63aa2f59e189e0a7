// Log-mel features of recordings of any length for Whisper: windows of one graph, normalized over
// the whole recording, of which only what is needed is in memory. Mirrors
// python/edgewise/host/pipelines/whisper_features.py.

import type { AudioFields } from "../../../../gen/schema.ts";
import { HOP } from "../../../../logic/speech/recognition.ts";
import type { TaskTensor } from "../../../../protocol/tasks.ts";
import { ModelError } from "../../../../shared/errors.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { described } from "../../inputs.ts";
import { numbers } from "../../outputs.ts";

const LOWEST = -1e30; // a floor that changes nothing
const REFLECTED = 200; // samples after the end: half of the transform's length
const BELOW = 8; // what is further below the maximum is raised

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
    window: async (start) => rowsOf([data], frames, start, frames, 0),
  };
}

/**
 * Frames [start, start + size) of parts that are side by side, zeros after the last one.
 * @param parts [bins, size] each
 * @param frames of the recording
 * @param first frame of the first part
 */
function rowsOf(
  parts: readonly Float32Array[],
  size: number,
  start: number,
  frames: number,
  first: number,
): Float32Array<ArrayBuffer> {
  const bins = parts[0]!.length / size;
  const out = new Float32Array(bins * size);
  const stop = Math.min(start + size, frames);
  for (let bin = 0; bin < bins; bin++)
    parts.forEach((part, i) => {
      const begin = first + i * size;
      const [from, to] = [Math.max(start, begin), Math.min(stop, begin + size)];
      if (from >= to) return;
      const row = part.subarray(bin * size + from - begin, bin * size + to - begin);
      out.set(row, bin * size + from - start);
    });
  return out;
}

/** Windows side by side: a first pass finds the recording's maximum. */
class LongFeatures implements Features {
  readonly frames: number;
  /** The latest windows by number. */
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
    let highest = -Infinity;
    for (let n = 0; n < count; n++) {
      onPass?.(n / count);
      highest = Math.max(highest, (await made.run(n))[1]);
    }
    made.floor = Math.fround(highest - BELOW);
    samples.again();
    return made;
  }

  get spoken(): number {
    return this.frames;
  }

  async window(start: number): Promise<Float32Array<ArrayBuffer>> {
    const size = this.size / HOP;
    const first = Math.floor(start / size);
    for (const n of this.kept.keys()) if (n < first) this.kept.delete(n);
    const parts: Float32Array<ArrayBuffer>[] = [];
    for (let n = first; n < first + 2 && n * size < this.frames; n++) {
      if (!this.kept.has(n)) this.kept.set(n, (await this.run(n))[0]);
      parts.push(this.kept.get(n)!);
    }
    return rowsOf(parts, size, start, this.frames, first * size);
  }

  /** Features of window `n`, and the highest value in it. */
  private async run(n: number): Promise<[Float32Array<ArrayBuffer>, number]> {
    const { around, size, floor, host, ending } = this;
    const start = n * size - (around - size + HOP) / 2;
    const feeds = {
      audio: tensor(await this.read(start), [1, around]),
      floor: tensor(Float32Array.of(floor), [1]),
    };
    const { input_features, maximum } = await host.run("clip", feeds, ending);
    return [numbers(input_features!).data as Float32Array<ArrayBuffer>, numbers(maximum!).data[0]!];
  }

  /** Samples from `start` on: reflected at the recording's ends, and zeros further on. */
  private async read(start: number): Promise<Float32Array<ArrayBuffer>> {
    const { around, samples } = this;
    const out = new Float32Array(around);
    const inner = await samples.read(Math.max(start, 0), start + around);
    const left = Math.max(0, -start);
    out.set(inner, left);
    for (let i = 0; i < left; i++) out[i] = inner[Math.min(left - i, samples.length - 1)]!;
    const end = left + inner.length;
    const most = Math.min(around - end, REFLECTED, samples.length - 1);
    for (let i = 0; i < most; i++) out[end + i] = inner[inner.length - 2 - i] ?? 0;
    return out;
  }
}

function tensor(values: Float32Array<ArrayBuffer>, dims: number[]): TaskTensor {
  const data = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return { type: "float32", dims, data };
}
