// Sound that arrives in pieces, such as a microphone's: the streams of a pipeline.

import type { Device } from "../../../device/device.ts";
import { STREAM } from "../../../logic/post/voice_activity.ts";
import type { TaskFeed } from "../../../protocol/tasks.ts";
import { throwIfAborted } from "../../../shared/abort.ts";
import { InputError } from "../../../shared/errors.ts";
import { Resampler } from "../../media/resample.ts";
import type { Ending } from "../host.ts";
import type { TaskStream } from "../runner.ts";
import { checkFinite } from "./read.ts";
import { PortVoice, serveVoice } from "./voice-port.ts";

/** What has streams. */
interface Owner {
  readonly device: Pick<Device, "host">;
  readonly task: string;
}

/** A stream with what changes its sampling rate. */
interface Open {
  stream?: TaskStream;
  resampler?: Resampler;
  voice?: PortVoice | undefined;
  /** What has arrived, and was not fed yet. */
  waiting: Pick<TaskFeed, "samples" | "sampling_rate">[];
  closed: boolean;
}

/** Runs work when the engine is free. */
export type Turn = <T>(work: () => Promise<T>) => Promise<T>;

/** Makes a stream of its options. */
export type Make = (options: Record<string, unknown>, voice?: PortVoice) => Promise<TaskStream>;

const MAX_STREAMS = 64;
const streams = new WeakMap<Owner, Map<number, Open>>();

/**
 * Gives a stream its next samples. The first call opens it. All that has arrived when its turn
 * comes is fed at once, so that a stream can skip what is too old.
 * @returns what happened in them
 * @throws InputError; Aborted. The stream is then closed.
 */
export async function feedStream(
  host: Owner,
  request: TaskFeed,
  make: Make,
  turn: Turn,
  ending: Ending,
): Promise<unknown[]> {
  const { stream: id, samples, sampling_rate, last, options, port, serve } = request;
  if (serve) {
    const made = make(STREAM);
    serveVoice(serve, made, turn);
    await made;
    return [];
  }
  const all = streams.get(host) ?? new Map<number, Open>();
  streams.set(host, all);
  const voice = port && new PortVoice(port);
  const open: Open = all.get(id) ?? { voice, waiting: [], closed: !request.first };
  const close = (): void => {
    open.resampler?.close();
    open.voice?.close();
    if (!open.closed) open.stream?.close?.();
    open.closed = true;
    if (all.get(id) === open) all.delete(id);
  };
  if (request.drop) {
    await turn(async () => close());
    return [];
  }
  if (open.closed) return []; // what was sent before its sender knew that the stream failed
  if (!all.has(id) && all.size >= MAX_STREAMS) {
    close();
    throw new InputError(`there are ${MAX_STREAMS} streams`, host.task, "End some of them.");
  }
  all.set(id, open);
  open.waiting.push({ samples, sampling_rate });
  return turn(async () => {
    if (open.closed) return [];
    let kept = false;
    try {
      throwIfAborted(ending);
      open.stream ??= await make(options, open.voice);
      const found = await fed(host, open, last, ending);
      if (last) found.push(...(await open.stream.end(ending)));
      kept = !last;
      return found;
    } finally {
      if (!kept) close();
    }
  });
}

/** Feeds what has arrived. */
async function fed(host: Owner, open: Open, last: boolean, ending: Ending): Promise<unknown[]> {
  const pieces = open.waiting.splice(0).map((piece) => resampled(host, open, piece));
  if (last && open.resampler) pieces.push(open.resampler.end());
  const sound = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    sound.set(piece, at);
    at += piece.length;
  }
  return at ? open.stream!.feed(sound, ending) : [];
}

/** Samples at the stream's rate. @throws InputError if the rate differs from that before */
function resampled(
  host: Owner,
  open: Open,
  { samples, sampling_rate: rate }: Open["waiting"][0],
): Float32Array<ArrayBuffer> {
  if (!samples.length) return samples;
  checkFinite(samples, "the stream");
  const to = open.stream!.sampling_rate;
  const before = open.resampler?.rate ?? to;
  if (!open.resampler && rate && rate !== to) open.resampler = new Resampler(host.device, rate, to);
  else if ((rate || to) !== before)
    throw new InputError(
      `the sampling rate is ${rate || to}, that of the samples before was ${before}`,
      host.task,
      "Give a stream samples of one rate.",
    );
  return open.resampler ? open.resampler.feed(samples) : samples;
}
