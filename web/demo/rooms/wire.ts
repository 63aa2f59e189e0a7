// What the pages of the room "Teach it together" tell each other, over a channel of this browser.
// It carries what a participant shows anyway: its text stays in its page.

import type { RoundResult } from "edgewise/federated";

/** What a participant is doing. */
export type Phase =
  | "loading"
  | "ready"
  | "no hub"
  | "waiting"
  | "fetch"
  | "train"
  | "send"
  | "lost"
  | "left"
  | "ended";

/** An update as the hub gets it. */
export interface Seen {
  round: number;
  codec: string;
  data: Uint8Array<ArrayBuffer>;
  sha256: string;
  norm: number;
  /** Whether the file is under masks, which cancel out in the sum of all. */ masked: boolean;
}

/** What a participant says. */
export type News = { from: number } & (
  | { kind: "phase"; phase: Phase; round?: number; done?: number; total?: number; loss?: number }
  | { kind: "terms"; run: string; rounds: number; clients: number }
  | { kind: "bytes"; round: number; up: number; down: number }
  | { kind: "round"; result: RoundResult }
  | { kind: "sent"; update: Seen }
  | { kind: "looked"; rounds: number; text: string }
  | { kind: "wrote"; text: string }
  | { kind: "gone" }
);

/** What the room asks of participants; all of them if there is no `to`. */
export type Order = { to?: number } & (
  | { kind: "join"; hub: string }
  | { kind: "leave" }
  | { kind: "tell" }
  | { kind: "look" }
);

type End = "room" | "participant";

/**
 * One end of the channels: what it takes comes from the other kind of page alone.
 * @returns the function that sends
 */
export function wire<In, Out>(end: End, take: (message: In) => void): (message: Out) => void {
  const channel = (to: End) => new BroadcastChannel(`edgewise teach it together: ${to}`);
  channel(end).onmessage = ({ data }) => take(data as In);
  const other = channel(end === "room" ? "participant" : "room");
  return (message) => other.postMessage(message);
}

/** Names of the participants. */
export const PEOPLE = ["Ada", "Ben", "Cleo"];
