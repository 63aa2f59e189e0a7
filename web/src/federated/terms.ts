// The conditions under which a client takes part. The page enforces them: it declines tasks.

import type { Message } from "./connection.ts";

/** What a client demands of rounds; it declines tasks that do not meet it. */
export interface Terms {
  /** Fewest clients that get the task of a round. Default: 1. */
  minimumCohort?: number;
  /** `required`: only rounds whose server sees sums, but no single update: none yet. */
  secureAggregation?: "required" | "optional";
  /**
   * Only rounds in which this client adds noise for differential privacy of at most this ε: none
   * yet. Default: no demand.
   */
  maxEpsilon?: number;
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

/**
 * Why a task does not meet the terms; undefined: it does. What a server says proves nothing: a term
 * that this client cannot keep itself declines every task.
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
  if (terms.secureAggregation === "required")
    return "the terms require secure aggregation, which this client does not have";
  if (terms.maxEpsilon !== undefined)
    return "the terms require differential privacy, which this client does not have";
  const most = terms.maxBytesPerDay ?? Infinity;
  return sent + bytes > most ? `the terms allow ${most} bytes a day` : undefined;
}
