// The conditions under which a client takes part. The page enforces them: it declines tasks.

import type { Message } from "./connection.ts";

/** What a client demands of rounds; it declines tasks that do not meet it. */
export interface Terms {
  /** Fewest clients that get the task of a round. Default: 1. */
  minimumCohort?: number;
  /** `required`: only rounds whose server sees sums, but no single update. */
  secureAggregation?: "required" | "optional";
  /** Only rounds with differential privacy of at most this ε. Default: no demand. */
  maxEpsilon?: number;
  /** Most bytes of updates that leave within 24 hours, of all clients of this origin. */
  maxBytesPerDay?: number;
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
  if (charging && getBattery && !(await getBattery.call(navigator)).charging) return false;
  if (unmetered && (connection?.saveData || connection?.type === "cellular")) return false;
  return !(visible && globalThis.document?.visibilityState === "hidden");
}

/**
 * Why a task does not meet the terms; undefined: it does.
 * @param offered what the server said about its rounds
 * @param sent bytes of updates that left within 24 hours
 * @param bytes size of the update, if it is known
 */
export function objection(
  terms: Terms,
  task: Message,
  offered: Record<string, unknown>,
  sent: number,
  bytes: number,
): string | undefined {
  const cohort = Number(task.cohort);
  const least = terms.minimumCohort ?? 1;
  if (!(cohort >= least)) return `the task is for ${cohort} clients, the terms say ${least}`;
  if (terms.secureAggregation === "required" && offered.secureAggregation !== true)
    return "the terms require secure aggregation";
  if (terms.maxEpsilon !== undefined) {
    const { epsilon } = (task.privacy ?? {}) as { epsilon?: unknown };
    if (!(typeof epsilon === "number" && epsilon <= terms.maxEpsilon))
      return `the terms require differential privacy with an epsilon up to ${terms.maxEpsilon}`;
  }
  const most = terms.maxBytesPerDay ?? Infinity;
  return sent + bytes > most ? `the terms allow ${most} bytes a day` : undefined;
}
