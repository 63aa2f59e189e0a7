export { Configuration } from "../../logic/generation/config.ts";
export type { GenerationFields } from "../../protocol/generation.ts";
export { generate, steps } from "./generate.ts";
export { modelDefaults, resolve } from "./inputs.ts";
export { GenerationRun } from "./run.ts";
export { DecodingStreamer, type TextStreamerOptions } from "./streamers.ts";
export type {
  Choosing,
  Decoder,
  FinishReason,
  GenerateOutput,
  GenerationOptions,
  Logits,
  LogitsProcessor,
  StoppingCriterion,
  StopTokenizer,
  Streamer,
} from "./types.ts";
