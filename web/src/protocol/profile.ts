// A profile as the worker records it.

/**
 * What an engine reaches here with its threads, in 10^9 per second: operations in a large product
 * of float32 and in one of int8, bytes in summing 128 MB of memory. Its own kernels at the sizes
 * that suit them best, not figures of a data sheet. Without what it has no kernel or no memory for.
 */
export interface Limits {
  float32?: number;
  int8?: number;
  memory?: number;
}

/**
 * What a package says of a plan's steps. `integer`: it may multiply bytes instead of floats. Pairs:
 * at the lowest and at the highest value of the plan's first register (in a decoder: cache empty,
 * cache full).
 */
export interface PlanNotes {
  node: string[];
  op: string[];
  operations: [number, number][];
  bytes: [number, number][];
  inUse: number[];
  integer: boolean[];
}

/** As the worker took it. */
export interface ProfileData {
  /** The engine's build, and its threads. */
  flavour: string;
  threads: number;
  /** Milliseconds from the profile's beginning to its end. */
  wallMs: number;
  limits: Limits;
  /**
   * `at`: ms since the profile began; `ms` of each step; `place` of the first register between its
   * lowest (0) and highest (1) value.
   */
  plans: {
    name: string;
    arenaBytes: number;
    kernels: string[];
    notes: PlanNotes | undefined;
    runs: { at: number; ms: Float64Array; place: number }[];
  }[];
}

export type Plan = ProfileData["plans"][number];

export function opOf(p: Plan, step: number): string {
  return p.notes?.op[step] || p.kernels[step]!;
}
