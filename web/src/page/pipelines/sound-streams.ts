// Streams of sound: a pipeline hears a microphone, or samples that the page has.

import type { TaskFeed } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import type { Client, CallOptions as ClientCallOptions } from "../client.ts";
import type { CallOptions } from "./base-types.ts";
import { microphone } from "./microphone.ts";
import { type RawSound, type Samples, sendableSound, soundBuffers } from "./sounds.ts";

/** A part of a sound. Arrays have the sampling rate that the model takes. */
export type SoundPiece = Samples | AudioBuffer | RawSound;

/** Sound that arrives in pieces, such as `microphone()`. */
export type SoundSource = AsyncIterable<SoundPiece> | MediaStream;

/** A stream that the page feeds. Pieces of any length, of one sampling rate. */
export interface SoundStream<Event> {
  /** What happens in the next samples. */
  feed(piece: SoundPiece): Promise<Event[]>;
  /** Ends the stream, and returns the rest of its results. */
  end(): Promise<Event[]>;
}

/** Pipelines that take sound in pieces. */
export interface Streams<Options extends CallOptions, Event> {
  /** The events of a source, until it ends or `signal` fires. */
  stream(source: SoundSource, options?: Options): AsyncGenerator<Event, void>;
  /** A stream that the page feeds. */
  stream(options?: Options): SoundStream<Event>;
}

/** Sends samples to a worker. */
export type Send = (request: TaskFeed, options: ClientCallOptions) => Promise<unknown[]>;

let streams = 0;

/** Options of a stream. */
interface StreamOptions extends CallOptions {
  live?: boolean;
  vad?: unknown;
}

/**
 * `stream()` of a pipeline.
 * @param send gives samples to its worker
 * @param skips whether what it hears may be too much for it: it has the option `live`
 */
export function streamer(send: Send, skips: boolean): Streams<CallOptions, never>["stream"] {
  return ((first: unknown, second?: StreamOptions) => {
    const source = isSource(first) ? first : undefined;
    const options = { ...(source ? second : (first as StreamOptions)) };
    if (source && skips) options.live ??= isMicrophone(source);
    const stream = opened(send, options);
    return source ? events(source, stream, options) : stream;
  }) as never;
}

/** Whether a source gives sound as it arises. */
function isMicrophone(source: SoundSource): boolean {
  return "getAudioTracks" in source || source instanceof microphone;
}

function isSource(x: unknown): x is SoundSource {
  return (
    typeof x === "object" && x !== null && (Symbol.asyncIterator in x || "getAudioTracks" in x)
  );
}

function opened(give: Send, { signal, vad, ...given }: StreamOptions): SoundStream<unknown> {
  const stream = ++streams;
  let port = vad === undefined ? undefined : portOf(vad);
  const options = Object.fromEntries(Object.entries(given).filter(([, v]) => v !== undefined));
  let [first, ended] = [true, false];
  const send = (rest: Pick<TaskFeed, "samples" | "sampling_rate" | "last">) => {
    if (ended) throw new InputError("it has ended", "the stream", "Make a new one: stream().");
    ended = rest.last;
    const transfer = [rest.samples.buffer, ...(port ? [port] : [])];
    const request = { stream, options, port, first, ...rest };
    const call = give(request, { signal, transfer });
    port = undefined;
    first = false;
    call.catch(() => {
      ended = true; // the worker has closed it
    });
    return call;
  };
  // A call that is aborted before the worker takes it leaves the stream open there.
  const drop = (): void => {
    const nothing = { samples: new Float32Array(), sampling_rate: 0, last: true, drop: true };
    give({ stream, options, ...nothing }, {}).catch(() => undefined);
  };
  signal?.addEventListener("abort", drop, { once: true });
  return {
    async feed(piece) {
      const sound = await sendableSound(piece as RawSound, signal);
      if (!("samples" in sound))
        throw new InputError("a stream takes samples", sound.name, "Give {array, sampling_rate}.");
      const [buffer] = soundBuffers(sound);
      if (!buffer) return [];
      return send({ samples: sound.samples, sampling_rate: sound.sampling_rate, last: false });
    },
    end: async () => send({ samples: new Float32Array(), sampling_rate: 0, last: true }),
  };
}

/** A port to a pipeline that finds speech. @throws InputError if it is none */
function portOf(vad: unknown): MessagePort {
  const { client, task } = workers.get(vad as object) ?? {};
  if (!client || task !== "voice-activity-detection")
    throw new InputError(
      "it does not find speech",
      "options.vad",
      'Give a pipeline("voice-activity-detection").',
    );
  const { port1, port2 } = new MessageChannel();
  const nothing = { samples: new Float32Array(), sampling_rate: 0, last: false, options: {} };
  const request = { stream: ++streams, serve: port2, ...nothing };
  client.call("task_feed", request, { transfer: [port2] }).catch(({ what, remedy }) => {
    port2.postMessage({ error: { what, remedy } }); // nobody answers where its worker has ended
  });
  return port1;
}

async function* events(
  source: SoundSource,
  stream: SoundStream<unknown>,
  { signal, live }: StreamOptions,
): AsyncGenerator<unknown, void> {
  const pieces = "getAudioTracks" in source ? microphone({ stream: source, signal }) : source;
  let open = true;
  try {
    if (live) yield* ahead(pieces, stream);
    else for await (const piece of pieces) yield* await stream.feed(piece);
    open = false;
    yield* await stream.end();
  } finally {
    if (open) await stream.end().catch(() => undefined); // a failed stream is closed already
  }
}

/** Feeds a stream without waiting for what it answers, so that it can skip what is too old. */
async function* ahead(
  pieces: AsyncIterable<SoundPiece>,
  stream: SoundStream<unknown>,
): AsyncGenerator<unknown, void> {
  const answers: Promise<unknown[]>[] = [];
  let [left, done] = [false, false];
  let wake = (): void => undefined;
  const reading = (async () => {
    for await (const piece of pieces) {
      if (left) return;
      const answer = stream.feed(piece);
      answer.catch(() => undefined); // it is thrown where it is waited for
      answers.push(answer);
      wake();
    }
  })().finally(() => {
    done = true;
    wake();
  });
  reading.catch(() => undefined);
  try {
    while (!done || answers.length) {
      const answer = answers.shift();
      if (answer) yield* await answer;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
    await reading;
  } finally {
    left = true; // ends the reading with the next piece
  }
}

/** The worker of each pipeline, and its task. */
export const workers = new WeakMap<object, { client: Client; task: string }>();
