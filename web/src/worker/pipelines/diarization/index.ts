// The part of the worker that says who spoke when, with the rules of logic/speech/diarization.py.
// The page has the model of voices: it asks for the samples of each voice, and gives vectors.

import {
  check_options,
  type Diarization,
  is_short,
  OPTIONS,
  rate_of,
  result_of,
  SAMPLES,
  segmented,
  type Voice,
} from "../../../logic/speech/diarization.ts";
import type { GraphsCall } from "../../../protocol/graphs.ts";
import type { TaskSound } from "../../../protocol/tasks.ts";
import { GraphHost, type One, opensOne } from "../../graphs/index.ts";
import type { GraphModel, OpenGraphs } from "../../graphs/kinds.ts";
import { Options } from "../options.ts";
import { readSound } from "../sounds/read.ts";

/** Opens a segmentation model. */
export const open: OpenGraphs = opensOne(async (one) => {
  const info = await one.graphs.info({ sampling_rate: rate_of(one.processor) });
  return new Segmentation(one, info);
});

/** A recording of which the windows were heard. */
interface Heard {
  samples: Float32Array<ArrayBuffer>;
  made: Diarization;
  voices: Voice[];
}

class Segmentation implements GraphModel {
  /** The recording of the call: the page makes one call after the other. */
  private heard: Heard | undefined;

  constructor(
    private readonly one: One,
    readonly info: GraphModel["info"],
  ) {}

  async call({ method, given }: GraphsCall, signal: AbortSignal): Promise<Record<string, unknown>> {
    if (method === "segment") return this.segment(given, signal);
    const { samples, made, voices } = this.heard!;
    if (method === "voice") {
      const spans = voices[given.index as number]!.spans.map(([at, n]) =>
        samples.subarray(at, at + n),
      );
      const voice = joined(spans);
      return { voice, short: is_short(voice.length, rate_of(this.one.processor)) };
    }
    const vectors = (given.vectors ?? made.apart()) as (number[] | null)[];
    const options = given.options as Record<string, unknown>;
    this.heard = undefined;
    return { result: result_of(made.turns(vectors, options), options) };
  }

  private async segment(
    { sound, options, embeds }: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<Record<string, unknown>> {
    const { graphs, name, processor } = this.one;
    const { given } = new Options(options as Record<string, unknown>, Object.keys(OPTIONS));
    check_options(given);
    const device = await graphs.opened();
    const samples = await readSound(device, sound as TaskSound, rate_of(processor), signal);
    const count = samples.length;
    const host = new GraphHost(graphs, signal, undefined, () => name);
    host.put(SAMPLES, { type: "float32", dims: [count], data: new Uint8Array(samples.buffer) });
    const signature = await graphs.signature(name);
    const made = await host.drive(segmented(signature, processor, count, given, embeds as boolean));
    const voices = made.voices();
    this.heard = { samples, made, voices };
    return { voices: voices.length };
  }

  close(): void {
    this.one.graphs.close();
  }
}

function joined(parts: readonly Float32Array[]): Float32Array<ArrayBuffer> {
  const all = new Float32Array(parts.reduce((n, { length }) => n + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
