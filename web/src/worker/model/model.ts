// A loaded language model.

import type { Device } from "../../device/device.ts";
import type { Weight } from "../../gen/schema.ts";
import type { Prepared } from "../../logic/multimodal/prompt.ts";
import type { Example } from "../../logic/training/chat.ts";
import type { Pair, PairKind } from "../../logic/training/pairs.ts";
import type { ModelInfo, Urls } from "../../protocol/loading.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Adapters } from "../training/adapters.ts";
import type { EngineDecoder } from "./decoder.ts";
import type { Taught } from "./taught.ts";
import type { Weights } from "./weights.ts";

/** A loaded model, as far as training goes. */
export interface Learner {
  device: Device;
  decoder: Taught;
  tokenizer: Tokenizer;
  info: Pick<ModelInfo, "device" | "training">;
  weights: Weights;
  /** Made when they are first needed (training/adapters-of.ts), since few pages load that part. */
  adapters: Adapters | undefined;
  /** Training programs; empty if it cannot be trained. */
  programs: Map<string, ProgramInfo>;
  /** Plans of the training programs. */
  files: Map<string, Uint8Array>;
  /** Identifies the weights: adapters fit all models with the same key. */
  key: string;
  /** Its weights in the manifest. */
  described: ReadonlyMap<string, Weight>;
  /** Name for errors. */
  where: string;
  urls: Urls;
  /** The .onnx file that it was compiled from; undefined for packages. */
  onnx: (() => Promise<Onnx>) | undefined;
  /** The text of its config.json. */
  config: string | undefined;
  /** Of a model with an encoder: reads pairs. */
  pairs?: ReadPairs;
}

/** A loaded language model. */
export interface Model extends Learner {
  decoder: EngineDecoder;
  info: ModelInfo;
  /** A smaller model that guesses its tokens. */
  assistant?: Model;
}

/** A pair as a model with an encoder learns it: tokens, and the states of the encoder. */
export interface Encoded {
  example: Example;
  /** [positions, width] */
  states: Float32Array<ArrayBuffer>;
}

/** The features of pictures, at their places in a row. */
export interface Features {
  prompt: Prepared;
  /** For each picture its features, float32 [count, hidden]. */
  parts: readonly Uint8Array[];
  /** How many each has. */
  counts: number[];
}

/** A pair as a model that sees learns it: the prompt without and with the answer. */
export interface Asked {
  asked: Prepared;
  whole: Prepared;
  /** Ids of tokens that end an answer. */
  ends: number[];
  parts: Features["parts"];
  counts: Features["counts"];
}

/** Inputs of a batch besides ids and labels. */
export type FeedFeatures = (
  program: ProgramInfo,
  features: readonly Features[],
) => Record<string, Uint8Array>;

/**
 * Reads pairs.
 * @param options of the pipeline's calls
 * @param signal ends it
 */
export type ReadPairs = (
  options: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
) => Promise<{
  kind: PairKind;
  /** Numbers of a position of the encoder's states. */
  width: number;
  read(pair: Pair): Promise<Encoded | Asked>;
  /** Of a model that sees. */
  feeds: FeedFeatures | undefined;
}>;

/** An .onnx model; `graph`: name of the .onnx file among `files`. */
export interface Onnx {
  graph: string;
  files: Map<string, Blob>;
}
