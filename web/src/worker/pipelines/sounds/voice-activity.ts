// voice-activity-detection with Silero VAD: the windows of whole recordings, and of streams, for
// logic/post/voice_activity.py.

import {
  digits_of,
  OPTIONS,
  rules_of,
  STREAM_OPTIONS,
  segments_of,
  times_of,
  VoiceEvents,
  WINDOWS,
} from "../../../logic/post/voice_activity.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { numbers } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { soundOf } from "../sound-input.ts";
import { soundLength, soundPieces } from "./read.ts";

/** Probabilities of speech in windows. Each run also gets the end of the window before. */
export class VoiceWindows {
  private readonly window: number;
  private readonly context: number;
  private readonly graph: string;
  /** The last samples of the window before, then those that fill no window yet. */
  private waiting: Float32Array;
  private state: TaskTensor = floats([2, 1, 128], new Float32Array(256));

  /** @throws PackageError if the package has no graph for the rate */
  constructor(
    private readonly host: TaskHost,
    private readonly rate: number,
  ) {
    [this.window, this.context] = WINDOWS.get(rate)!;
    this.graph = rate === 16000 ? "model" : `model_${rate}`;
    if (!host.has(this.graph))
      throw new PackageError(
        `its model takes no ${rate} Hz`,
        host.task,
        "Use the sampling_rate 16000, or build it from a model for both.",
      );
    this.waiting = new Float32Array(this.context);
  }

  /** The probabilities of the windows that are complete after these samples. */
  async feed(samples: Float32Array, ending: Ending): Promise<number[]> {
    const { window, context } = this;
    const all = new Float32Array(this.waiting.length + samples.length);
    all.set(this.waiting);
    all.set(samples, this.waiting.length);
    const found: number[] = [];
    let at = 0;
    for (; at + context + window <= all.length; at += window)
      found.push(await this.run(all.slice(at, at + context + window), ending));
    this.waiting = all.slice(at);
    return found;
  }

  /** The probability of the last window, which is filled with zeros. */
  async end(ending: Ending): Promise<number[]> {
    const rest = this.waiting.length - this.context;
    return rest ? this.feed(new Float32Array(this.window - rest), ending) : [];
  }

  private async run(values: Float32Array<ArrayBuffer>, ending: Ending): Promise<number> {
    const feeds: Record<string, TaskTensor> = {
      input: floats([1, values.length], values),
      state: this.state,
    };
    const { inputs } = this.host.graph(this.graph);
    const rate = inputs.find(({ name }) => name === "sr");
    if (rate)
      feeds.sr = {
        type: "int64",
        dims: (rate.shape ?? []).map(() => 1),
        data: new Uint8Array(BigInt64Array.of(BigInt(this.rate)).buffer),
      };
    const { output, stateN } = await this.host.run(this.graph, feeds, ending);
    this.state = stateN!;
    return numbers(output!).data[0]!;
  }
}

function floats(dims: number[], { buffer }: Float32Array<ArrayBuffer>): TaskTensor {
  return { type: "float32", dims, data: new Uint8Array(buffer) };
}

/** `pipe(sounds, options)`, and `pipe.stream(options)` */
export const voiceActivity: TaskRunner = {
  options: Object.keys(OPTIONS),
  prepare(host, { given }) {
    const rules = rules_of(given);
    const digits = digits_of(given);
    const rate = rules.sampling_rate;
    return async (input, ending) => {
      const sound = soundOf(input, host.task);
      const windows = new VoiceWindows(host, rate);
      const found: number[] = [];
      for await (const piece of soundPieces(host.device, sound, rate, ending))
        found.push(...(await windows.feed(piece, ending)));
      found.push(...(await windows.end(ending)));
      const count = soundLength(sound, rate);
      return times_of(segments_of(found, rules, count), rate, count, digits);
    };
  },
  streamOptions: STREAM_OPTIONS,
  stream(host, { given }) {
    const rules = rules_of(given);
    const windows = new VoiceWindows(host, rules.sampling_rate);
    const events = new VoiceEvents(rules);
    return {
      sampling_rate: rules.sampling_rate,
      async feed(samples, ending) {
        const found = (await windows.feed(samples, ending)).map((p) => events.next(p));
        return found.filter((event) => event !== null);
      },
      end: async () => [],
    };
  },
};
