// Sound in rooms: recordings of the microphone, and waveforms.

import { InputError, microphone, type RecordedPiece } from "edgewise";

/** Samples of one channel. */
export interface Clip {
  array: Float32Array;
  /** Hz */
  sampling_rate: number;
}

const SHOWN_RATE = 8000; // Hz of the samples that a waveform is drawn from

const MAX_S = 1800;

/** A recording that grows until it is stopped. */
export class Recording {
  private readonly pieces: Float32Array[] = [];
  private readonly ending = new AbortController();
  private rate = 48_000;
  private count = 0;
  /** Pieces, and their samples, that are not kept any more. */
  private forgotten = { pieces: 0, samples: 0 };

  /** Whether `stop` was called; otherwise the microphone has ended it. */
  stopped = false;
  /** Whether nobody wants it any more. */
  discarded = false;

  /** @param most the last seconds of it that are kept, and a piece more */
  constructor(private readonly most = MAX_S) {}

  /** Whether it has ended. */
  get ended(): boolean {
    return this.ending.signal.aborted;
  }

  /** Seconds that are kept. */
  get seconds(): number {
    return this.count / this.rate;
  }

  /** Seconds before those that are kept. */
  get since(): number {
    return this.forgotten.samples / this.rate;
  }

  /** Ends it. */
  stop(): void {
    this.stopped = true;
    this.ending.abort();
  }

  /** Ends it, and nobody wants it any more. */
  discard(): void {
    this.discarded = true;
    this.stop();
  }

  /**
   * Records until `stop`, and gives the pieces, of 21 ms each; those wait that are not taken yet.
   * @param heard is called after each piece
   * @throws InputError if there is no microphone
   */
  async *sound(heard: () => void): AsyncGenerator<RecordedPiece, void> {
    let [given, failed] = [0, undefined as unknown];
    let wake = (): void => undefined;
    const whole = this.run(() => {
      heard();
      wake();
    })
      .catch((e: unknown) => {
        failed = e;
      })
      .finally(() => wake());
    try {
      while (!this.ended || given < this.forgotten.pieces + this.pieces.length) {
        given = Math.max(given, this.forgotten.pieces);
        const piece = this.pieces[given - this.forgotten.pieces];
        if (piece) {
          given++;
          yield { array: piece.slice(), sampling_rate: this.rate }; // a copy, which is moved
        } else
          await new Promise<void>((done) => {
            wake = done;
          });
      }
      if (failed) throw failed;
    } finally {
      this.ending.abort();
      await whole;
    }
  }

  /** Records until `stop`. Otherwise as `sound`. */
  async run(heard: () => void): Promise<void> {
    try {
      const { signal } = this.ending;
      for await (const { array, sampling_rate } of microphone({ signal })) {
        this.rate = sampling_rate;
        this.add(array);
        heard();
      }
    } finally {
      this.ending.abort();
    }
  }

  private add(piece: Float32Array): void {
    this.pieces.push(piece);
    this.count += piece.length;
    for (;;) {
      const { length } = this.pieces[0]!;
      if (this.count - length < this.most * this.rate) return;
      this.pieces.shift();
      this.count -= length;
      this.forgotten.pieces++;
      this.forgotten.samples += length;
    }
  }

  /** The last seconds of it. */
  last(seconds = Infinity): Clip {
    const wanted = Math.min(this.count, Math.round(Math.min(seconds, this.most) * this.rate));
    const array = new Float32Array(wanted);
    let at = wanted;
    for (let i = this.pieces.length - 1; i >= 0 && at > 0; i--) {
      const piece = this.pieces[i]!;
      const used = Math.min(at, piece.length);
      array.set(piece.subarray(piece.length - used), at - used);
      at -= used;
    }
    return { array, sampling_rate: this.rate };
  }
}

/** The samples of a file, for drawing; undefined where the browser cannot decode it. */
export async function samplesOf(file: Blob): Promise<Clip | undefined> {
  try {
    const context = new OfflineAudioContext(1, 1, SHOWN_RATE);
    const buffer = await context.decodeAudioData(await file.arrayBuffer());
    return { array: buffer.getChannelData(0), sampling_rate: SHOWN_RATE };
  } catch {
    return undefined; // what is wrong with it is said by the pipeline
  }
}

/** A sound that may be moved to the worker. */
export const copyOf = (sound: Blob | Clip): Blob | Clip =>
  sound instanceof Blob ? sound : { ...sound, array: sound.array.slice() };

/** A WAV file of 16 bits. */
export function wavOf({ array, sampling_rate }: Clip): Blob {
  const head = new DataView(new ArrayBuffer(44));
  const bytes = 2 * array.length;
  [..."RIFF....WAVEfmt "].forEach((c, i) => {
    head.setUint8(i, c.charCodeAt(0));
  });
  head.setUint32(4, 36 + bytes, true);
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, sampling_rate, true);
  head.setUint32(28, 2 * sampling_rate, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  [..."data"].forEach((c, i) => {
    head.setUint8(36 + i, c.charCodeAt(0));
  });
  head.setUint32(40, bytes, true);
  const samples = Int16Array.from(array, (x) => Math.max(-1, Math.min(1, x)) * 32767);
  return new Blob([head, samples], { type: "audio/wav" });
}

/** A function that draws in the next frame, once in it however often it is called. */
export function inFrames(draw: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/** Draws a sound: the least and greatest sample of each column. `seconds`: of the whole width. */
export function drawWave(canvas: HTMLCanvasElement, clip: Clip, seconds?: number): void {
  const ratio = devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d")!;
  const style = getComputedStyle(canvas);
  context.clearRect(0, 0, width, height);
  context.fillStyle = style.color;
  const { array, sampling_rate: rate } = clip;
  const perColumn = ((seconds ?? array.length / rate) * rate) / width;
  let peak = 0.05; // quiet sounds stay small
  for (const x of array) if (Math.abs(x) > peak) peak = Math.abs(x);
  const middle = height / 2;
  for (let x = 0; x < width; x++) {
    const [from, to] = [Math.floor(x * perColumn), Math.ceil((x + 1) * perColumn)];
    let [low, high] = [0, 0];
    for (let i = from; i < Math.min(to, array.length); i++) {
      if (array[i]! < low) low = array[i]!;
      if (array[i]! > high) high = array[i]!;
    }
    const top = middle - (high / peak) * middle * 0.95;
    const bottom = middle - (low / peak) * middle * 0.95;
    context.fillRect(x, top, 1, Math.max(ratio, bottom - top));
  }
}

/** @throws InputError if a recording is too short to be of use */
export function longEnough(clip: Clip, seconds: number): Clip {
  const found = clip.array.length / clip.sampling_rate;
  if (found >= seconds) return clip;
  throw new InputError(
    `the recording has ${found.toFixed(1)} s`,
    "the microphone",
    `Speak for ${seconds} s or more.`,
  );
}
