// Speech recognition of sound that arrives in pieces: the samples and models of
// logic/speech/stream.py, which decides what is transcribed when.

import {
  check_stream,
  RATE,
  Recognition,
  type StreamRequest,
} from "../../../../logic/speech/stream.ts";
import { drive } from "../../../../shared/drive.ts";
import type { Ending } from "../../host.ts";
import type { Options } from "../../options.ts";
import type { TaskStream, Voice } from "../../runner.ts";

/** What is known after another transcript. */
export interface SpeechEvent {
  /** Text that is certain. All of it joined is the transcript. */
  committed: string;
  /** Text after it that may change. */
  partial: string;
  /** Of what is committed, in seconds of the stream. */
  timestamp: [start: number, end: number] | null;
  /** Sound of a live stream that no transcript has, because it came too fast: seconds. */
  skipped?: [start: number, end: number];
}

/** A word, with its times in seconds. */
export interface Spoken {
  text: string;
  timestamp: readonly [start: number, end: number | null];
}

/** Words of sound, with times in seconds from its beginning; `before` is the text before it. */
export type Transcribe = (
  samples: Float32Array<ArrayBuffer>,
  before: string,
  ending: Ending,
) => Promise<Spoken[]>;

/** How a stream is transcribed. */
export interface StreamWishes {
  /** Seconds between transcripts. */
  interval: number;
  /** Whether a call of `feed` makes at most one transcript, of the newest sound. */
  live?: boolean;
  /** Finds speech: silence is not transcribed, and ends what is committed. */
  voice?: Voice | undefined;
}

/** The options `interval` and `live` of a stream. */
export function wishesOf(options: Options, voice: Voice | undefined): StreamWishes {
  const [interval, live] = check_stream(options.given);
  return { interval, live, voice };
}

/** Transcribes a stream again every `interval` seconds. */
export class SpeechStream implements TaskStream {
  readonly sampling_rate = RATE;
  private readonly logic: Recognition;
  private heard = new Float32Array(0);

  constructor(
    private readonly transcribe: Transcribe,
    private readonly wishes: StreamWishes,
  ) {
    const { interval, live = false, voice } = wishes;
    this.logic = new Recognition(interval, voice !== undefined, live);
  }

  feed(samples: Float32Array<ArrayBuffer>, ending: Ending): Promise<SpeechEvent[]> {
    return this.run(this.logic.feed(samples.length), samples, ending);
  }

  end(ending: Ending): Promise<SpeechEvent[]> {
    return this.run(this.logic.end(), new Float32Array(0), ending);
  }

  private run(
    steps: ReturnType<Recognition["feed"]>,
    samples: Float32Array<ArrayBuffer>,
    ending: Ending,
  ): Promise<SpeechEvent[]> {
    const answer = (request: StreamRequest) => this.answer(request, samples, ending);
    return drive(steps, answer) as Promise<SpeechEvent[]>;
  }

  private async answer(
    request: StreamRequest,
    samples: Float32Array<ArrayBuffer>,
    ending: Ending,
  ): Promise<unknown> {
    if (request.kind === "transcribe")
      return this.transcribe(this.heard.slice(0, request.count), request.before, ending);
    if (request.kind === "forget") {
      this.heard = this.heard.slice(request.count);
      return;
    }
    const piece = samples.subarray(request.start, request.stop);
    if (request.kind === "listen") {
      const voice = this.wishes.voice!;
      const events = await voice.feed(piece, ending);
      return [events, voice.speaking];
    }
    const heard = new Float32Array(this.heard.length + piece.length);
    heard.set(this.heard);
    heard.set(piece, this.heard.length);
    this.heard = heard;
  }
}
