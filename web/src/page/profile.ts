// Profiles for the page: time by operator, node and plan, as text tables and as a trace for
// Perfetto.

import {
  count_runs,
  memory_rows,
  profile_text,
  type Recorded,
  type Row,
  rows_by_node,
  rows_by_op,
  rows_by_plan,
  total_ms,
  trace_of,
} from "../logic/profile.ts";
import type { Limits, ProfileData } from "../protocol/profile.ts";
import { InputError } from "../shared/errors.ts";
import type { SessionClient } from "./inference/inline-client.ts";

/** Measurements of a group of steps. */
export interface ProfileRow {
  /** Number of steps that ran. */
  calls: number;
  /** Total time in milliseconds. */
  ms: number;
  /** Fraction of the time of all steps, 0 to 1. */
  share: number;
  /**
   * Arithmetic operations: two per multiply-add of a matrix product, convolution or attention; 0
   * for other operators.
   */
  operations: number;
  /** Bytes read and written, counting each element of each operand once. */
  bytes: number;
  /** 10^9 operations per second, float or integer; undefined if the work is unknown. */
  gops: number | undefined;
  /** 10^9 bytes per second; undefined if the work is unknown. */
  gbs: number | undefined;
  /**
   * The bound of {@link Profile.limits} that applies: arithmetic (`float32`, or `int8` where
   * integer arithmetic may be used) or `memory`, whichever would take longer by itself. Operands
   * that arrive faster than memory bandwidth allows were cached; then only arithmetic is compared,
   * or the limit is `cache` if there is none. For several steps: the limit with the largest share
   * of the time. Undefined if the work is unknown.
   */
  limit: keyof Limits | "cache" | undefined;
  /** Minimum time at that limit divided by the measured time: 0 to about 1. */
  ofLimit: number | undefined;
}
/** A row of {@link Profile.byOp}; `op`: the ONNX operator, or the kernel if there is none. */
export interface OpRow extends ProfileRow {
  op: string;
}
/** A row of {@link Profile.byNode}; a node that was lowered to several kernels has several rows. */
export interface NodeRow extends OpRow {
  plan: string;
  node: string;
  kernel: string;
}
/**
 * A row of {@link Profile.byPlan}. `arenaBytes`: memory for intermediate values; `mostInUse`: the
 * maximum of it in use at once, in bytes, reached `at` that step and node.
 */
export interface PlanRow {
  plan: string;
  runs: number;
  steps: number;
  ms: number;
  arenaBytes: number;
  mostInUse: number | undefined;
  at: [step: number, node: string] | undefined;
}
/**
 * A plan of {@link Profile.memory}: `ms` per run, and its `steps` in order, each with its `ms` and
 * the `bytes` of the arena in use during it. Times are means over the runs.
 */
export interface MemoryRow {
  plan: string;
  runs: number;
  ms: number;
  arenaBytes: number;
  steps: { node: string; op: string; ms: number; bytes: number }[];
}

/**
 * The steps that ran while a profile recorded. `String(profile)` is a table.
 *
 * The time of a step is that of its kernel on all threads. Each time is kept, in 8 bytes. Pages
 * that are not cross-origin isolated have a clock resolution of 0.1 ms: there only sums over many
 * runs are meaningful.
 */
export class Profile {
  constructor(
    private readonly data: ProfileData,
    private readonly client?: SessionClient,
  ) {}

  /** Build of the engine. */
  get flavour(): string {
    return this.data.flavour;
  }
  /** Number of compute threads. */
  get threads(): number {
    return this.data.threads;
  }
  /** Number of plan runs. */
  get runs(): number {
    return count_runs(this.data.plans);
  }
  /** Milliseconds spent in steps. */
  get ms(): number {
    return total_ms(this.data.plans);
  }
  /** Milliseconds that the profile recorded. */
  get wallMs(): number {
    return this.data.wallMs;
  }
  /**
   * The engine's measured limits that rates are compared with. Measured once per engine, by the
   * first profile, in about 0.15 s.
   */
  get limits(): Limits {
    return this.data.limits;
  }

  /** Times by operator, longest first. */
  byOp(): OpRow[] {
    const { plans, limits } = this.recorded;
    return rows_by_op(plans, limits).map((row) => ({ op: row.op, ...figures(row) }));
  }

  /** Times by node of each plan, longest first. */
  byNode(): NodeRow[] {
    const { plans, limits } = this.recorded;
    return rows_by_node(plans, limits).map((row) => {
      const { plan, node, op, kernel } = row;
      return { plan, node, op, kernel, ...figures(row) };
    });
  }

  /** Times by plan, longest first. */
  byPlan(): PlanRow[] {
    return rows_by_plan(this.data.plans).map(({ arena_bytes, most_in_use, at, ...row }) => ({
      ...row,
      arenaBytes: arena_bytes,
      mostInUse: most_in_use ?? undefined,
      at: at ?? undefined,
    }));
  }

  /**
   * Arena memory over the steps of one run of each plan, longest plan first. Omits plans for which
   * the package has no notes.
   */
  memory(): MemoryRow[] {
    return memory_rows(this.data.plans).map(({ arena_bytes, ...row }) => ({
      ...row,
      arenaBytes: arena_bytes,
    }));
  }

  private get recorded(): Recorded {
    const { flavour, threads, wallMs, limits, plans } = this.data;
    return { flavour, threads, wall_ms: wallMs, limits: limits as Recorded["limits"], plans };
  }

  /**
   * Exports Chrome trace events in JSON, as Perfetto (https://ui.perfetto.dev) reads them: all
   * runs, their steps, and the arena bytes in use. The worker serializes them if it is still alive.
   */
  async trace(): Promise<Blob> {
    return this.client?.alive
      ? this.client.call("profile_trace", { data: this.data })
      : new Blob([JSON.stringify(trace_of(this.flavour, this.threads, this.data.plans))], {
          type: "application/json",
        });
  }

  /** Tables of plans, operators and the 15 longest nodes. */
  toString(): string {
    return profile_text(this.recorded);
  }
}

/** The measurements of a row. */
function figures(row: Row): ProfileRow {
  const { calls, ms, share, operations, bytes } = row;
  return {
    ...{ calls, ms, share, operations, bytes },
    gops: row.gops ?? undefined,
    gbs: row.gbs ?? undefined,
    limit: (row.limit as ProfileRow["limit"]) ?? undefined,
    ofLimit: row.of_limit ?? undefined,
  };
}

/**
 * Profiles `work`.
 * @param model number of the language model in the worker; undefined for the worker's session
 */
export async function watched(
  client: SessionClient,
  model: number | undefined,
  work: () => unknown,
): Promise<Profile> {
  if (typeof work !== "function") throw new InputError("it is no function", "work", "Give one.");
  await client.call("profile_start", { model });
  try {
    await work();
  } catch (e) {
    await client.call("profile_stop", { model, wanted: false }).catch(() => undefined);
    throw e;
  }
  return new Profile((await client.call("profile_stop", { model, wanted: true }))!, client);
}
