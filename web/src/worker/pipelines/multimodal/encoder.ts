// An encoder of pictures of any size: a session beside the pipeline's plans, which compiles a plan
// for each size. Mirrors python/edgewise/host/pipelines/images/encoder.py.

import { pixel_dims, type Seen } from "../../../logic/images/views.ts";
import {
  batches,
  features_of,
  others_of,
  pixels_of,
  strips,
} from "../../../logic/multimodal/encoder.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { fromHalf, toHalf } from "../../../shared/float16.ts";
import type { Filled } from "../../model/load.ts";
import { Beside } from "../beside.ts";
import type { Ending, PictureEncoder, TaskHost } from "../host.ts";
import { described, integers } from "../inputs.ts";

const size = (dims: readonly number[]): number => dims.reduce((n, d) => n * d, 1);

/** See host.ts. */
export class Encoder implements PictureEncoder {
  private constructor(
    private readonly file: string,
    private readonly session: Beside,
  ) {}

  /**
   * Opens the encoder of a model that was loaded.
   * @param file its name, as the manifest says it
   * @throws as `Beside.open`
   */
  static async open(from: Filled, file: string): Promise<Encoder> {
    return new Encoder(file, await Beside.open(from, file, "encoder takes pictures of any size"));
  }

  async features(
    host: TaskHost,
    frames: readonly Uint8Array<ArrayBuffer>[],
    seen: Seen,
    ending: Ending,
  ): Promise<Uint8Array> {
    const { file, session } = this;
    const { info } = session;
    const { form, temporal } = described(host, "vision");
    const names = info.inputs.map(({ name }) => name);
    const pixels = pixels_of(names, file);
    const { dtype, shape } = info.inputs.find(({ name }) => name === pixels)!;
    const dims = pixel_dims(form, temporal, seen, shape?.length ?? 0);
    const parts: Float32Array<ArrayBuffer>[] = [];
    for (const pieces of frames)
      parts.push(await numbersOf(host, pieces, seen, size(dims), ending));
    const numbers = mixed(parts, size(seen.piece));
    const feeds: Record<string, TaskTensor> = { [pixels]: tensor(dtype, dims, numbers) };
    for (const { name, dims, runs } of others_of(
      names.filter((name) => name !== pixels),
      seen,
      file,
    )) {
      const all = runs.flatMap(([value, times]) => new Array<number>(times).fill(value));
      const { dtype: type } = info.inputs.find((one) => one.name === name)!;
      feeds[name] = { ...integers(type, all), dims };
    }
    const outputs = features_of(info.outputs.map(({ name }) => name));
    const made = await session.run(feeds, outputs, ending);
    return rowsOf(made, host.needLanguage().info.features, file);
  }
}

/** The numbers of a picture, by runs of "pre". */
async function numbersOf(
  host: TaskHost,
  pieces: Uint8Array<ArrayBuffer>,
  seen: Seen,
  count: number,
  ending: Ending,
): Promise<Float32Array<ArrayBuffer>> {
  const { form, temporal } = described(host, "vision");
  const numbers = new Float32Array(count);
  const unit = form === "planes" ? 3 : 3 * size(seen.piece);
  for (const { first, dims, stretches } of batches(form, temporal, seen)) {
    const data = pieces.subarray(first * unit, first * unit + size(dims));
    const [made] = Object.values(
      await host.run("pre", { pixels: { type: "uint8", dims, data } }, ending),
    );
    const found = floats(made!);
    for (const { source, target, count: length } of stretches)
      numbers.set(found.subarray(source, source + length), target);
  }
  return numbers;
}

/** Numbers of frames that are seen together: in each piece and channel one after the other. */
function mixed(frames: readonly Float32Array<ArrayBuffer>[], each: number) {
  const [numbers, ...others] = frames;
  for (const [i, source] of others.entries())
    for (let at = (i + 1) * each; at < source.length; at += frames.length * each)
      numbers!.set(source.subarray(at, at + each), at);
  return numbers!;
}

function tensor(type: string, dims: number[], numbers: Float32Array<ArrayBuffer>): TaskTensor {
  const data = type === "float16" ? Uint16Array.from(numbers, toHalf) : numbers;
  return { type, dims, data: new Uint8Array(data.buffer) };
}

function floats({ type, data }: TaskTensor): Float32Array {
  const { buffer } = data.byteOffset % 4 ? data.slice() : data;
  const at = data.byteOffset % 4 ? 0 : data.byteOffset;
  return type === "float16"
    ? Float32Array.from(new Uint16Array(buffer, at, data.length / 2), fromHalf)
    : new Float32Array(buffer, at, data.length / 4);
}

/**
 * Features of the outputs of an encoder.
 * @param width numbers of a feature
 * @param file of the encoder, for errors
 * @throws InputError
 */
export function rowsOf(outputs: readonly TaskTensor[], width: number, file: string): Uint8Array {
  const dims = outputs.map((one) => one.dims);
  const parts = strips(dims, width, file);
  const sources = outputs.map(floats);
  const [last] = sources;
  const count = last!.length / parts[0]!.size;
  const rows = parts.length === 1 ? last! : new Float32Array(count * width);
  if (parts.length > 1)
    for (const { output, at, step, size: length, to } of parts)
      for (let i = 0; i < count; i++) {
        const from = at + i * step;
        rows.set(sources[output]!.subarray(from, from + length), to + i * width);
      }
  return new Uint8Array(rows.buffer, rows.byteOffset, 4 * rows.length);
}
