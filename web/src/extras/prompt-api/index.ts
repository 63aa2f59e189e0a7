/**
 * The browser's Prompt API on a pipeline of this page: nothing leaves it.
 *
 * ```js
 * import { pipeline } from "edgewise";
 * import { polyfill } from "edgewise/prompt-api";
 * const pipe = await pipeline("text-generation", "onnx-community/Qwen3-0.6B-ONNX");
 * const LanguageModel = polyfill(pipe);
 * const session = await LanguageModel.create();
 * for await (const text of session.promptStreaming("Hello")) console.log(text);
 * ```
 * @module
 */

export type { Message } from "../../protocol/generation.ts";
export {
  LanguageModelToolCall,
  LanguageModelToolError,
  LanguageModelToolSuccess,
} from "./content.ts";
export { createLanguageModel, type LanguageModelClass, polyfill } from "./model.ts";
export type { LanguageModel } from "./session.ts";
export type * from "./types.ts";
