// A chart of the memory in use during a run of a plan, as a step curve. The step under the pointer
// is described below it.

import type { MemoryRow } from "edgewise";
import { element, ticks } from "./chart.ts";
import { megabytes, number } from "./page.ts";

const HEIGHT = 170;
const LEFT = 46;
const RIGHT = 10;
const TOP = 22;
const BOTTOM = 20;

export const took = (ms: number): string => `${number(ms, ms < 10 ? 2 : ms < 100 ? 1 : 0)} ms`;

export function memoryChart(
  place: HTMLElement,
  words: HTMLElement,
): { show(row: MemoryRow): void } {
  const chart = new MemoryChart(place, words);
  return { show: (row) => chart.show(row) };
}

class MemoryChart {
  private row: MemoryRow | undefined;
  /** Start of each step in ms. */
  private begins: number[] = [];
  /** Step with the largest memory. */
  private most = 0;
  private width = 0;
  private readonly svg = element("svg", { role: "img" });
  private readonly cursor = element("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });

  constructor(
    private readonly place: HTMLElement,
    private readonly words: HTMLElement,
  ) {
    place.replaceChildren(this.svg);
    place.addEventListener("pointermove", (e) => this.point(e.clientX));
    place.addEventListener("pointerleave", () => this.rest());
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(place);
  }

  show(row: MemoryRow): void {
    const { steps } = row;
    this.row = row;
    let t = 0;
    this.begins = steps.map(({ ms }) => {
      t += ms;
      return t - ms;
    });
    this.most = steps.reduce((best, s, i) => (s.bytes > steps[best]!.bytes ? i : best), 0);
    this.draw();
    this.rest();
  }

  /** Describes the step at a horizontal position. */
  private point(clientX: number): void {
    if (!this.row) return;
    const { cursor, width, begins } = this;
    const at = Math.min(
      Math.max(clientX - this.place.getBoundingClientRect().left, LEFT),
      width - RIGHT,
    );
    const ms = ((at - LEFT) / (width - LEFT - RIGHT)) * this.row.ms;
    const next = begins.findIndex((begin) => begin > ms);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, String(at));
    cursor.setAttribute("visibility", "visible");
    this.describe(this.row, (next < 0 ? begins.length : next) - 1);
  }

  /** Describes the step with the largest memory. */
  private rest(): void {
    this.cursor.setAttribute("visibility", "hidden");
    if (this.row) this.describe(this.row, this.most);
  }

  private describe({ steps }: MemoryRow, step: number): void {
    const { node, op, bytes } = steps[step]!;
    const which = `Step ${number(step + 1)} of ${number(steps.length)}`;
    const title = node && node !== op ? `${node} (${op})` : node || op;
    this.words.textContent =
      `${step === this.most ? "Most" : which}: ${megabytes(bytes)}, ` +
      `after ${took(this.begins[step]!)}, in ${title}`;
  }

  private draw(): void {
    const { row, svg, begins, most } = this;
    if (!row) return;
    const { steps, ms } = row;
    this.width = Math.max(240, this.place.clientWidth);
    svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    svg.setAttribute("height", String(HEIGHT));
    const peak = steps[most]!.bytes;
    const unit = peak >= 1e5 ? 1e6 : 1e3;
    const [, high, step] = ticks(0, peak / unit, finestTick(Math.max(peak, 1) / unit));
    const x = (t: number) => LEFT + ((this.width - LEFT - RIGHT) * t) / (ms || 1);
    const y = (bytes: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / unit / high);
    let line = `M${x(0)},${y(0)}`;
    for (const [i, s] of steps.entries())
      line += `V${y(s.bytes).toFixed(1)}H${x(begins[i]! + s.ms).toFixed(1)}`;
    const middle = begins[most]! + steps[most]!.ms / 2;
    svg.replaceChildren(
      ...valueAxis(this.width, high, step, unit, y),
      ...timeAxis(this.width, ms, x),
      element("path", { class: "area", d: `${line}V${y(0)}Z` }),
      element("path", { class: "stairs", d: `${line}V${y(0)}` }),
      element("circle", { class: "now", cx: x(middle), cy: y(peak), r: 4 }),
      this.cursor,
    );
    svg.setAttribute(
      "aria-label",
      `Memory in use over ${took(ms)}: ${megabytes(peak)} at most, in ` +
        `${steps[most]!.node || steps[most]!.op}`,
    );
  }
}

const finestTick = (range: number): number => 10 ** Math.floor(Math.log10(range / 4));

/** Formats a tick of an axis with ticks `step` apart. */
const mark = (value: number, step: number): string =>
  value ? number(value, step < 1 ? Math.ceil(-Math.log10(step) - 1e-9) : 0) : "0";

/** Grid lines and labels. */
function valueAxis(
  width: number,
  high: number,
  step: number,
  unit: number,
  y: (bytes: number) => number,
): SVGElement[] {
  const parts = [
    element("text", { x: LEFT - 6, y: 10, "text-anchor": "end" }, unit === 1e6 ? "MB" : "kB"),
  ];
  for (let tick = 0; tick <= high + step / 2; tick += step) {
    const at = y(tick * unit);
    parts.push(
      element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      element("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, mark(tick, step)),
    );
  }
  return parts;
}

function timeAxis(width: number, ms: number, x: (t: number) => number): SVGElement[] {
  const [, , step] = ticks(0, ms, finestTick(Math.max(ms, 1e-3)));
  const parts = [element("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, "ms")];
  for (let t = 0; x(t) < width - RIGHT - 36; t += step)
    parts.push(
      element(
        "text",
        { x: x(t), y: HEIGHT - 4, "text-anchor": t ? "middle" : "start" },
        mark(t, step),
      ),
    );
  return parts;
}
