/**
 * Edgewise with the names of transformers.js: its tensors' and pictures' methods, functions of
 * tensors, tokenizers and models, beside all that Edgewise exports.
 *
 * ```js
 * import { AutoModelForCausalLM, AutoTokenizer } from "./transformers.js";
 * const tokenizer = await AutoTokenizer.from_pretrained("org/name");
 * const model = await AutoModelForCausalLM.from_pretrained("org/name", { dtype: "q4" });
 * const inputs = tokenizer("Once upon a time");
 * const tokens = await model.generate({ ...inputs, max_new_tokens: 20 });
 * console.log(tokenizer.batch_decode(tokens, { skip_special_tokens: true }));
 * ```
 *
 * Importing it adds methods to the classes `Tensor` and `RawImage` of Edgewise.
 * @module
 */

import { Tensor as Base } from "../../page/index.ts";
import type { Tensor as Extended } from "./tensor-methods.ts";

export * from "../../page/index.ts";
export * from "./functions.ts";
export {
  load_image,
  RawImage,
  type RawImageMethods,
  type RawImageStatic,
} from "./images.ts";
export * from "./models.ts";
export { load_audio, read_audio } from "./sounds.ts";
export type { Nested, Slice, TensorMethods } from "./tensor-methods.ts";
export {
  AutoTokenizer,
  type BatchEncoding,
  type ChatOptions,
  type DecodeOptions,
  type PreTrainedTokenizer,
  type TokenizerOptions,
} from "./tokenizers.ts";

/** A tensor with the methods of transformers.js. */
export type Tensor = Extended;
/** The class of tensors: Edgewise's, with the methods of transformers.js. */
export const Tensor = Base as unknown as {
  new (...given: ConstructorParameters<typeof Base>): Extended;
  new (type: string, data: unknown, dims?: readonly number[]): Extended;
  readonly prototype: Extended;
} & Omit<typeof Base, "prototype">;
