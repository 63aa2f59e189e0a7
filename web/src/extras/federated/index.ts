/**
 * Federated rounds: a page trains on its visitor's data and sends what changed.
 *
 * ```js
 * import { pipeline, Trainer } from "edgewise";
 * import { FederatedClient, textTrainer } from "edgewise/federated";
 * const write = await pipeline("text-generation", "model.edge");
 * const trainer = textTrainer(write, Trainer);
 * const client = await FederatedClient.join("wss://example.org/rounds", { trainer, data: [text] });
 * ```
 *
 * The server is `edgewise federate serve`.
 * @module
 */

export {
  Aborted,
  EdgewiseError,
  InputError,
  ModelError,
  StorageError,
} from "../../shared/errors.ts";
export { FederatedClient } from "./client.ts";
export type { Codec, Values } from "./codec.ts";
export type { FederatedOptions, RoundProgress, RoundResult, SentUpdate } from "./options.ts";
export type { Certificate, Certify } from "./secure/index.ts";
export type { LedgerEntry } from "./store.ts";
export type { Terms, When } from "./terms.ts";
export {
  type LocalResult,
  type LocalTask,
  type LocalTrainer,
  sessionTrainer,
  type TextTrainerOptions,
  textTrainer,
} from "./trainers.ts";
