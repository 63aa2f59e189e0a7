// A chart of the loss: a pale dot per step, and a smoothed line.

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const LEFT = 30;
const RIGHT = 10;
const TOP = 12;
const BOTTOM = 20;

/** Makes an SVG element. */
export function element(
  name: string,
  attributes: Record<string, string | number>,
  text = "",
): SVGElement {
  const e = document.createElementNS(NS, name) as SVGElement;
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, String(value));
  if (text) e.textContent = text;
  return e;
}

export function lossChart(place: HTMLElement): {
  begin(total: number, losses: number[]): void;
  add(loss: number): void;
} {
  let total = 1;
  let losses: number[] = [];
  let waiting = false;
  const svg = element("svg", { role: "img" });
  place.replaceChildren(svg);
  const draw = () => {
    waiting = false;
    drawLosses(svg, Math.max(200, place.clientWidth || 600), total, losses);
  };
  const soon = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };
  new ResizeObserver(soon).observe(place);
  return {
    begin(steps, before) {
      [total, losses] = [steps, before.slice()];
      soon();
    },
    add(loss) {
      losses.push(loss);
      soon();
    },
  };
}

function drawLosses(svg: SVGElement, width: number, total: number, losses: number[]): void {
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("height", String(HEIGHT));
  const shown = losses.filter(Number.isFinite);
  svg.setAttribute(
    "aria-label",
    shown.length
      ? `Loss ${shown.at(-1)!.toFixed(2)} after ${losses.length} of ${total} steps, ` +
          `${shown[0]!.toFixed(2)} at first`
      : "Loss",
  );
  const [low, high, step] = ticks(Math.min(...shown, Infinity), Math.max(...shown, -Infinity), 0.1);
  const x = (i: number) => LEFT + ((width - LEFT - RIGHT) * i) / Math.max(1, total - 1);
  const y = (loss: number) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - loss)) / (high - low);
  const parts: SVGElement[] = [];
  for (let tick = low; tick <= high + 1e-9; tick += step)
    parts.push(
      element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      element(
        "text",
        { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" },
        tick.toFixed(step < 1 ? 1 : 0),
      ),
    );
  parts.push(
    element("text", { x: LEFT, y: HEIGHT - 4 }, "loss"),
    element("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, `${total} steps`),
  );
  if (losses.length <= 400)
    for (const [i, loss] of losses.entries())
      if (Number.isFinite(loss))
        parts.push(element("circle", { cx: x(i).toFixed(1), cy: y(loss).toFixed(1), r: 1.8 }));
  const line = smoothed(losses).map(([i, mean]) => `${x(i).toFixed(1)},${y(mean).toFixed(1)}`);
  parts.push(element("polyline", { points: line.join(" ") }));
  const last = line.at(-1)?.split(",");
  if (last) parts.push(element("circle", { class: "now", cx: last[0]!, cy: last[1]!, r: 4 }));
  svg.replaceChildren(...parts);
}

/** An exponential moving average with bias correction, as for Adam's moments: [step, mean]. */
function smoothed(losses: number[]): [step: number, mean: number][] {
  const keep = losses.length > 100 ? 0.88 : losses.length > 30 ? 0.75 : 0.5;
  const out: [number, number][] = [];
  let [mean, weight] = [0, 0];
  for (const [i, loss] of losses.entries()) {
    if (!Number.isFinite(loss)) continue;
    mean = keep * mean + (1 - keep) * loss;
    weight = keep * weight + (1 - keep);
    out.push([i, mean / weight]);
  }
  return out;
}

/**
 * Round axis bounds for a range of values, and the distance of three to five ticks between them.
 * @param finest smallest distance, a power of ten
 * @returns [lowest, highest, distance]
 */
export function ticks(low: number, high: number, finest: number): [number, number, number] {
  if (!(low <= high)) return [0, 4, 1];
  const range = Math.max(high - low, 2 * finest);
  const step =
    finest * ([1, 2, 5, 10, 20, 50, 100, 200, 500].find((s) => range / (finest * s) <= 4) ?? 1000);
  const bottom = Math.max(0, Math.floor(low / step) * step);
  return [bottom, Math.max(Math.ceil(high / step) * step, bottom + step), step];
}
