// A loaded language model.

import type { Device } from "../../device/device.ts";
import type { ModelInfo, Urls } from "../../protocol/loading.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Adapters } from "../training/adapters.ts";
import type { EngineDecoder } from "./decoder.ts";
import type { Weights } from "./weights.ts";

/** A loaded language model and all that belongs to it. */
export interface Model {
  device: Device;
  decoder: EngineDecoder;
  tokenizer: Tokenizer;
  info: ModelInfo;
  weights: Weights;
  adapters: Adapters;
  /** How it can be trained; empty where it cannot. */
  programs: Map<string, ProgramInfo>;
  /** The plans of that. */
  files: Map<string, Uint8Array>;
  /** Stands for the model: what was trained on one fits another of the same key. */
  key: string;
  /** Its name, for errors. */
  where: string;
  urls: Urls;
  /** The .onnx file that it was compiled from, and what belongs to it; undefined for packages. */
  onnx: (() => Promise<Onnx>) | undefined;
}

/** `graph`: the name of the .onnx file among `files`. */
export interface Onnx {
  graph: string;
  files: Map<string, Blob>;
}
