// Learning rate schedules: the factors of transformers' get_scheduler.
// python/edgewise/logic/training/schedules.py has the same; tests/conformance/training_data.json
// holds both to transformers' values.

/** Names of schedules. */
export const SCHEDULES = ["constant", "linear", "cosine"] as const;
/** The learning rate stays, or falls to 0 linearly or along half a cosine wave. */
export type Schedule = (typeof SCHEDULES)[number];

/**
 * The factor of the learning rate at an update.
 * @param step updates made so far
 * @param total updates of the run
 * @param warmup updates over which the factor rises linearly from 0 to 1
 * @returns the factor; from `total` on 0, unless `constant`
 */
export function factor(schedule: Schedule, step: number, total: number, warmup: number): number {
  if (step < warmup) return step / Math.max(1, warmup);
  if (schedule === "constant") return 1;
  const span = Math.max(1, total - warmup);
  if (schedule === "linear") return Math.max(0, (total - step) / span);
  const progress = Math.min(1, (step - warmup) / span);
  return Math.max(0, 0.5 * (1 + Math.cos(Math.PI * progress)));
}
