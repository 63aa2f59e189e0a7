// Sound that arrives in pieces, such as a microphone's: the streams of a pipeline.

import type { TaskFeed } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { Resampler } from "../../media/resample.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { TaskStream } from "../runner.ts";

/** A stream with what changes its sampling rate. */
interface Open {
  stream: TaskStream;
  resampler?: Resampler;
}

const MOST_STREAMS = 64;
const streams = new WeakMap<TaskHost, Map<number, Open>>();

/**
 * Gives a stream its next samples. The first call opens it.
 * @param make makes the stream from its options
 * @returns what happened in them
 * @throws InputError; Aborted. The stream is then closed.
 */
export async function feedStream(
  host: TaskHost,
  request: TaskFeed,
  make: () => TaskStream,
  ending: Ending,
): Promise<unknown[]> {
  const { stream: id, samples, sampling_rate: rate, last } = request;
  const all = streams.get(host) ?? new Map<number, Open>();
  streams.set(host, all);
  let open = all.get(id);
  if (request.drop) {
    open?.resampler?.close();
    all.delete(id);
    return [];
  }
  if (!open) {
    if (all.size >= MOST_STREAMS)
      throw new InputError(`there are ${MOST_STREAMS} streams`, host.task, "End some of them.");
    open = { stream: make() };
    all.set(id, open);
  }
  let kept = false;
  try {
    const found = samples.length
      ? await open.stream.feed(resampled(host, open, samples, rate), ending)
      : [];
    if (last && open.resampler)
      found.push(...(await open.stream.feed(open.resampler.end(), ending)));
    if (last) found.push(...(await open.stream.end(ending)));
    kept = !last;
    return found;
  } finally {
    if (!kept) {
      open.resampler?.close();
      all.delete(id);
    }
  }
}

/** Samples at the stream's rate. @throws InputError if the rate differs from that before */
function resampled(
  host: TaskHost,
  open: Open,
  samples: Float32Array<ArrayBuffer>,
  rate: number,
): Float32Array<ArrayBuffer> {
  const to = open.stream.sampling_rate;
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
