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
  let row: MemoryRow | undefined;
  let begins: number[] = []; // start of each step in ms
  let most = 0; // step with the largest memory
  let width = 0;
  const svg = element("svg", { role: "img" });
  place.replaceChildren(svg);
  const cursor = element("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
  const x = (ms: number) => LEFT + ((width - LEFT - RIGHT) * ms) / (row!.ms || 1);

  function tell(step: number): void {
    const { node, op, bytes } = row!.steps[step]!;
    const which = `Step ${number(step + 1)} of ${number(row!.steps.length)}`;
    const title = node && node !== op ? `${node} (${op})` : node || op;
    words.textContent =
      `${step === most ? "Most" : which}: ${megabytes(bytes)}, ` +
      `after ${took(begins[step]!)}, in ${title}`;
  }

  /** Formats a tick of an axis with ticks `step` apart. */
  const mark = (value: number, step: number) =>
    value ? number(value, step < 1 ? Math.ceil(-Math.log10(step) - 1e-9) : 0) : "0";

  function draw(): void {
    if (!row) return;
    width = Math.max(240, place.clientWidth);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("height", String(HEIGHT));
    const { steps, ms } = row;
    const peak = steps[most]!.bytes;
    const unit = peak >= 1e5 ? 1e6 : 1e3;
    const [, high, step] = ticks(
      0,
      peak / unit,
      10 ** Math.floor(Math.log10(Math.max(peak, 1) / unit / 4)),
    );
    const y = (bytes: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / unit / high);
    const parts: SVGElement[] = [];
    for (let tick = 0; tick <= high + step / 2; tick += step) {
      parts.push(
        element("line", {
          class: "grid",
          x1: LEFT,
          x2: width - RIGHT,
          y1: y(tick * unit),
          y2: y(tick * unit),
        }),
        element(
          "text",
          { x: LEFT - 6, y: y(tick * unit) + 4, "text-anchor": "end" },
          mark(tick, step),
        ),
      );
    }
    const [, , along] = ticks(0, ms, 10 ** Math.floor(Math.log10(Math.max(ms, 1e-3) / 4)));
    for (let t = 0; x(t) < width - RIGHT - 36; t += along)
      parts.push(
        element(
          "text",
          { x: x(t), y: HEIGHT - 4, "text-anchor": t ? "middle" : "start" },
          mark(t, along),
        ),
      );
    parts.push(
      element("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, "ms"),
      element("text", { x: LEFT - 6, y: 10, "text-anchor": "end" }, unit === 1e6 ? "MB" : "kB"),
    );
    let line = `M${x(0)},${y(0)}`;
    steps.forEach(
      (s, i) => (line += `V${y(s.bytes).toFixed(1)}H${x(begins[i]! + s.ms).toFixed(1)}`),
    );
    parts.push(
      element("path", { class: "area", d: `${line}V${y(0)}Z` }),
      element("path", { class: "stairs", d: `${line}V${y(0)}` }),
      element("circle", {
        class: "now",
        cx: x(begins[most]! + steps[most]!.ms / 2),
        cy: y(peak),
        r: 4,
      }),
      cursor,
    );
    svg.replaceChildren(...parts);
    svg.setAttribute(
      "aria-label",
      `Memory in use over ${took(ms)}: ${megabytes(peak)} at most, in ` +
        `${steps[most]!.node || steps[most]!.op}`,
    );
  }

  const rest = () => {
    cursor.setAttribute("visibility", "hidden");
    if (row) tell(most);
  };
  place.addEventListener("pointermove", (e) => {
    if (!row) return;
    const at = Math.min(
      Math.max(e.clientX - place.getBoundingClientRect().left, LEFT),
      width - RIGHT,
    );
    const ms = ((at - LEFT) / (width - LEFT - RIGHT)) * row.ms;
    const next = begins.findIndex((begin) => begin > ms);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, String(at));
    cursor.setAttribute("visibility", "visible");
    tell((next < 0 ? begins.length : next) - 1);
  });
  place.addEventListener("pointerleave", rest);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(place);
  return {
    show(one) {
      row = one;
      let t = 0;
      begins = one.steps.map((s) => (t += s.ms) - s.ms);
      most = one.steps.reduce((best, s, i) => (s.bytes > one.steps[best]!.bytes ? i : best), 0);
      draw();
      rest();
    },
  };
}
