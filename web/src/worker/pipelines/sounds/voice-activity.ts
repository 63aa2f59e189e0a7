// voice-activity-detection with Silero VAD: whole recordings, and streams. Mirrors
// python/edgewise/host/pipelines/voice_activity.py.

import {
  type Segment,
  segments_of,
  VoiceEvents,
  type VoiceRules,
} from "../../../logic/post/voice_activity.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, PackageError } from "../../../shared/errors.ts";
import { round } from "../../../shared/python.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { Options } from "../options.ts";
import { numbers } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { soundLength, soundOf, soundPieces } from "./read.ts";

/** By sampling rate: samples of a window, and of those before it. */
const RATES: Readonly<Record<number, readonly [window: number, context: number]>> = {
  16000: [512, 64],
  8000: [256, 32],
};

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
    [this.window, this.context] = RATES[rate]!;
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

/** The rules that a call's options state. */
function rulesOf(options: Options): VoiceRules {
  const threshold = options.number("threshold", 0.5, 0, 1);
  const rate = options.number("sampling_rate", 16000, 1, Infinity);
  if (!RATES[rate])
    throw new InputError(
      `the sampling rate ${rate} is not one of the model's`,
      "options.sampling_rate",
      "Use 16000 or 8000; for sound of another rate give {array, sampling_rate}.",
    );
  const duration = (name: string, otherwise: number): number =>
    options.number(name, otherwise, 0, Infinity);
  return {
    sampling_rate: rate,
    window: RATES[rate][0],
    threshold,
    neg_threshold: options.number("neg_threshold", Math.max(threshold - 0.15, 0.01), 0, 1),
    min_speech_ms: duration("min_speech_duration_ms", 250),
    max_speech_s: duration("max_speech_duration_s", Infinity),
    min_silence_ms: duration("min_silence_duration_ms", 100),
    pad_ms: duration("speech_pad_ms", 30),
    min_silence_at_max_ms: duration("min_silence_at_max_speech", 98),
  };
}

/** `pipe(sounds, options)`, and `pipe.stream(options)` */
export const voiceActivity: TaskRunner = {
  options: [
    "sampling_rate",
    "threshold",
    "neg_threshold",
    "min_speech_duration_ms",
    "max_speech_duration_s",
    "min_silence_duration_ms",
    "speech_pad_ms",
    "min_silence_at_max_speech",
    "return_seconds",
    "time_resolution",
  ],
  prepare(host, options) {
    const rules = rulesOf(options);
    const seconds = options.flag("return_seconds", false);
    const digits = options.number("time_resolution", 1, 0, 9);
    const rate = rules.sampling_rate;
    return async (input, ending): Promise<Segment[]> => {
      const sound = soundOf(input, host.task);
      const windows = new VoiceWindows(host, rate);
      const found: number[] = [];
      for await (const piece of soundPieces(host.device, sound, rate, ending))
        found.push(...(await windows.feed(piece, ending)));
      found.push(...(await windows.end(ending)));
      const count = soundLength(sound, rate);
      const segments = segments_of(found, rules, count);
      if (!seconds) return segments;
      return segments.map(({ start, end }) => ({
        start: Math.max(round(start / rate, digits), 0),
        end: Math.min(round(end / rate, digits), count / rate),
      }));
    };
  },
  streamOptions: [
    "sampling_rate",
    "threshold",
    "neg_threshold",
    "min_silence_duration_ms",
    "speech_pad_ms",
  ],
  stream(host, options) {
    const rules = rulesOf(options);
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
