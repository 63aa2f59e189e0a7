// Export of a profile as Chrome trace events, for Perfetto.

import { opOf, type ProfileData } from "./profile.ts";

/** Converts a profile to Chrome trace events. */
export function traceOf(data: ProfileData): {
  traceEvents: Record<string, unknown>[];
  displayTimeUnit: "ms";
} {
  const here = { pid: 1, tid: 1 };
  const us = (t: number) => Math.round(1e6 * t) / 1e3; // from milliseconds
  const events: Record<string, unknown>[] = [
    {
      ph: "M",
      ...here,
      name: "process_name",
      args: { name: `Edgewise (${data.flavour}, ${data.threads} threads)` },
    },
    { ph: "M", ...here, name: "thread_name", args: { name: "steps" } },
  ];
  for (const p of data.plans) {
    for (const run of p.runs) {
      let t = run.at;
      events.push({
        ph: "X",
        ...here,
        name: p.name || "plan",
        cat: "run",
        ts: us(t),
        dur: us(sum(run.ms)),
      });
      run.ms.forEach((ms, i) => {
        const args: Record<string, unknown> = {
          node: p.notes?.node[i] ?? "",
          kernel: p.kernels[i],
        };
        for (const [name, x] of [
          ["GOP/s", p.notes?.operations[i]],
          ["GB/s", p.notes?.bytes[i]],
        ] as const) {
          const count = x ? x[0] + (x[1] - x[0]) * run.place : 0;
          if (count && ms) args[name] = Math.round(count / ms / 1e4) / 100;
        }
        if (p.notes)
          events.push({
            ph: "C",
            pid: 1,
            name: "arena",
            ts: us(t),
            args: { "bytes in use": p.notes.inUse[i] },
          });
        events.push({
          ph: "X",
          ...here,
          name: opOf(p, i),
          cat: p.kernels[i],
          ts: us(t),
          dur: us(ms),
          args,
        });
        t += ms;
      });
      if (p.notes)
        events.push({ ph: "C", pid: 1, name: "arena", ts: us(t), args: { "bytes in use": 0 } });
    }
  }
  return { traceEvents: events, displayTimeUnit: "ms" };
}

export function sum(a: Float64Array): number {
  return a.reduce((t, x) => t + x, 0);
}
