// "Where the time goes": while the panel is open, writing and learning are profiled step by step
// and shown by operator or node, with the limits of the device, and the memory over time.

import type { Limits, Profile, ProfileRow } from "edgewise";
import { memoryChart, took } from "./memory.ts";
import { $, input, number, seconds } from "./page.ts";

const OPS = 9;
const NODES = 15;

type Shown = Pick<ProfileRow, "ms" | "share" | "limit" | "ofLimit"> & {
  name: string;
  more: string;
};

export function whereTheTimeGoes(): Pick<TimePanel, "watch"> {
  const panel = new TimePanel();
  return { watch: (words, profile, work) => panel.watch(words, profile, work) };
}

class TimePanel {
  private shown: Profile | undefined;
  private busy = false;
  private readonly chart = memoryChart($("where-memory"), $("where-at"));

  constructor() {
    for (const id of ["where-by-op", "where-by-node"])
      input(id).addEventListener("change", () => this.showRows());
    $("where-save").addEventListener("click", () => void this.save());
  }

  /** Executes `work`, profiled if the panel is open. Throws what `work` throws. */
  async watch<T>(
    words: string,
    profile: (work: () => Promise<void>) => Promise<Profile>,
    work: () => Promise<T>,
  ): Promise<T> {
    if (this.busy || !$<HTMLDetailsElement>("where").open) return work();
    this.busy = true;
    try {
      let result!: T;
      const found = await profile(async () => {
        result = await work();
      });
      this.show(found, words);
      return result;
    } finally {
      this.busy = false;
    }
  }

  private show(profile: Profile, words: string): void {
    if (!profile.runs) return;
    this.shown = profile;
    $("where-words").textContent =
      `${words}: ${number(profile.runs)} runs, ${seconds(profile.ms)} in steps, with ` +
      (profile.threads === 1 ? "one thread." : `${profile.threads} threads.`);
    $("where-limits").textContent = limitsInWords(profile.limits);
    this.showRows();
    const plans = profile.memory();
    $("where-memories").hidden = !plans.length;
    $("where-plans").replaceChildren(
      ...plans.map((row, i) =>
        pill("where-plan", planInWords(row.plan), i === 0, () => this.chart.show(row)),
      ),
    );
    $("where-plans").hidden = plans.length < 2;
    $("where-view").hidden = false;
    if (plans[0]) this.chart.show(plans[0]);
    input("where-save").disabled = false;
    document.body.dataset.profiled = String(Number(document.body.dataset.profiled ?? 0) + 1);
  }

  private showRows(): void {
    const byNode = input("where-by-node").checked;
    const all: Shown[] = byNode
      ? this.shown!.byNode().map((r) => ({
          ...r,
          name: r.node || r.op,
          more: `${r.kernel}, ${planInWords(r.plan)}`,
        }))
      : this.shown!.byOp().map((r) => ({ ...r, name: r.op, more: "" }));
    const most = byNode ? NODES : OPS;
    const rows = all.slice(0, most);
    const longest = Math.max(...rows.map((r) => r.share));
    const rest = all.slice(most);
    if (rest.length)
      rows.push({
        name: `${number(rest.length)} others`,
        more: "",
        ms: rest.reduce((t, r) => t + r.ms, 0),
        share: rest.reduce((t, r) => t + r.share, 0),
        limit: undefined,
        ofLimit: undefined,
      });
    $("where-what").textContent = byNode ? "node, kernel" : "operator";
    $("where-table").classList.toggle("nodes", byNode);
    $("where-bars").replaceChildren(...rows.map((r) => line(r, Math.min(r.share / longest, 1))));
  }

  /** Downloads the trace. */
  private async save(): Promise<void> {
    if (!this.shown) return;
    const link = Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(await this.shown.trace()),
      download: "edgewise-trace.json",
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
}

function limitsInWords({ float32, int8, memory }: Limits): string {
  const found = [
    [float32, "GFLOP/s in a large product of float32"],
    [int8, "GOP/s in one of int8"],
    [memory, "GB/s in reading 128 MB of memory"],
  ] as const;
  const words = found.filter(([x]) => x !== undefined).map(([x, what]) => `${number(x!)} ${what}`);
  if (!words.length) return "";
  return (
    "Of limit: the time that arithmetic or memory would allow at best, whichever binds, over " +
    "the time it took. The best is what this engine's own kernels reach here: " +
    `${words.join(", ")}. Cache: quicker than memory, so it was not read from there.`
  );
}

/** Describes what a plan of a language model does; other plans keep their names. */
function planInWords(name: string): string {
  const tokens = /^plan\/(\d+)$/.exec(name)?.[1];
  return tokens === undefined
    ? /^train\//.test(name)
      ? "a training step"
      : name || "plan"
    : tokens === "1"
      ? "one token"
      : `${tokens} tokens`;
}

function pill(group: string, text: string, checked: boolean, chosen: () => void): HTMLElement {
  const radio = Object.assign(document.createElement("input"), {
    type: "radio",
    name: group,
    checked,
  });
  radio.addEventListener("change", chosen);
  const label = Object.assign(document.createElement("label"), { className: "pill" });
  label.append(radio, text);
  return label;
}

function line({ name, more, ms, share, limit, ofLimit }: Shown, width: number): HTMLElement {
  const cell = (text: string, small = "") => {
    const td = document.createElement("td");
    td.append(
      text,
      ...(small
        ? [" ", Object.assign(document.createElement("small"), { textContent: small })]
        : []),
    );
    return td;
  };
  const head = Object.assign(document.createElement("th"), { scope: "row" });
  // allow line breaks in long names
  head.append(
    ...name
      .split(/(?<=[/.])|(?<=[a-z])(?=[A-Z])/)
      .flatMap((part) => [part, document.createElement("wbr")]),
  );
  if (more) head.append(Object.assign(document.createElement("small"), { textContent: more }));
  const bar = document.createElement("td");
  const length = document.createElement("span");
  length.style.width = `${100 * width}%`;
  bar.append(length);
  const row = document.createElement("tr");
  row.append(
    head,
    bar,
    cell(`${number(100 * share, 1)} %`),
    cell(took(ms)),
    limit === "cache"
      ? cell("", "cache")
      : cell(
          ofLimit === undefined ? "" : `${ofLimit < 0.005 ? "< 1" : number(100 * ofLimit)} %`,
          ofLimit === undefined ? "" : limit,
        ),
  );
  return row;
}
