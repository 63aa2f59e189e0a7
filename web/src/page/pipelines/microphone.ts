// The microphone as an async iterable of samples.

import { aborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";

/** Options of {@link microphone}. */
export interface MicrophoneOptions {
  /** Ends the recording; what has been recorded is still given. */
  signal?: AbortSignal | undefined;
  /** What is asked of the browser. Default: one channel, with its removal of noise and echo. */
  constraints?: MediaTrackConstraints;
  /** A stream to hear in the place of a microphone, such as a tab's sound; it is not stopped. */
  stream?: MediaStream;
  /** Seconds that wait for the pipeline; beyond them the recording fails. Default: 120. */
  buffer?: number;
}

/** Samples of one channel. */
export interface RecordedPiece {
  array: Float32Array;
  /** Hz */
  sampling_rate: number;
}

const PIECE = 1024; // frames of a piece: 21 ms at 48 kHz

// Averages channels and sends pieces. A string, since a worklet is a script of its own.
const WORKLET = `registerProcessor("edgewise-recorder", class extends AudioWorkletProcessor {
  piece = new Float32Array(${PIECE});
  filled = 0;
  process([channels]) {
    const n = channels.length;
    for (let i = 0; n && i < channels[0].length; i++) {
      let sum = 0;
      for (let c = 0; c < n; c++) sum += channels[c][i];
      this.piece[this.filled++] = sum / n;
      if (this.filled === ${PIECE}) {
        this.port.postMessage(this.piece, [this.piece.buffer]);
        this.piece = new Float32Array(${PIECE});
        this.filled = 0;
      }
    }
    return true;
  }
});`;

/**
 * Records until `signal` fires, the loop over it ends, or the microphone is removed. The browser
 * asks the user for permission when the first sample is wanted.
 *
 * Samples come from an AudioWorklet. Where the page's Content-Security-Policy forbids scripts from
 * `blob:`, they come from a ScriptProcessorNode, on the page's thread.
 *
 * @throws InputError if there is no microphone, no permission, or the pipeline is too slow
 */
export async function* microphone(
  options: MicrophoneOptions = {},
): AsyncGenerator<RecordedPiece, void> {
  const { signal, buffer = 120 } = options;
  if (signal?.aborted) throw aborted(signal);
  const stream = options.stream ?? (await permitted(options.constraints));
  const tracks = stream.getAudioTracks();
  const stop = (): void => {
    if (!options.stream) for (const track of tracks) track.stop();
  };
  let context: AudioContext;
  try {
    context = new AudioContext();
  } catch (e) {
    stop();
    throw e;
  }
  const waiting: Float32Array[] = [];
  let ended = signal?.aborted ?? false; // while the user was asked
  let wake = (): void => undefined;
  const end = (): void => {
    ended = true;
    wake();
  };
  const most = (buffer * context.sampleRate) / PIECE;
  const take = (piece: Float32Array): void => {
    if (!ended) waiting.push(piece);
    wake();
  };
  signal?.addEventListener("abort", end);
  for (const track of tracks) track.addEventListener("ended", end);
  try {
    const source = context.createMediaStreamSource(stream);
    const recorder = await connected(context, source, take);
    await context.resume();
    while (!ended || waiting.length) {
      if (waiting.length > most)
        throw new InputError(
          `${buffer} s of sound wait for the pipeline`,
          "the microphone",
          "This machine is too slow for the model: use a smaller one.",
        );
      const array = waiting.shift();
      if (array) yield { array, sampling_rate: context.sampleRate };
      else
        await new Promise<void>((done) => {
          wake = done;
        });
    }
    recorder.disconnect();
  } finally {
    signal?.removeEventListener("abort", end);
    for (const track of tracks) track.removeEventListener("ended", end);
    stop();
    await context.close();
  }
}

async function permitted(constraints: MediaTrackConstraints = {}): Promise<MediaStream> {
  try {
    const audio = { channelCount: 1, ...constraints };
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (e) {
    throw new InputError(
      `it cannot be used (${message(e)})`,
      "the microphone",
      "Allow it in the browser. It needs a page served by https, or from localhost.",
    );
  }
}

/** Connects what takes the samples of a source. */
async function connected(
  context: AudioContext,
  source: AudioNode,
  take: (piece: Float32Array) => void,
): Promise<AudioNode> {
  const url = URL.createObjectURL(new Blob([WORKLET], { type: "text/javascript" }));
  let node: AudioNode;
  try {
    await context.audioWorklet.addModule(url);
    const recorder = new AudioWorkletNode(context, "edgewise-recorder", { numberOfOutputs: 0 });
    recorder.port.onmessage = ({ data }) => take(data as Float32Array);
    node = recorder;
  } catch {
    const recorder = context.createScriptProcessor(PIECE, 1, 1);
    recorder.onaudioprocess = ({ inputBuffer }) => take(inputBuffer.getChannelData(0).slice());
    recorder.connect(context.destination); // it only runs when it is connected; it is silent
    node = recorder;
  } finally {
    URL.revokeObjectURL(url);
  }
  source.connect(node);
  return node;
}
