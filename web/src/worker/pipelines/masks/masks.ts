// mask-generation: masks of what points and boxes show, or of everything in a picture. Rules are in
// logic/tasks/prompts.py and masks.py; results those of
// python/edgewise/host/pipelines/images/mask_generation.py.

import type { Layout } from "../../../logic/images/geometry.ts";
import {
  type Crop,
  type Found,
  GENERATING,
  type Generating,
  generate,
  generating,
  type Measured,
  mask_taps,
  type Request,
  run_lengths,
} from "../../../logic/tasks/masks.ts";
import {
  batches,
  CHOICES,
  choosing,
  chosen_masks,
  embedding_names,
  is_prompted,
  PROMPTS,
  type Prompts,
  prompt_inputs,
  read_prompts,
  scaled,
} from "../../../logic/tasks/prompts.ts";
import type { TaskImageResult, TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { TaskImage } from "../images/decode.ts";
import type * as Parts from "../images/index.ts";
import { described, unknownInput } from "../inputs.ts";
import { type Numbers, numbers, output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";

/** What this part takes of that for pictures. */
export type Images = Pick<typeof Parts, "imageOf" | "pixelValues" | "Interpolation">;

const ENCODER = "vision_encoder";
const DECODER = "prompt_encoder_mask_decoder";
const MAX_OPEN = 16;

type Tensors = Record<string, TaskTensor>;
type Size = [height: number, width: number];
type Given = Record<string, unknown>;

/** What the encoder has made of a picture, or of a part of it. */
interface Seen {
  size: Size;
  done: Layout;
  embeddings: Tensors;
}

/** Masks of low resolution: [masks, height, width], the first of them at `at`. */
interface Small {
  data: Float32Array;
  size: Size;
}

/** The pictures that pages keep open, by the numbers that they chose. */
const open = new WeakMap<TaskHost, Map<number, Seen>>();

/** `pipe(pictures, {input_points, input_labels, input_boxes, ...})` */
export function maskGeneration(images: Images): TaskRunner {
  return {
    options: [...PROMPTS, ...CHOICES, ...GENERATING, "open", "close"],
    prepare(host, { given }) {
      choosing(given);
      const how = generating(given);
      const masks = new Masks(host, images);
      const pictures = open.get(host) ?? new Map<number, Seen>();
      open.set(host, pictures);
      return async (input, ending) => {
        if (typeof input === "object" && "picture" in input)
          return opened(masks, pictures, input.picture, given, ending);
        const image = await images.imageOf(host, input, ending);
        if (given.open) {
          if (pictures.size >= MAX_OPEN)
            throw new InputError(`${MAX_OPEN} pictures are open`, "open", "Close one: close().");
          pictures.set(given.open as number, await masks.see(image, ending));
          return { height: image.height, width: image.width };
        }
        if (!is_prompted(given)) return new Everything(masks, image, how, ending).result();
        read_prompts(given, [image.height, image.width]); // before the encoder runs
        return masks.prompted(await masks.see(image, ending), given, ending);
      };
    },
  };
}

function opened(
  masks: Masks,
  pictures: Map<number, Seen>,
  number: number,
  given: Given,
  ending: Ending,
): unknown {
  const seen = pictures.get(number);
  if (given.close) return pictures.delete(number);
  if (!seen) throw new InputError("the picture is closed", "masks", "Open it again: open().");
  return masks.prompted(seen, given, ending);
}

/** Runs the graphs. */
class Masks {
  constructor(
    readonly host: TaskHost,
    readonly images: Images,
  ) {}

  /** Shows the encoder a picture. */
  async see(image: TaskImage, ending: Ending): Promise<Seen> {
    const { host } = this;
    const { values, done } = await this.images.pixelValues(host, image, ending);
    const feeds = host.graph(ENCODER).inputs.map(({ name }, i) => {
      const value = values[name] ?? (i === 0 ? values.pixel_values : undefined);
      return [name, value ?? unknownInput(name, host.task)];
    });
    const made = await host.run(ENCODER, Object.fromEntries(feeds) as Tensors, ending);
    const { inputs } = host.graph(DECODER);
    const names = embedding_names(
      inputs.map(({ name }) => name),
      Object.keys(made),
    );
    const embeddings: Tensors = {};
    for (const [name, from] of names) embeddings[name] = made[from]!;
    return { size: [image.height, image.width], done, embeddings };
  }

  /** The masks of prompts in a picture. */
  async prompted(seen: Seen, given: Given, ending: Ending): Promise<unknown> {
    const prompts = scaled(read_prompts(given, seen.size), seen.done, seen.size);
    const how = choosing(given);
    const parts: Uint8Array[] = [];
    const [scores, further]: number[][] = [[], []];
    for (const batch of batches(prompts)) {
      const { iou, small, object } = await this.decode(seen, batch, how.multimask, ending);
      const chosen = chosen_masks(iou.data, iou.dims.at(-1)!, how.multimask);
      const enlarge = this.enlarger(seen, small.size);
      for (const i of chosen) {
        scores!.push(iou.data[i]!);
        parts.push(masked(enlarge(small, i), how.threshold));
      }
      further!.push(...(object?.data ?? []));
    }
    const objects = Math.max(prompts.points.length, prompts.boxes.length);
    const each = scores!.length / objects;
    const area = seen.size[0] * seen.size[1];
    const data = new Uint8Array(parts.length * area);
    for (const [i, part] of parts.entries()) data.set(part, i * area);
    const floats = (values: number[], dims: number[]) => ({
      dims,
      data: Float32Array.from(values),
    });
    return {
      masks: { dims: [objects, each, ...seen.size], data },
      iou_scores: floats(scores!, [objects, each]),
      ...(further!.length ? { object_score_logits: floats(further!, [objects, 1]) } : {}),
    };
  }

  /** The outputs of the decoder for a batch of prompts. */
  async decode(
    seen: Seen,
    prompts: Prompts,
    multimask: boolean,
    ending: Ending,
  ): Promise<{ iou: Numbers; small: Small; object: Numbers | undefined }> {
    const { host } = this;
    const { inputs } = host.graph(DECODER);
    const cornered = described(host, "image").type !== "SamImageProcessor";
    const names = inputs.map(({ name }) => name);
    const feeds = { ...seen.embeddings };
    for (const [name, { dims, data }] of prompt_inputs(names, prompts, multimask, cornered))
      feeds[name] = tensor(inputs.find((i) => i.name === name)!.dtype, dims, data);
    const made = await host.run(DECODER, feeds, ending);
    const all = Object.fromEntries(Object.entries(made).map(([n, t]) => [n, numbers(t)]));
    const { dims, data } = output(host, all, "pred_masks");
    return {
      iou: output(host, all, "iou_scores"),
      small: { data, size: dims.slice(-2) as Size },
      object: all.object_score_logits,
    };
  }

  /** Enlarges masks of a size to that of the picture. The result is overwritten by the next. */
  enlarger(seen: Seen, [height, width]: Size): (small: Small, i: number) => Float32Array {
    const { done, size } = seen;
    const [top, left, bottom, right] = done.valid;
    const { frame } = described(this.host, "image");
    const rows = mask_taps(height, frame ? done.height : 0, bottom - top, size[0]);
    const columns = mask_taps(width, frame ? done.width : 0, right - left, size[1]);
    const enlarge = new this.images.Interpolation(
      { size: height, taps: rows },
      { size: width, taps: columns },
    );
    const large = new Float32Array(size[0] * size[1]);
    return ({ data }, i) => {
      enlarge.run(data, i * height * width, large);
      return large;
    };
  }
}

function tensor(type: string, dims: number[], data: readonly number[]): TaskTensor {
  const array =
    type === "int64"
      ? BigInt64Array.from(data, BigInt)
      : type === "int32"
        ? Int32Array.from(data)
        : type === "bool"
          ? Uint8Array.from(data)
          : Float32Array.from(data);
  return { type, dims, data: new Uint8Array(array.buffer) };
}

const masked = (large: Float32Array, threshold: number): Uint8Array =>
  Uint8Array.from(large, (x) => (x > threshold ? 1 : 0));

/** What is measured of a mask at the size of the picture. */
function measured(large: Float32Array, [height, width]: Size, how: Generating): Measured {
  const [high, low] = [how.threshold + how.offset, how.threshold - how.offset];
  let [inner, outer] = [0, 0];
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const value = large[y * width + x]!;
      if (value > high) inner++;
      if (value > low) outer++;
      if (value <= how.threshold) continue;
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = y;
    }
  return { inner, outer, box: right < 0 ? [0, 0, 0, 0] : [left, top, right, bottom] };
}

/** The masks of everything in a picture: answers what `generate` asks. */
class Everything {
  private seen: Seen | undefined;
  private small: Small | undefined;
  private readonly kept: { seen: Seen; small: Small }[] = [];

  constructor(
    private readonly masks: Masks,
    private readonly image: TaskImage,
    private readonly how: Generating,
    private readonly ending: Ending,
  ) {}

  async result(): Promise<unknown> {
    const { how, image } = this;
    const size: Size = [image.height, image.width];
    const { inputs } = this.masks.host.graph(ENCODER);
    const longest = Math.max(...inputs[0]!.shape!.slice(2).map(Number));
    const found = await drive(generate(how, size, longest), (request) => this.answer(request));
    const all = found.map((one) => this.mask(one, size));
    return {
      masks: all.map((mask) => gray(mask, size)),
      scores: found.map(({ score }) => score),
      ...(how.rle
        ? { rle_mask: all.map((mask) => ({ size, counts: run_lengths(mask, ...size) })) }
        : {}),
      ...(how.boxes ? { bounding_boxes: found.map(({ box }) => box) } : {}),
    };
  }

  private async answer(request: Request): Promise<unknown> {
    if (request.kind === "encode") {
      this.seen = await this.masks.see(cropped(this.image, request.crop), this.ending);
      return null;
    }
    const seen = this.seen!;
    if (request.kind === "decode") {
      const { iou, small } = await this.masks.decode(seen, request.prompts, true, this.ending);
      this.small = small;
      return Array.from(iou.data);
    }
    const small = this.small!;
    if (request.kind === "measure") {
      const enlarge = this.masks.enlarger(seen, small.size);
      return request.masks.map((i) => measured(enlarge(small, i), seen.size, this.how));
    }
    const area = small.size[0] * small.size[1];
    for (const i of request.masks) {
      const data = small.data.slice(i * area, (i + 1) * area);
      this.kept.push({ seen, small: { data, size: small.size } });
    }
    return null;
  }

  /** A mask at the size of the picture. */
  private mask({ number, crop }: Found, [height, width]: Size): Uint8Array {
    const { seen, small } = this.kept[number]!;
    const part = masked(this.masks.enlarger(seen, small.size)(small, 0), this.how.threshold);
    if (part.length === height * width) return part;
    const [rows, columns] = seen.size;
    const whole = new Uint8Array(height * width);
    for (let y = 0; y < rows; y++)
      whole.set(part.subarray(y * columns, (y + 1) * columns), (crop.top + y) * width + crop.left);
    return whole;
  }
}

const gray = (mask: Uint8Array, [height, width]: Size): TaskImageResult => ({
  ...{ data: mask.map((x) => 255 * x) as Uint8Array<ArrayBuffer>, width, height },
  channels: 1,
});

/** A part of a picture. */
function cropped({ width, height, data }: TaskImage, crop: Crop): TaskImage {
  const [columns, rows] = [crop.right - crop.left, crop.bottom - crop.top];
  if (columns === width && rows === height) return { width, height, data };
  const part = new Uint8Array(4 * columns * rows);
  for (let y = 0; y < rows; y++) {
    const from = 4 * ((crop.top + y) * width + crop.left);
    part.set(data.subarray(from, from + 4 * columns), 4 * y * columns);
  }
  return { width: columns, height: rows, data: part };
}
