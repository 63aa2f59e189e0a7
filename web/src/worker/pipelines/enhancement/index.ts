// The part of the worker for models that give sound for sound: logic/speech/enhancement.py.

import type { Device } from "../../../device/device.ts";
import {
  enhanced,
  type Model,
  model_of,
  rate_of,
  SAMPLES,
  SOUND,
} from "../../../logic/speech/enhancement.ts";
import type { GraphsCall } from "../../../protocol/graphs.ts";
import type { TaskFeed, TaskSound } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { GraphHost, type One, opensOne } from "../../graphs/index.ts";
import type { GraphModel, OpenGraphs } from "../../graphs/kinds.ts";
import { Options } from "../options.ts";
import type { TaskStream } from "../runner.ts";
import { readSound } from "../sounds/read.ts";
import { feedStream } from "../sounds/streams.ts";

const TASK = "audio-to-audio";

/** Opens a model. */
export const open: OpenGraphs = opensOne(async (one, request) => {
  const rate = rate_of(request.sampling_rate ?? null, one.processor, one.config);
  const model = model_of(await one.graphs.signature(one.name));
  const streams = { device: await one.graphs.opened(), task: TASK };
  const info = await one.graphs.info({ sampling_rate: rate });
  return new Enhancer(one, model, rate, streams, info);
});

class Enhancer implements GraphModel {
  constructor(
    private readonly one: One,
    private readonly model: Model,
    private readonly rate: number,
    /** What streams resample with. */
    private readonly streams: { device: Device; task: string },
    readonly info: GraphModel["info"],
  ) {}

  async call({ method, given }: GraphsCall, signal: AbortSignal): Promise<Record<string, unknown>> {
    if (method === "feed") return this.feed(given as unknown as TaskFeed, signal);
    new Options(given.options as Record<string, unknown>, []);
    const sound = given.sound as TaskSound;
    const samples = await readSound(this.streams.device, sound, this.rate, signal);
    return { audio: await this.run(this.host(signal), samples, true) };
  }

  /** Gives a stream its next samples; gives the pieces of sound that are ready. */
  private async feed(request: TaskFeed, signal: AbortSignal): Promise<Record<string, unknown>> {
    const make = async (options: Record<string, unknown>): Promise<TaskStream> => {
      new Options(options, []);
      return this.stream();
    };
    const turn = <T>(work: () => Promise<T>): Promise<T> => work(); // calls have their turns
    return { pieces: await feedStream(this.streams, request, make, turn, signal) };
  }

  private stream(): TaskStream {
    const { size, states } = this.model;
    if (!states.length || !size)
      throw new InputError(
        "the model has no states and parts of one length",
        TASK,
        "Call the pipeline.",
      );
    const host = this.host(new AbortController().signal);
    host.hold();
    let waiting = new Float32Array();
    let begun = false;
    const take = async (count: number, ending: AbortSignal): Promise<Float32Array[]> => {
      const part = waiting.slice(0, count);
      waiting = waiting.slice(count);
      if (!count) return [];
      host.signal = ending;
      const made = await this.run(host, part, !begun);
      begun = true;
      return [made];
    };
    return {
      sampling_rate: this.rate,
      feed(samples, ending) {
        const all = new Float32Array(waiting.length + samples.length);
        all.set(waiting);
        all.set(samples, waiting.length);
        waiting = all;
        return take(all.length - (all.length % size), ending);
      },
      end: (ending) => take(waiting.length, ending),
      close: () => host.release(),
    };
  }

  private host(signal: AbortSignal): GraphHost {
    return new GraphHost(this.one.graphs, signal, undefined, () => this.one.name);
  }

  private async run(
    host: GraphHost,
    samples: Float32Array<ArrayBuffer>,
    first: boolean,
  ): Promise<Float32Array<ArrayBuffer>> {
    const count = samples.length;
    const data = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
    host.put(SAMPLES, { type: "float32", dims: [1, count], data });
    await host.drive(enhanced(this.model, count, this.rate, first));
    return new Float32Array(host.take(SOUND)!.data.slice().buffer);
  }

  close(): void {
    this.one.graphs.close();
  }
}
