// Profiles for the page: time by operator, node and plan, as text tables and as a trace for
// Perfetto. Mirrors python/edgewise/host/profile.

import { type Limits, opOf, type PlanProfile, type ProfileData } from "../protocol/profile.ts";
import { sum, traceOf } from "../protocol/trace.ts";
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

// Bytes that arrive this many times faster than the measured memory bandwidth came from a cache;
// the margin allows for a bandwidth that was measured slightly too low.
const CACHED = 1.1;

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
    return this.data.plans.reduce((n, p) => n + p.runs.length, 0);
  }
  /** Milliseconds spent in steps. */
  get ms(): number {
    return this.data.plans.reduce((t, p) => t + p.runs.reduce((u, r) => u + sum(r.ms), 0), 0);
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
    return this.grouped((p, i) => ({ op: opOf(p, i) }));
  }

  /** Times by node of each plan, longest first. */
  byNode(): NodeRow[] {
    return this.grouped((p, i) => ({
      plan: p.name,
      node: p.notes?.node[i] ?? "",
      op: opOf(p, i),
      kernel: p.kernels[i]!,
    }));
  }

  /** Times by plan, longest first. */
  byPlan(): PlanRow[] {
    return this.data.plans
      .map((p): PlanRow => {
        const used = p.notes?.inUse ?? [];
        const most = used.reduce((best, n, i) => (n > used[best]! ? i : best), 0);
        return {
          plan: p.name,
          runs: p.runs.length,
          steps: p.kernels.length,
          ms: p.runs.reduce((t, r) => t + sum(r.ms), 0),
          arenaBytes: p.arenaBytes,
          mostInUse: used[most],
          at: used.length ? [most, p.notes!.node[most] || opOf(p, most)] : undefined,
        };
      })
      .sort((a, b) => b.ms - a.ms);
  }

  /**
   * Arena memory over the steps of one run of each plan, longest plan first. Omits plans for which
   * the package has no notes.
   */
  memory(): MemoryRow[] {
    return this.data.plans
      .filter((p) => p.notes && p.runs.length)
      .map(({ name, arenaBytes, kernels, notes, runs }): MemoryRow => {
        const steps = kernels.map((kernel, i) => ({
          node: notes!.node[i]!,
          op: notes!.op[i] || kernel,
          ms: runs.reduce((t, r) => t + r.ms[i]!, 0) / runs.length,
          bytes: notes!.inUse[i]!,
        }));
        return {
          plan: name,
          runs: runs.length,
          ms: steps.reduce((t, s) => t + s.ms, 0),
          arenaBytes,
          steps,
        };
      })
      .sort((a, b) => b.ms * b.runs - a.ms * a.runs);
  }

  /** The limit of a step over its runs, and the minimum milliseconds at that limit. */
  private compared(
    p: PlanProfile,
    step: number,
    ms: number,
    operations: number,
    bytes: number,
  ): [limit: ProfileRow["limit"], least: number] {
    const kind = p.notes?.integer[step] ? "int8" : "float32";
    const { [kind]: arithmetic, memory } = this.limits;
    const computing = arithmetic ? operations / arithmetic / 1e6 : 0;
    const reading = memory ? bytes / memory / 1e6 : 0;
    if (!ms || !(computing || reading)) return [undefined, 0];
    if (reading > CACHED * ms) return computing ? [kind, computing] : ["cache", 0];
    return computing >= reading ? [kind, computing] : ["memory", Math.min(reading, ms)];
  }

  private grouped<K extends object>(key: (p: PlanProfile, step: number) => K): (K & ProfileRow)[] {
    const groups = new Map<string, Group<K>>();
    const total = this.ms;
    for (const p of this.data.plans) {
      const calls = p.runs.length;
      const place = p.runs.reduce((t, r) => t + r.place, 0);
      const grown = (x: [number, number] | undefined) =>
        x ? x[0] * calls + (x[1] - x[0]) * place : 0;
      for (const i of p.kernels.keys()) {
        const names = key(p, i);
        const id = JSON.stringify(Object.values(names));
        let group = groups.get(id);
        if (!group) {
          group = emptyGroup(names);
          groups.set(id, group);
        }
        const { row, limits } = group;
        const ms = p.runs.reduce((t, r) => t + r.ms[i]!, 0);
        const operations = grown(p.notes?.operations[i]);
        const bytes = grown(p.notes?.bytes[i]);
        row.calls += calls;
        row.ms += ms;
        row.operations += operations;
        row.bytes += bytes;
        const [limit, least] = this.compared(p, i, ms, operations, bytes);
        const known = limits.get(limit) ?? { ms: 0, least: 0 };
        limits.set(limit, { ms: known.ms + ms, least: known.least + least });
      }
    }
    return Array.from(groups.values(), (group) => finishedRow(group, total)).sort(
      (a, b) => b.ms - a.ms,
    );
  }

  /**
   * Exports Chrome trace events in JSON, as Perfetto (https://ui.perfetto.dev) reads them: all
   * runs, their steps, and the arena bytes in use. The worker serializes them if it is still alive.
   */
  async trace(): Promise<Blob> {
    return this.client?.alive
      ? this.client.call("profile_trace", { data: this.data })
      : new Blob([JSON.stringify(traceOf(this.data))], { type: "application/json" });
  }

  /** Tables of plans, operators and the 15 longest nodes. */
  toString(): string {
    const many = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;
    const lines = [
      `${this.flavour}, ${many(this.threads, "thread")}: ${many(this.runs, "run")} of plans, ` +
        `${ms(this.ms)} ms in steps of ${ms(this.wallMs)} ms`,
    ];
    if (!this.runs) return `${lines[0]}. Nothing ran while this profile watched.`;
    lines.push(...limitsInWords(this.limits));
    const figures = (r: ProfileRow) => [
      ms(r.ms),
      `${(100 * r.share).toFixed(1)} %`,
      rate(r.gops),
      rate(r.gbs),
      r.limit ?? "",
      r.ofLimit === undefined ? "" : `${(100 * r.ofLimit).toFixed(0)} %`,
    ];
    const plans = this.byPlan().map((p) => [
      short(p.plan, 60),
      String(p.runs),
      ms(p.ms),
      ms(p.ms / p.runs),
      size(p.mostInUse ?? p.arenaBytes),
    ]);
    const ops = this.byOp().map((r) => [r.op, String(r.calls), ...figures(r)]);
    const nodes = this.byNode();
    const rows = nodes
      .slice(0, 15)
      .map((r) => [short(r.node || r.op, 60), r.kernel, short(r.plan, 24), ...figures(r)]);
    lines.push(
      "",
      ...columns(["plan", "runs", "ms", "ms/run", "arena in use"], plans, 1),
      "",
      ...columns(
        ["operator", "calls", "ms", "share", "GOP/s", "GB/s", "limit", "of limit"],
        ops,
        1,
      ),
      "",
      ...columns(
        ["node", "kernel", "plan", "ms", "share", "GOP/s", "GB/s", "limit", "of limit"],
        rows,
        3,
      ),
    );
    if (nodes.length > rows.length)
      lines.push(
        `and ${nodes.length - rows.length} more: ` +
          `${ms(nodes.slice(rows.length).reduce((t, r) => t + r.ms, 0))} ms`,
      );
    return lines.join("\n");
  }
}

