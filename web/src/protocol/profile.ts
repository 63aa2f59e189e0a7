// A profile as recorded by the worker.

/**
 * Limits of an engine with its threads, in 10^9 per second: operations in a large float32 matrix
 * product (`float32`) and in a large int8 one (`int8`), bytes when summing 128 MB (`memory`).
 * Measured with the engine's own kernels at their best sizes; fields are missing if the engine
 * lacks the kernel or the memory.
 */
export interface Limits {
  float32?: number;
  int8?: number;
  memory?: number;
}

/**
 * Notes of a package about a plan's steps. `integer`: whether the step may use integer arithmetic.
 * Pairs are the values at the lowest and the highest value of the plan's first register: in a
 * decoder, with an empty and with a full cache.
 */
export interface PlanNotes {
  node: string[];
  op: string[];
  operations: [number, number][];
  bytes: [number, number][];
  inUse: number[];
  integer: boolean[];
}

/** Recording of an engine. */
export interface ProfileData {
  /** Build of the engine, and number of its threads. */
  flavour: string;
  threads: number;
  /** Duration of the recording in milliseconds. */
  wallMs: number;
  limits: Limits;
  /**
   * Runs of each plan. `at`: milliseconds since the recording began; `ms` of each step; `place`:
   * the position of the first register between its lowest (0) and highest (1) value.
   */
  plans: {
    name: string;
    arenaBytes: number;
    kernels: string[];
    notes: PlanNotes | undefined;
    runs: { at: number; ms: Float64Array; place: number }[];
  }[];
}

export type PlanProfile = ProfileData["plans"][number];

export function opOf(p: PlanProfile, step: number): string {
  return p.notes?.op[step] || p.kernels[step]!;
}
