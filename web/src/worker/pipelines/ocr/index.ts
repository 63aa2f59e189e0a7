// The part of the worker for recognition of text: logic/ocr decides what is run on which part of a
// picture; here parts are cut out. Mirrors python/edgewise/host/pipelines/images/ocr.py.

import type { See } from "../../../logic/ocr/reading.ts";
import {
  type Best,
  type Detect,
  type Detected,
  read_page,
  reading,
} from "../../../logic/ocr/reading.ts";
import { type Quad, unit_to_quad } from "../../../logic/ocr/shapes.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
import type { Ending, TaskHost } from "../host.ts";
import type * as Pictures from "../images/index.ts";
import { described } from "../inputs.ts";
import { numbers } from "../outputs.ts";
import type { TaskRunner, Tasks } from "../runner.ts";
import { type Pixels, sampled } from "./sample.ts";

type Tools = Pick<typeof Pictures, "imageOf" | "pictureOf" | "prepared" | "rotated" | "windowOf">;

/** The tasks, with what pictures need. */
export const tasksOf = (tools: Tools): Tasks => ({
  "optical-character-recognition": recognition(tools),
});

/** `pipe(pictures, {thresh, box_thresh, unclip_ratio, text_score, use_cls})` */
const recognition = (tools: Tools): TaskRunner => ({
  options: ["thresh", "box_thresh", "unclip_ratio", "text_score", "use_cls"],
  prepare(host, { given }) {
    const how = reading(given);
    const { characters, cls } = described(host, "ocr");
    return async (input, ending) => {
      const picture = tools.pictureOf(await tools.imageOf(host, input, ending));
      const steps = read_page(how, [picture.height, picture.width], characters, !!cls);
      return drive(steps as Generator<Detect | See, unknown, unknown>, (request) =>
        request.kind === "detect"
          ? detected(tools, host, picture, request.thresh, ending)
          : seen(tools, host, picture, request, ending),
      );
    };
  },
});

async function detected(
  tools: Tools,
  host: TaskHost,
  picture: Pixels,
  thresh: number,
  ending: Ending,
): Promise<Detected> {
  const { det } = described(host, "ocr");
  const { values } = await tools.prepared(host, det, "det_pre", picture, ending);
  const least = new Uint8Array(Float32Array.of(thresh).buffer);
  const outputs = await run(host, "det", values.pixel_values!, ending, least);
  const map = Object.keys(outputs).find((name) => name !== "mask")!;
  return { maps: numbers(outputs[map]!), mask: outputs.mask!.data };
}

async function seen(
  tools: Tools,
  host: TaskHost,
  picture: Pixels,
  { model, quad, height, width, turns }: See,
  ending: Ending,
): Promise<Best> {
  let part = cut(tools, picture, quad, height, width);
  for (let i = 0; i < turns; i++) part = tools.rotated(part);
  const fields = described(host, "ocr")[model]!;
  const { values } = await tools.prepared(host, fields, `${model}_pre`, part, ending);
  const { best_number, best_score } = await run(host, model, values.pixel_values!, ending);
  return { numbers: numbers(best_number!).data, scores: numbers(best_score!).data };
}

/** Runs a graph on a picture. thresh: its other input. */
function run(
  host: TaskHost,
  name: string,
  pixels: TaskTensor,
  ending: Ending,
  thresh?: Uint8Array<ArrayBuffer>,
): Promise<Record<string, TaskTensor>> {
  const feeds = host.graph(name).inputs.map((input) => {
    const least = thresh && input.name === "thresh";
    return [input.name, least ? { type: "float32", dims: [1], data: thresh } : pixels];
  });
  return host.run(name, Object.fromEntries(feeds), ending);
}

/** A part of a picture, which is sampled unless its sides are those of pixels. */
function cut(tools: Tools, picture: Pixels, quad: Quad, height: number, width: number): Pixels {
  const [a, b, c, d] = quad as unknown as [Point, Point, Point, Point];
  if (a[1] !== b[1] || a[0] !== d[0] || c[0] !== b[0] || c[1] !== d[1])
    return sampled(picture, unit_to_quad(quad), height, width);
  const window = { top: a[1], left: a[0], height, width, color: [0, 0, 0] };
  return { height, width, pixels: tools.windowOf(picture, window) };
}

type Point = readonly [number, number];
