// Runs Whisper for logic/speech, which decides what is run.

import { log_probability } from "../../../../logic/generation/run.ts";
import type { WhisperModel } from "../../../../logic/speech/prompts.ts";
import type { Part } from "../../../../logic/speech/recognition.ts";
import type { Generate, Request, Segment } from "../../../../logic/speech/requests.ts";
import { drive } from "../../../../shared/drive.ts";
import {
  type GenerateOutput,
  generate,
  logProbabilityOf,
  type Streamer,
} from "../../../generation/index.ts";
import { startIds } from "../fields.ts";
import type { Seq2SeqModel } from "../model.ts";
import type { EncodedSource } from "../source.ts";
import type { Features } from "./features.ts";

/** What is known of a transcription, is told of it, and ends it. */
export interface Listener {
  streamer: Streamer | undefined;
  signal: AbortSignal;
  /** The features of a part of the recording. */
  features(part: Part): Promise<Features>;
  /** Called with the frames that are done and all frames. */
  onProgress(done: number, total: number): void;
  /** Called with the segments of each window. */
  onSegments(segments: readonly Segment[]): void;
}

/** What the logic knows of a model. */
export function whisperModel(model: Seq2SeqModel): WhisperModel {
  const { generation_config, config, info, max_length, longest, positions } = model;
  const [start] = startIds(model) as [number];
  const vocab_size = info.vocabSize;
  return { generation_config, config, vocab_size, max_length, start, frames: longest, positions };
}

/** Answers what the logic of Whisper asks for. */
export class WhisperRunner {
  private features: Features | undefined;
  private source: EncodedSource | undefined;

  constructor(
    private readonly model: Seq2SeqModel,
    private readonly listener: Listener,
  ) {}

  /**
   * The result of the logic.
   * @throws InputError, Aborted
   */
  async run<T>(steps: Generator<Request | Part, T>): Promise<T> {
    try {
      return await drive(steps, (request: Request | Part) => this.answer(request));
    } finally {
      this.close();
    }
  }

  private close(): void {
    this.source?.close();
    this.source = undefined;
  }

  private async answer(request: Request | Part): Promise<unknown> {
    if (request.kind === "part") {
      this.features = await this.listener.features(request);
      return [this.features.frames, this.features.spoken];
    }
    if (request.kind === "progress") this.listener.onProgress(request.done, request.total);
    else if (request.kind === "found") this.listener.onSegments(request.segments);
    else if (request.kind === "deflate") return deflated(request.data);
    else if (request.kind === "encode") {
      this.close();
      this.source = this.model.encodeFeatures(await this.features!.window(request.start));
    } else if (request.kind === "generate") return this.generate(request, this.source!);
    else if (request.kind === "align")
      return this.model.align(this.source!, request.tokens, request.skip, request.length);
    else return this.after(request, this.source!);
  }

  /** What follows tokens. */
  private async after(
    request: Extract<Request, { kind: "logits" | "log_probability" }>,
    source: EncodedSource,
  ): Promise<Float32Array | number> {
    const sequence = source.open();
    try {
      const at = await source.forward(sequence, request.tokens);
      if (request.kind === "log_probability") return logProbability(source, at, request.token);
      return logits(source, at);
    } finally {
      source.close(sequence);
    }
  }

  /** Tokens after the prompt, and the sum of the logarithms of their probabilities or 0. */
  private async generate(
    { prompt, fields, scores }: Generate,
    source: EncodedSource,
  ): Promise<[number[], number]> {
    const { streamer, signal } = this.listener;
    let total = 0;
    const add = (at: number, token: number) => {
      total += logProbability(source, at, token, fields.temperature ?? 1);
    };
    source.scored = scores === "chosen" ? add : undefined;
    const made = (await generate(
      source,
      prompt,
      {},
      {
        fields: { ...fields, return_dict_in_generate: true },
        ...(streamer ? { streamer } : {}),
        signal,
      },
    )) as GenerateOutput;
    source.scored = undefined;
    const tokens = made.sequences[0]!.slice(prompt.length);
    if (scores === "beams") total = await logProbabilityOf(source, prompt, tokens, fields);
    return [tokens, total];
  }
}

/** The logits at an address. */
function logits({ engine, vocab_size }: EncodedSource, at: number): Float32Array {
  const bytes = engine.read(at, 4 * vocab_size);
  return new Float32Array(bytes.buffer, bytes.byteOffset, vocab_size);
}

/** The logits that the detection of a window's language asks for. */
export async function logitsOf(
  model: Seq2SeqModel,
  window: Float32Array<ArrayBuffer>,
  request: Request,
): Promise<Float32Array | undefined> {
  if (request.kind !== "logits") return undefined;
  const source = model.encodeFeatures(window);
  const sequence = source.open();
  try {
    return logits(source, await source.forward(sequence, request.tokens)).slice();
  } finally {
    source.close(sequence);
    source.close();
  }
}

/** The logarithm of the probability of a token. scores: address of float32 [vocab_size]. */
const logProbability = (
  { engine, vocab_size }: EncodedSource,
  scores: number,
  token: number,
  factor = 1,
): number => log_probability(engine, vocab_size, scores, token, factor);

/** Bytes that deflate makes of others. */
async function deflated(data: Uint8Array): Promise<number> {
  const stream = new Blob([data as Uint8Array<ArrayBuffer>])
    .stream()
    .pipeThrough(new CompressionStream("deflate"));
  return (await new Response(stream).arrayBuffer()).byteLength;
}
