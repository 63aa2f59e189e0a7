// Where the time of runs goes, for the page: by operator, node and plan, as a text, and as a trace
// for Perfetto. Mirrors python/edgewise/profile.

import { type Limits, opOf, type Plan, type ProfileData } from "../protocol/profile.ts";
import { sum, traceOf } from "../protocol/trace.ts";
import type { SessionClient } from "./inference/inline-client.ts";

/** Figures of steps that belong together. */
export interface ProfileRow {
  /** How many steps ran. */
  calls: number;
  /** Their milliseconds in all. */
  ms: number;
  /** Of all steps' time, 0 to 1. */
  share: number;
  /** Two for each product of a matrix product, convolution or attention; 0 for what has none. */
  operations: number;
  /** Each operand's elements, read or written once. */
  bytes: number;
  /**
   * 10^9 operations per second, of floats or integers; undefined where nothing is known of the
   * work.
   */
  gops: number | undefined;
  /** 10^9 bytes per second, likewise. */
  gbs: number | undefined;
  /**
   * Which of {@link Profile.limits} binds it: its operations alone (`float32`, or `int8` where they
   * may be done in integers) or its bytes alone (`memory`) would take longest. Operands that come
   * quicker than memory gives them lie in a cache, and only operations are compared; `cache` where
   * there are none. Of several steps, that of most of the time. Undefined where nothing is known.
   */
  limit: keyof Limits | "cache" | undefined;
  /** The time that this limit would allow, over the time it took: 0 to about 1. */
  ofLimit: number | undefined;
}
/** A row of {@link Profile.byOp}; `op`: ONNX's name of the operator, or the kernel's. */
export interface OpRow extends ProfileRow {
  op: string;
}
/** A row of {@link Profile.byNode}; a node that became several kernels has several. */
export interface NodeRow extends OpRow {
  plan: string;
  node: string;
  kernel: string;
}
/**
 * A row of {@link Profile.byPlan}. `arenaBytes`: of what flows between steps; `mostInUse`: the most
 * of it that is in use at once, in bytes, `at` that step and its node.
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
 * A plan of {@link Profile.memory}: `ms` of a run, `steps` in order. Of each: `ms` that it takes,
 * and `bytes` of the arena that are in use meanwhile. Both times are means over the runs.
 */
export interface MemoryRow {
  plan: string;
  runs: number;
  ms: number;
  arenaBytes: number;
  steps: { node: string; op: string; ms: number; bytes: number }[];
}

// bytes that come so many times as quickly as memory gives them came from a cache; below, the limit
// was measured a little low
const CACHED = 1.1;

/**
 * What ran while a profile watched. `String(profile)` is a table.
 *
 * A step's time is that of its kernel, threads included; each is kept, in 8 bytes. A page that is
 * not cross-origin isolated has a clock of 0.1 ms: there only sums over many runs tell something.
 */
export class Profile {
  constructor(
    private readonly data: ProfileData,
    private readonly client?: SessionClient,
  ) {}

  /** The engine's build. */
  get flavour(): string {
    return this.data.flavour;
  }
  /** Threads that computed. */
  get threads(): number {
    return this.data.threads;
  }
  /** Runs of plans. */
  get runs(): number {
    return this.data.plans.reduce((n, p) => n + p.runs.length, 0);
  }
  /** Milliseconds in steps. */
  get ms(): number {
    return this.data.plans.reduce((t, p) => t + p.runs.reduce((u, r) => u + sum(r.ms), 0), 0);
  }
  /** Milliseconds that the profile watched. */
  get wallMs(): number {
    return this.data.wallMs;
  }
  /**
   * What times are compared with, measured for the first profile of a page's engine, in some 0.15
   * s.
   */
  get limits(): Limits {
    return this.data.limits;
  }

  /** Each operator, the longest first. */
  byOp(): OpRow[] {
    return this.grouped((p, i) => ({ op: opOf(p, i) }));
  }

  /** Each node of each plan, the longest first. */
  byNode(): NodeRow[] {
    return this.grouped((p, i) => ({
      plan: p.name,
      node: p.notes?.node[i] ?? "",
      op: opOf(p, i),
      kernel: p.kernels[i]!,
    }));
  }

  /** Each plan, the longest first. */
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
   * Memory over time: what flows between steps, over one run of each plan; the longest in all
   * first. Without plans of which the package says nothing.
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

  /** What bounds a step over its runs, and the milliseconds that this takes at least. */
  private compared(
    p: Plan,
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

  private grouped<K extends object>(key: (p: Plan, step: number) => K): (K & ProfileRow)[] {
    const groups = new Map<
      string,
      { row: K & ProfileRow; limits: Map<ProfileRow["limit"], { ms: number; least: number }> }
    >();
    const total = this.ms;
    for (const p of this.data.plans) {
      const calls = p.runs.length;
      const place = p.runs.reduce((t, r) => t + r.place, 0);
      const grown = (x: [number, number] | undefined) =>
        x ? x[0] * calls + (x[1] - x[0]) * place : 0;
      p.kernels.forEach((_, i) => {
        const names = key(p, i);
        const id = JSON.stringify(Object.values(names));
        let g = groups.get(id);
        if (!g)
          groups.set(
            id,
            (g = {
              row: {
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
              },
              limits: new Map(),
            }),
          );
        const ms = p.runs.reduce((t, r) => t + r.ms[i]!, 0);
        const operations = grown(p.notes?.operations[i]);
        const bytes = grown(p.notes?.bytes[i]);
        g.row.calls += calls;
        g.row.ms += ms;
        g.row.operations += operations;
        g.row.bytes += bytes;
        const [limit, least] = this.compared(p, i, ms, operations, bytes);
        const known = g.limits.get(limit) ?? { ms: 0, least: 0 };
        g.limits.set(limit, { ms: known.ms + ms, least: known.least + least });
      });
    }
    const rows = Array.from(groups.values(), ({ row, limits }) => {
      const rate = (work: number) => (work && row.ms ? work / row.ms / 1e6 : undefined);
      row.share = total ? row.ms / total : 0;
      row.gops = rate(row.operations);
      row.gbs = rate(row.bytes);
      row.limit = [...limits].reduce((most, one) => (one[1].ms > most[1].ms ? one : most))[0];
      const compared = [...limits]
        .filter(([limit]) => limit && limit !== "cache")
        .map(([, known]) => known);
      const ms = compared.reduce((t, x) => t + x.ms, 0);
      if (ms && row.limit && row.limit !== "cache")
        row.ofLimit = compared.reduce((t, x) => t + x.least, 0) / ms;
      return row;
    });
    return rows.sort((a, b) => b.ms - a.ms);
  }

  /**
   * The trace as a file: Chrome's trace events in JSON, as Perfetto (https://ui.perfetto.dev) reads
   * them: every run, its steps, and the arena's bytes in use. The worker writes it.
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

/** Runs `work` while the worker's engine is watched. */
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
