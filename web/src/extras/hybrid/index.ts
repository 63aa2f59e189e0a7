/**
 * Device and cloud: each call is computed where it is faster, cheaper or private.
 *
 * ```js
 * import { pipeline } from "edgewise";
 * import { hybrid, openAI } from "edgewise/hybrid";
 * const write = hybrid({
 *   device: () => pipeline("text-generation", "model.edge"),
 *   cloud: openAI({ baseURL: "https://example.org/v1", model: "stories" }),
 * });
 * await write("Once upon a time", { max_new_tokens: 40, streamer: (text) => console.log(text) });
 * ```
 *
 * The other side is `edgewise serve`, llama.cpp, vLLM, Ollama, or any endpoint of OpenAI's form.
 * @module
 */

export type { Message } from "../../protocol/generation.ts";
export { Aborted, EdgewiseError, InputError } from "../../shared/errors.ts";
export type { DeviceSource, DeviceState, Writer } from "./device.ts";
export type { LedgerEntry } from "./egress.ts";
export { CloudError } from "./events.ts";
export {
  type Hybrid,
  type HybridCall,
  type HybridOptions,
  type HybridOutput,
  hybrid,
  type LastCall,
  type TextReceiver,
} from "./hybrid.ts";
export { type Cloud, type OpenAIOptions, openAI } from "./openai.ts";
export { type Decision, type Policy, type Rules, rules, type Signals } from "./policy.ts";
export type { Keeper, SideRates } from "./rates.ts";
export { HybridError } from "./relay.ts";
export type { SharedFields, Where } from "./side.ts";
