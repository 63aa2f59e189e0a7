// A drawing of rounds: the losses of all participants, and the bytes that they send and receive.

import { element, ticks } from "../chart.ts";

const HEIGHT = 230;
const LEFT = 34;
const RIGHT = 10;
const TOP = 12;
const LOSSES = 140; // height of the losses
const BYTES = 170; // the line between bytes that are sent (above) and received
const HALF = 34;

/** What is drawn. */
export interface Rounds {
  rounds: number;
  /** Of each participant: loss at a moment, in rounds. */
  losses: [moment: number, loss: number][][];
  /** Of each participant: bytes of each round, from round 1 on. */
  bytes: { up: number; down: number }[][];
  names: readonly string[];
}

/** Draws rounds into a place; returns the function that draws again. */
export function roundsChart(place: HTMLElement, rounds: Rounds): () => void {
  const svg = element("svg", { role: "img" });
  place.replaceChildren(svg);
  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw(svg, Math.max(240, place.clientWidth || 600), rounds);
    });
  };
  new ResizeObserver(soon).observe(place);
  return soon;
}

function draw(svg: SVGElement, width: number, shown: Rounds): void {
  const all = shown.losses.flat().map(([, loss]) => loss);
  const [low, high, step] = ticks(Math.min(...all, Infinity), Math.max(...all, -Infinity), 0.1);
  const count = Math.max(1, shown.rounds);
  const x = (moment: number) => LEFT + ((width - LEFT - RIGHT) * moment) / count;
  const y = (loss: number) => TOP + ((LOSSES - TOP - 8) * (high - loss)) / (high - low);
  const parts: SVGElement[] = [];
  for (let tick = low; tick <= high + 1e-9; tick += step)
    parts.push(
      element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      label(LEFT - 6, y(tick) + 4, tick.toFixed(step < 1 ? 1 : 0), "end"),
    );
  for (let round = 1; round <= count; round++)
    parts.push(label((x(round - 1) + x(round)) / 2, HEIGHT - 4, String(round), "middle"));
  parts.push(label(0, HEIGHT - 4, "round", "start"));
  shown.losses.forEach((points, k) => {
    const line = points.map(([m, loss]) => `${x(m).toFixed(1)},${y(loss).toFixed(1)}`);
    parts.push(element("polyline", { class: `of${k + 1}`, points: line.join(" ") }));
  });
  parts.push(...bars(shown, count, x, width));
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("height", String(HEIGHT));
  svg.setAttribute("aria-label", inWords(shown));
  svg.replaceChildren(...parts);
}

function bars(
  { bytes, names }: Rounds,
  count: number,
  x: (moment: number) => number,
  width: number,
): SVGElement[] {
  const most = Math.max(1, ...bytes.flat().flatMap(({ up, down }) => [up, down]));
  const parts = [
    element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: BYTES, y2: BYTES }),
    label(LEFT - 6, BYTES - 6, "sent", "end"),
    label(LEFT - 6, BYTES + 14, "got", "end"),
  ];
  const slot = x(1) - x(0);
  const thick = Math.max(2, Math.min(16, (0.7 * slot) / names.length));
  bytes.forEach((rounds, k) => {
    rounds.forEach(({ up, down }, at) => {
      if (at >= count) return;
      const left = x(at) + slot / 2 + (k - names.length / 2) * thick;
      const heights = [up, down].map((n) => n && Math.max(2, (HALF * n) / most));
      for (const [n, height] of heights.entries())
        parts.push(
          element("rect", {
            class: `of${k + 1}`,
            x: left.toFixed(1),
            y: (n ? BYTES : BYTES - height).toFixed(1),
            width: (thick - 1).toFixed(1),
            height: height.toFixed(1),
          }),
        );
    });
  });
  return parts;
}

const label = (x: number, y: number, text: string, anchor: string): SVGElement =>
  element("text", { x, y, "text-anchor": anchor }, text);

function inWords({ losses, names }: Rounds): string {
  const parts = losses.map((points, k) => {
    const [first, last] = [points[0], points.at(-1)];
    return first && last
      ? `${names[k]}: loss ${first[1].toFixed(2)} at first, ${last[1].toFixed(2)} now`
      : `${names[k]}: no loss yet`;
  });
  return parts.join("; ");
}
