// The conditions under which a client takes part. The page enforces them: it declines tasks.

import type { Message } from "./connection.ts";

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

/** ε after a round, as the server says; undefined: there is no such number. */
export function epsilonOf(task: Message): number | undefined {
  const told = (task.privacy as { epsilon?: unknown } | null | undefined)?.epsilon;
  return typeof told === "number" ? told : undefined;
}

/**
 * Why a task does not meet the terms; undefined: it does, as far as can be known before its group
 * has members. What a server says proves nothing: secure/ checks who takes part, and adds noise.
 * @param sent bytes of updates that left within 24 hours
 * @param bytes size of the update, if it is known
 */
export function objection(
  terms: Terms,
  task: Message,
  sent: number,
  bytes: number,
): string | undefined {
  const cohort = Number(task.cohort);
  const least = terms.minimumCohort ?? 1;
  if (!(cohort >= least)) return `the task is for ${cohort} clients, the terms say ${least}`;
  const most = terms.maxBytesPerDay ?? Infinity;
  if (sent + bytes > most) return `the terms allow ${most} bytes a day`;
  if (task.audit && !task.secure) return undefined; // nothing of this client's data is sent
  const secure = task.secure as { noise?: number } | null | undefined;
  if (terms.secureAggregation === "required" && !secure)
    return "the terms require secure aggregation, which the task does not have";
  const { maxEpsilon, noiseBy } = terms;
  if (maxEpsilon !== undefined && noiseBy === "server") {
    const told = epsilonOf(task);
    if (!(told !== undefined && told >= 0 && told <= maxEpsilon))
      return `the task spends epsilon ${told}, the terms allow ${maxEpsilon}`;
  } else if (maxEpsilon !== undefined && !((secure?.noise ?? 0) > 0))
    return "the terms require noise of the clients, which the task does not have";
  return undefined;
}
