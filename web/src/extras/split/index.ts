/**
 * Models in two parts: the part that sees the inputs runs here, the rest on a server.
 *
 * ```js
 * import { InferenceSession, Tensor } from "edgewise";
 * import { splitSession } from "edgewise/split";
 * const session = splitSession({
 *   first: await InferenceSession.create("first.onnx"),
 *   rest: "https://example.org/v1/split/bert",
 *   tensors: ["hidden"],
 *   Tensor,
 * });
 * const { logits } = await session.run({ input_ids: new Tensor("int64", [1n, 2n], [1, 2]) });
 * ```
 *
 * `edgewise split` makes the parts, `edgewise serve --split` runs the second one.
 * @module
 */

export type { Elements } from "../../shared/element-arrays.ts";
export { Aborted, EdgewiseError, InputError } from "../../shared/errors.ts";
export type { LedgerEntry } from "../hybrid/egress.ts";
export { CloudError } from "../hybrid/events.ts";
export { type Decision, type Policy, type Rules, rules, type Signals } from "../hybrid/policy.ts";
export { HybridError } from "../hybrid/relay.ts";
export {
  type SessionLike,
  type SessionSource,
  type SplitCall,
  type SplitOptions,
  type SplitSession,
  splitSession,
  type Tensors,
} from "./session.ts";
export type { TensorLike } from "./wire.ts";
