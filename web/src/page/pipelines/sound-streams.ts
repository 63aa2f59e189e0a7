// Streams of sound: a pipeline hears a microphone, or samples that the page has.

import type { TaskFeed } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import type { Client } from "../client.ts";
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
  /** Ends the stream: what is known when no more samples come. */
  end(): Promise<Event[]>;
}

/** Pipelines that take sound in pieces. */
export interface Streams<Options extends CallOptions, Event> {
  /** The events of a source, until it ends or `signal` fires. */
  stream(source: SoundSource, options?: Options): AsyncGenerator<Event, void>;
  /** A stream that the page feeds. */
  stream(options?: Options): SoundStream<Event>;
}

let streams = 0;

/** `stream()` of a pipeline. */
export function streamer(client: Client): Streams<CallOptions, unknown>["stream"] {
  return ((first: unknown, second?: CallOptions) => {
    const source = isSource(first) ? first : undefined;
    const options = (source ? second : (first as CallOptions)) ?? {};
    const stream = opened(client, options);
    return source ? events(source, stream, options.signal) : stream;
  }) as never;
}

function isSource(x: unknown): x is SoundSource {
  return (
    typeof x === "object" && x !== null && (Symbol.asyncIterator in x || "getAudioTracks" in x)
  );
}

function opened(client: Client, { signal, ...given }: CallOptions): SoundStream<unknown> {
  const stream = ++streams;
  const options = Object.fromEntries(Object.entries(given).filter(([, v]) => v !== undefined));
  let ended = false;
  const send = (rest: Pick<TaskFeed, "samples" | "sampling_rate" | "last">) => {
    if (ended) throw new InputError("it has ended", "the stream", "Make a new one: stream().");
    ended = rest.last;
    const call = client.call(
      "task_feed",
      { stream, options, ...rest },
      { signal, transfer: [rest.samples.buffer] },
    );
    call.catch(() => {
      ended = true; // the worker has closed it
    });
    return call;
  };
  // A call that is aborted before the worker takes it leaves the stream open there.
  const drop = (): void => {
    const nothing = { samples: new Float32Array(), sampling_rate: 0, last: true, drop: true };
    client.call("task_feed", { stream, options, ...nothing }).catch(() => undefined);
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

async function* events(
  source: SoundSource,
  stream: SoundStream<unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<unknown, void> {
  const pieces = "getAudioTracks" in source ? microphone({ stream: source, signal }) : source;
  let open = true;
  try {
    for await (const piece of pieces) yield* await stream.feed(piece);
    open = false;
    yield* await stream.end();
  } finally {
    if (open) await stream.end().catch(() => undefined); // a failed stream is closed already
  }
}
