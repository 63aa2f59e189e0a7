// What a page says when it takes part, and what it is told.

import type { Values } from "./codec.ts";
import type { Certify } from "./secure/index.ts";
import type { Terms, When } from "./terms.ts";
import type { LocalTrainer } from "./trainers.ts";

/** The result of a round. */
export interface RoundResult {
  run: string;
  round: number;
  /** Updates that count. */ participants: number;
  /** Clients without an update that counts. */ refused: number;
  /** Mean loss that they reported, or null. */ loss: number | null;
  /** Whether this client's update counts. */ counted: boolean;
}

/** Progress within a round. */
export interface RoundProgress {
  run: string;
  round: number;
  phase: "fetch" | "train" | "send";
  /** Updates (`train`) or bytes so far. */ done: number;
  /** Updates or bytes in all. */ total: number;
  /** Loss of the last update. */ loss?: number;
}

/** An update that leaves this machine. */
export interface SentUpdate {
  run: string;
  round: number;
  codec: string;
  /** The whole file, as a server gets it. */ data: Uint8Array<ArrayBuffer>;
  /** SHA-256 of the file. */ sha256: string;
  /** L2 norm of the change. */ norm: number;
  /** The weights from which it was trained, which a server has, too. */ base: Values;
  /** The change that the file holds; undefined: it is under masks, which cancel out in sums. */
  change: Values | undefined;
}

/** Options of {@link FederatedClient.join}. */
export interface FederatedOptions<Data> {
  /** What is trained: {@link textTrainer}, {@link sessionTrainer}, or an object of one's own. */
  trainer: LocalTrainer<Data>;
  /** What it is trained on; it never leaves. */
  data: Data;
  /** Name of this client in the browser's storage. Default: `client`. */
  name?: string;
  /** Name that the server's log shows. Default: none. */
  label?: string;
  /** A ticket, for servers that need one. */
  ticket?: string;
  /** What is demanded of rounds. */
  terms?: Terms;
  /** Asks the app's login to certify this client's key (base64url), for secure aggregation. */
  certify?: Certify;
  /** When the client takes part. Default: always. */
  when?: When;
  /** Ends the part in the rounds as {@link FederatedClient.leave}, also before a server answers. */
  signal?: AbortSignal;
  /** Called after each round. */
  onRound?: (result: RoundResult) => void;
  /** Called when the weights after the last round are in use: {@link LocalTrainer.load}. */
  onLast?: (weights: Values) => void;
  /** Called before an update leaves: with its bytes, and with the change that they stand for. */
  onSend?: (sent: SentUpdate) => void;
  /** Called when the connection was made, and when it was lost. */
  onConnection?: (connected: boolean) => void;
  /** Called while a round's task is worked on. */
  onProgress?: (progress: RoundProgress) => void;
  /** Called when a task is declined, with the reason. */
  onDecline?: (reason: string) => void;
}
