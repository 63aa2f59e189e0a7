// Export of a profile as Chrome trace events, for Perfetto.

import { opOf, type PlanProfile, type ProfileData } from "./profile.ts";

/** Converts a profile to Chrome trace events. */
export function traceOf(data: ProfileData): {
  traceEvents: Record<string, unknown>[];
  displayTimeUnit: "ms";
} {
  const events: Record<string, unknown>[] = [
    {
      ph: "M",
      ...HERE,
      name: "process_name",
      args: { name: `Edgewise (${data.flavour}, ${data.threads} threads)` },
    },
    { ph: "M", ...HERE, name: "thread_name", args: { name: "steps" } },
  ];
  for (const plan of data.plans)
    for (const run of plan.runs) for (const event of runEvents(plan, run)) events.push(event);
  return { traceEvents: events, displayTimeUnit: "ms" };
}

const HERE = { pid: 1, tid: 1 };

const microseconds = (ms: number) => Math.round(1e6 * ms) / 1e3;

/** The events of a run, of its steps, and of the arena bytes in use. */
function* runEvents(
  plan: PlanProfile,
  run: PlanProfile["runs"][number],
): Generator<Record<string, unknown>> {
  const { notes, kernels } = plan;
  const inUse = (t: number, bytes: number | undefined) => ({
    ph: "C",
    pid: 1,
    name: "arena",
    ts: microseconds(t),
    args: { "bytes in use": bytes },
  });
  let t = run.at;
  yield {
    ph: "X",
    ...HERE,
    name: plan.name || "plan",
    cat: "run",
    ts: microseconds(t),
    dur: microseconds(sum(run.ms)),
  };
  for (const [i, ms] of run.ms.entries()) {
    if (notes) yield inUse(t, notes.inUse[i]);
    const args: Record<string, unknown> = { node: notes?.node[i] ?? "", kernel: kernels[i] };
    for (const [name, x] of [
      ["GOP/s", notes?.operations[i]],
      ["GB/s", notes?.bytes[i]],
    ] as const) {
      const count = x ? x[0] + (x[1] - x[0]) * run.place : 0;
      if (count && ms) args[name] = Math.round(count / ms / 1e4) / 100;
    }
    yield {
      ph: "X",
      ...HERE,
      name: opOf(plan, i),
      cat: kernels[i],
      ts: microseconds(t),
      dur: microseconds(ms),
      args,
    };
    t += ms;
  }
  if (notes) yield inUse(t, 0);
}

export function sum(a: Float64Array): number {
  return a.reduce((t, x) => t + x, 0);
}
