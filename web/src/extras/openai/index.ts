/**
 * OpenAI's API on a pipeline of this page: nothing leaves it.
 *
 * ```js
 * import { pipeline } from "edgewise";
 * import { createClient } from "edgewise/openai";
 * const client = createClient(await pipeline("text-generation", "onnx-community/Qwen3-0.6B-ONNX"));
 * const stream = await client.chat.completions.create({
 *   model: "any",
 *   messages: [{ role: "user", content: "Hello" }],
 *   stream: true,
 * });
 * for await (const { choices } of stream) console.log(choices[0]?.delta.content);
 * ```
 *
 * OpenAI's own package runs on it without a network:
 * `new OpenAI({ apiKey: "none", dangerouslyAllowBrowser: true, fetch: client.fetch })`.
 * @module
 */

export type { Message } from "../../protocol/generation.ts";
export { Aborted, EdgewiseError, InputError, RequestError } from "../../shared/errors.ts";
export { type Client, createClient } from "./client.ts";
export type * from "./types.ts";
