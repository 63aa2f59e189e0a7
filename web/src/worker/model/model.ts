// A loaded language model.

import type { Device } from "../../device/device.ts";
import type { Weight } from "../../gen/schema.ts";
import type { ModelInfo, Urls } from "../../protocol/loading.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Adapters } from "../training/adapters.ts";
import type { EngineDecoder } from "./decoder.ts";
import type { Weights } from "./weights.ts";

/** A loaded language model. */
export interface Model {
  device: Device;
  decoder: EngineDecoder;
  tokenizer: Tokenizer;
  info: ModelInfo;
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
  /** A smaller model that guesses its tokens. */
  assistant?: Model;
}

/** An .onnx model; `graph`: name of the .onnx file among `files`. */
export interface Onnx {
  graph: string;
  files: Map<string, Blob>;
}