/** A row, and the times of its steps by limit: measured, and least possible. */
interface Group<K> {
  row: K & ProfileRow;
  limits: Map<ProfileRow["limit"], { ms: number; least: number }>;
}

function emptyGroup<K extends object>(names: K): Group<K> {
  const row: K & ProfileRow = {
    ...names,
    calls: 0,
    ms: 0,
    share: 0,
    operations: 0,
    bytes: 0,
    gops: undefined,
    gbs: undefined,
    limit: undefined,
    ofLimit: undefined,
  };
  return { row, limits: new Map() };
}

/** Computes rates, share and limit of a row. `total`: time of all steps. */
function finishedRow<K extends object>({ row, limits }: Group<K>, total: number): K & ProfileRow {
  const rate = (work: number) => (work && row.ms ? work / row.ms / 1e6 : undefined);
  const rates: Partial<ProfileRow> = {
    share: total ? row.ms / total : 0,
    gops: rate(row.operations),
    gbs: rate(row.bytes),
    limit: [...limits].reduce((most, one) => (one[1].ms > most[1].ms ? one : most))[0],
  };
  const compared = [...limits]
    .filter(([limit]) => limit && limit !== "cache")
    .map(([, known]) => known);
  const ms = compared.reduce((t, x) => t + x.ms, 0);
  if (ms && rates.limit && rates.limit !== "cache")
    rates.ofLimit = compared.reduce((t, x) => t + x.least, 0) / ms;
  return Object.assign(row, rates);
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
  await client.call("profile_start", { model });
  try {
    await work();
  } catch (e) {
    await client.call("profile_stop", { model, wanted: false }).catch(() => undefined);
    throw e;
  }
  return new Profile((await client.call("profile_stop", { model, wanted: true }))!, client);
}

function limitsInWords({ float32, int8, memory }: Limits): string[] {
  const found = [
    [float32, "GFLOP/s in a large product of float32"],
    [int8, "GOP/s in one of int8"],
    [memory, "GB/s in summing 128 MB of memory"],
  ] as const;
  const words = found.filter(([x]) => x !== undefined).map(([x, what]) => `${rate(x)} ${what}`);
  if (!words.length) return ["limits here: not measured, for lack of memory or kernels"];
  return [
    `limits here, by this engine's own kernels: ${words.join(", ")}`,
    "of limit: the time that this limit would allow over the time it took; cache: quicker " +
      "than memory, so it was not read from there",
  ];
}

function columns(head: string[], rows: string[][], left: number): string[] {
  const width = head.map((h, i) => Math.max(h.length, ...rows.map((r) => r[i]!.length)));
  return [head, ...rows].map((r) =>
    r
      .map((c, i) => (i < left ? c.padEnd(width[i]!) : c.padStart(width[i]!)))
      .join("  ")
      .trimEnd(),
  );
}

const short = (name: string, most: number): string =>
  name.length <= most ? name : `…${name.slice(1 - most)}`;
export const ms = (x: number): string => x.toFixed(x < 10 ? 3 : 1);
const rate = (x: number | undefined): string => (x === undefined ? "" : x.toFixed(x < 10 ? 2 : 1));
const size = (n: number): string =>
  n >= 1e5 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(1)} kB`;
