// Learning rate schedules, as python/edgewise/training/schedules.py and transformers' get_scheduler
// have them.

/** Names of schedules. */
export const SCHEDULES = ["constant", "linear", "cosine"] as const;
/** How the learning rate goes: as it is, or down to 0 by a line or half a cosine wave. */
export type Schedule = (typeof SCHEDULES)[number];

/**
 * The factor of the learning rate at an update.
 * @param step counting from 0
 * @param total updates in all
 * @param warmup updates over which it rises from 0
 */
export function factor(schedule: Schedule, step: number, total: number, warmup: number): number {
  if (step < warmup) return step / Math.max(1, warmup);
  if (schedule === "constant") return 1;
  const rest = Math.max(0, (total - step) / Math.max(1, total - warmup));
  return schedule === "linear" ? rest : 0.5 * (1 + Math.cos(Math.PI * (1 - rest)));
}
