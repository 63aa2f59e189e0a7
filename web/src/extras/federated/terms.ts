// The conditions under which a client takes part. The page enforces them: it declines tasks.

import { decoded, SEED } from "../../logic/federated/crypto.ts";
import type { Terms as Read } from "../../logic/federated/terms.ts";

const MAX_SECONDS = 3600; // of a task

/** What a client demands of rounds; it declines tasks that do not meet it. */
export interface Terms {
  /** Fewest clients that get the task of a round. Default: 1. */
  minimumCohort?: number;
  /**
   * `required`: only rounds whose server sees sums of groups, but no single update. It needs
   * `authority`; `minimumCohort` then is the fewest members of the group, whose keys, certificates
   * and consents this client has checked itself. Default: `optional`.
   */
  secureAggregation?: "required" | "optional";
  /**
   * Ed25519 public key (base64url) of who certifies members: not the server, which could invent
   * them. Without it members are taken on the server's word.
   */
  authority?: string;
  /**
   * Only rounds with differential privacy that lead to at most this ε. By default the noise must be
   * the clients' own, added to secure sums. Default: no demand.
   */
  maxEpsilon?: number;
  /** Whose noise counts for `maxEpsilon`; `server`: its word for ε is taken. Default: `clients`. */
  noiseBy?: "clients" | "server";
  /** Most bytes of updates that leave within 24 hours, of all clients of this origin. */
  maxBytesPerDay?: number;
  /** Most seconds of a task, whatever its deadline. Default: 3600. */
  maxSeconds?: number;
}

/** When a client takes part. A condition that the browser cannot tell is met. */
export interface When {
  /** Only while the battery is charging. */ charging?: boolean;
  /** Not over cellular connections, nor where the user saves data. */ unmetered?: boolean;
  /** Only while the page is visible. */ visible?: boolean;
}

interface Signals {
  getBattery?: () => Promise<{ charging: boolean }>;
  connection?: { type?: string; saveData?: boolean };
}

/** Whether the conditions are met now. */
export async function isTime({ charging, unmetered, visible }: When): Promise<boolean> {
  const { getBattery, connection } = navigator as Signals;
  if (charging && getBattery) {
    const unknown = { charging: true }; // the page may not ask
    const battery = await getBattery.call(navigator).catch(() => unknown);
    if (!battery.charging) return false;
  }
  if (unmetered && (connection?.saveData || connection?.type === "cellular")) return false;
  return !(visible && globalThis.document?.visibilityState === "hidden");
}

/** Terms as the rules for both languages read them. */
export const read = (terms: Terms): Read => ({
  minimum_cohort: terms.minimumCohort ?? 1,
  required: terms.secureAggregation === "required",
  authority:
    terms.authority === undefined ? null : decoded(terms.authority, SEED, "terms.authority"),
  max_epsilon: terms.maxEpsilon ?? null,
  trusts_server: terms.noiseBy === "server",
  max_bytes: terms.maxBytesPerDay ?? Infinity,
  max_seconds: terms.maxSeconds ?? MAX_SECONDS,
});
