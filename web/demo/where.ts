// Where the time goes: while the panel is open, what the model writes or learns is timed step by step.

import type { Profile } from "edgewise";
import { $, input, megabytes, number, seconds } from "./page.ts";

const ROWS = 9;

export function whereTheTimeGoes(): { watch<T>(words: string, profile: (work: () => Promise<void>) => Promise<Profile>, work: () => Promise<T>): Promise<T> } {
  let shown: Profile | undefined;
  let busy = false;

  function show(profile: Profile, words: string): void {
    if (!profile.runs) return;
    shown = profile;
    const ops = profile.byOp();
    const rows = ops.slice(0, ROWS).map(({ op, ms, share, ofLimit }) => ({ op, ms, share, ofLimit }));
    const rest = ops.slice(ROWS);
    if (rest.length) rows.push({ op: `${rest.length} others`, ms: rest.reduce((t, r) => t + r.ms, 0), share: rest.reduce((t, r) => t + r.share, 0), ofLimit: undefined });
    $("where-bars").replaceChildren(...rows.map((r) => row(r, r.share / Math.max(...rows.map((x) => x.share)))));
    const used = Math.max(...profile.byPlan().map((p) => p.mostInUse ?? p.arenaBytes));
    const { float32, int8, memory } = profile.limits;
    const limits = float32 && int8 && memory ? ` The last column: of what this engine's own kernels reach here, ${number(float32)} GFLOP/s of float32, ${number(int8)} GOP/s of int8 or ${number(memory)} GB/s of memory, whichever binds.` : "";
    $("where-words").textContent = `${words}: ${number(profile.runs)} runs, ${seconds(profile.ms)} in steps. Results between steps take ${megabytes(used)} at most.${limits}`;
    input("where-save").disabled = false;
    document.body.dataset.profiled = String(Number(document.body.dataset.profiled ?? 0) + 1);
  }

  $("where-save").addEventListener("click", () => void (async () => {
    if (!shown) return;
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await shown.trace()), download: "edgewise-trace.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  })());

  return {
    /** Does `work`, watched by `profile` if the panel is open. What `work` throws is thrown. */
    async watch(words, profile, work) {
      if (busy || !$<HTMLDetailsElement>("where").open) return work();
      busy = true;
      try {
        let result!: Awaited<ReturnType<typeof work>>;
        show(await profile(async () => { result = await work(); }), words);
        return result;
      } finally {
        busy = false;
      }
    },
  };
}

function row({ op, ms, share, ofLimit }: { op: string; ms: number; share: number; ofLimit: number | undefined }, width: number): HTMLElement {
  const cell = (tag: string, text: string) => Object.assign(document.createElement(tag), { textContent: text });
  const bar = document.createElement("td");
  const length = document.createElement("span");
  length.style.width = `${100 * width}%`;
  bar.append(length);
  const all = document.createElement("tr");
  all.append(Object.assign(cell("th", op), { scope: "row", title: op }), bar, cell("td", `${number(100 * share, 1)} %`), cell("td", `${number(ms, ms < 10 ? 2 : 0)} ms`), cell("td", ofLimit === undefined ? "" : `${number(100 * ofLimit)} %`));
  return all;
}
