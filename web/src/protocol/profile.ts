// A profile as recorded by the worker.

import type { PlanProfile } from "../logic/profile.ts";

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

/** Recording of an engine. */
export interface ProfileData {
  /** Build of the engine, and number of its threads. */
  flavour: string;
  threads: number;
  /** Duration of the recording in milliseconds. */
  wallMs: number;
  limits: Limits;
  plans: PlanProfile[];
}
