// Messages of pipelines other than text generation.

import type { ModelInfo } from "./loading.ts";

/** Properties of a loaded pipeline. */
export interface TaskInfo
  extends Pick<
    ModelInfo,
    "device" | "flavour" | "threads" | "isolated" | "whyNotThreads" | "origin" | "dtype"
  > {
  /** Bytes. `engine` is the total that the engine holds, of which `weights` are a part. */
  memory: { engine: number; weights: number };
  /** As `ModelInfo.ms`. */
  ms: ModelInfo["ms"];
  /** Of language models that see or hear: most tokens of a sequence. */
  capacity?: number;
  /** Ways to train the model from pairs (`fineTune`); none: it was compiled without training. */
  training?: ModelInfo["training"];
  /** Of text-to-speech: Hz of the sound, whether sentences are spoken one by one, the kind. */
  speech?: { sampling_rate: number; splits: boolean; type: "vits" | "piper" | "kokoro" };
}

/** A tensor in a message. `data`: its bytes, little-endian. */
export interface TaskTensor {
  type: string;
  dims: number[];
  data: Uint8Array<ArrayBuffer>;
}

/** A picture: an absolute address, a file, a bitmap, or pixels. */
export type TaskPicture =
  | string
  | Blob
  | ImageBitmap
  | ImageData
  | { data: Uint8Array | Uint8ClampedArray; width: number; height: number; channels: number };

/** The samples in a WAV file, as its header describes them. */
export interface WavSamples {
  file: Blob;
  /** First byte of the samples. */
  at: number;
  /** Samples of one channel. */
  length: number;
  channels: number;
  /** The only one that is read. Default: the mean of all. */
  channel?: number;
  /** Of a sample of one channel. */
  bits: number;
  float: boolean;
}

/** A sound: samples of one channel, from -1 to 1, or those of a WAV file. */
export type TaskSound = {
  /** For errors. */
  name: string;
  /** Hz; 0: that of the model. */
  sampling_rate: number;
} & ({ samples: Float32Array<ArrayBuffer> } | { wav: WavSamples });

/** One input of a call. `picture`: the number of one that is open. */
export type TaskInput =
  | string
  | { text: string; text_pair: string }
  | { question: string; context: string }
  | { query: string; documents: string[] }
  | { image: TaskPicture }
  | { picture: number }
  | { sound: TaskSound }
  | { ask: TaskAsk }
  | { speech: TaskSpeech };

/** Messages or texts; where they had pictures they have `{picture: index}`. */
export interface TaskAsk {
  text: unknown;
  images: unknown;
  pictures: TaskPicture[];
  sounds: TaskSound[];
}

/** What is to be spoken. */
export interface TaskSpeech {
  sentences: (string | string[])[];
  /** Whether each of them is phonemes. */
  phonemes: boolean[];
  /** The result is what the phonemizer gets for each sentence; null: the model reads letters. */
  asks?: boolean;
}

/** A call of a pipeline. */
export interface TaskCall {
  inputs: TaskInput[];
  /** Options of the task, as the caller gave them, without undefined ones. */
  options: Record<string, unknown>;
  /** Whether text is sent while it is generated. */
  streams: boolean;
  /** Whether the results are the inputs of the model instead of those of the task, by `options`. */
  processor?: true;
}

/** A picture in a result: `channels` bytes for each pixel. */
export interface TaskImageResult {
  data: Uint8Array<ArrayBuffer>;
  width: number;
  height: number;
  channels: 1 | 3 | 4;
}

/** The next samples of a stream of sound. */
export interface TaskFeed {
  /** Number of the stream, which the page chose. */
  stream: number;
  samples: Float32Array<ArrayBuffer>;
  /** Hz; 0: that of the model. */
  sampling_rate: number;
  /** Whether these are the first ones: others of a stream that is closed open no new one. */
  first?: boolean;
  /** Whether these are the last ones. */
  last: boolean;
  /** Whether the stream is closed without results. */
  drop?: boolean;
  /** Of the stream, as in a call. */
  options: Record<string, unknown>;
  /** Of a stream's first samples: the other end of what `serve` gave to the worker for voices. */
  port?: MessagePort | undefined;
  /** Voice activity is to answer what comes here, and this request has no samples. */
  serve?: MessagePort;
}
