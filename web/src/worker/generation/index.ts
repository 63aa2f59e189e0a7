export { GenerationConfig } from "./config.ts";
export type { GenerationFields } from "../../protocol/generation.ts";
export { generate, steps } from "./generate.ts";
export { modelDefaults } from "./inputs.ts";
export type {
  Decoder,
  FinishReason,
  GenerateOptions,
  GenerateOutput,
  LogitsProcessor,
  StoppingCriterion,
  StopTokenizer,
  Streamer,
} from "./types.ts";
export { TextStreamer, type TextStreamerOptions } from "./streamers.ts";
