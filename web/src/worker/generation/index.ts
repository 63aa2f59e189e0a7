export { Configuration } from "../../logic/generation/config.ts";
export type { Logits } from "../../logic/generation/requests.ts";
export type { GenerationFields } from "../../protocol/generation.ts";
export { generate, logProbabilityOf, modelDefaults } from "./generate.ts";
export { DecodingStreamer, type TextStreamerOptions } from "./streamers.ts";
export type {
  Choosing,
  Decoder,
  GenerateOutput,
  GenerationOptions,
  StopTokenizer,
  Streamer,
} from "./types.ts";
