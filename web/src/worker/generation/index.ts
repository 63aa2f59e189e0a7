export { GenerationConfig } from "./config.ts";
export type { GenerationFields } from "../../protocol/generation.ts";
export {
  generate,
  modelDefaults,
  steps,
  type Decoder,
  type EngineMemory,
  type FinishReason,
  type GenerateOptions,
  type GenerateOutput,
  type LogitsProcessor,
  type StoppingCriterion,
  type StopTokenizer,
  type Streamer,
} from "./generate.ts";
export { TextStreamer, type TextStreamerOptions } from "./streamers.ts";
