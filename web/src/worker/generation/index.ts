export type { GenerationFields } from "../../protocol/generation.ts";
export { GenerationConfig } from "./config.ts";
export { generate, steps } from "./generate.ts";
export { modelDefaults } from "./inputs.ts";
export { DecodingStreamer, type TextStreamerOptions } from "./streamers.ts";
export type {
  Decoder,
  FinishReason,
  GenerateOutput,
  GenerationOptions,
  LogitsProcessor,
  StoppingCriterion,
  StopTokenizer,
  Streamer,
} from "./types.ts";
