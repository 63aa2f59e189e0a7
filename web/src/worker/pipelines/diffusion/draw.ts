// A call of text-to-image. Mirrors python/edgewise/host/pipelines/text_to_image.py.

import { guided, preview_pixels, scale_embedding } from "../../../logic/diffusion/guidance.ts";
import type { Schedule } from "../../../logic/diffusion/stepper.ts";
import { Stepper, weighted } from "../../../logic/diffusion/stepper.ts";
import type {
  DrawCall,
  DrawEvent,
  Drawn,
  DrawnPicture,
  PlainNumbers,
} from "../../../protocol/drawing.ts";
import type { TaskPicture, TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { seedOfRun } from "../../../shared/seeds.ts";
import { resizeImage } from "../../media/resize.ts";
import { readImage } from "../images/decode.ts";
import { pixelValues } from "../images/pictures.ts";
import { numbers } from "../outputs.ts";
import type { DiffusionHost } from "./host.ts";
import { DrawOptions } from "./options.ts";
import { feed } from "./tensors.ts";

/** Float32 numbers, flat. */
type Numbers = Float32Array<ArrayBuffer>;
type Send = (event: DrawEvent) => void;

/**
 * Makes pictures.
 * @param send receives an event after each step
 * @throws InputError, OutOfMemory, Aborted
 */
export function draw(
  host: DiffusionHost,
  call: DrawCall,
  ending: AbortSignal,
  send: Send,
): Promise<Drawn> {
  return new Drawing(host, call, ending, send).make();
}

class Drawing {
  private readonly options: DrawOptions;
  private readonly schedule: Schedule;
  /** [channels, height, width] of latents. */
  private readonly dims: number[];
  private readonly drawn: number[] = [];
  private seeds: bigint[] = [];

  constructor(
    private readonly host: DiffusionHost,
    private readonly call: DrawCall,
    private readonly ending: AbortSignal,
    private readonly send: Send,
  ) {
    this.options = new DrawOptions(call.options, host.facts);
    this.schedule = this.options.schedule(call.pictures.length > 0);
    this.dims = [host.facts.channels, ...host.facts.size];
  }

  async make(): Promise<Drawn> {
    const { options, call, host } = this;
    const latent = options.latent;
    const each = options.count("num_images_per_prompt", 1);
    const [vectors, without] = await this.embeddings();
    const count = vectors.length * each;
    this.seeds = options.seeds(count);
    const given = options.rows("latents", ...this.dims);
    if (given && (given.length !== count || call.pictures.length))
      throw new InputError(
        call.pictures.length ? "a picture is given as well" : `there are ${given.length}`,
        "options.latents",
        `Give latents for ${count} pictures, or leave them out.`,
      );
    const from = call.pictures.length ? await this.encoded(count) : given;
    const repeated = (rows: Numbers[]): Numbers[] =>
      Array.from({ length: count }, (_, i) => rows[Math.floor(i / each) % rows.length]!);
    const rows = await this.denoised(repeated(vectors), without && repeated(without), from);
    const pictures = latent ? [] : await this.decoded(rows);
    const check = !latent && host.has("safety_checker") && options.flag("safety_checker", true);
    const unsafe = check ? await this.checked(pictures) : undefined;
    unsafe?.forEach((refused, i) => {
      if (refused) pictures[i]!.data.fill(0);
    });
    return {
      pictures,
      latents: latent ? this.stacked(rows) : undefined,
      unsafe,
      seeds: this.seeds,
    };
  }

  private stacked(rows: readonly Numbers[]): PlainNumbers {
    const data = new Float32Array(rows.length * rows[0]!.length);
    rows.forEach((row, i) => {
      data.set(row, i * row.length);
    });
    return { dims: [rows.length, ...this.dims], data };
  }

  /** The numbers of a float output. */
  private read(tensor: TaskTensor | undefined): Numbers {
    return Float32Array.from(numbers(tensor!).data);
  }

  /** Runs a graph for rows, one at a time, or as many together as it has. */
  private async rows(
    name: string,
    rows: readonly Record<string, readonly [dims: readonly number[], values: ArrayLike<number>]>[],
  ): Promise<Numbers[]> {
    const graph = this.host.graph(name);
    const [plan] = graph.plans;
    const shapeOf = (input: string): readonly unknown[] => plan!.inputs.get(input)?.shape ?? [];
    const together = Number(shapeOf(graph.inputs[0]!.name)[0] ?? 1);
    const made: Numbers[] = [];
    for (let at = 0; at < rows.length; at += together) {
      const group = Array.from(
        { length: together },
        (_, i) => rows[Math.min(at + i, rows.length - 1)]!,
      );
      const feeds = Object.fromEntries(
        graph.inputs.map(({ name: input }) => {
          const one = group[0]![input];
          if (!one)
            throw new InputError(
              `the graph has an input '${input}', which this pipeline does not feed`,
              name,
              "Export the model for this task.",
            );
          if (input === "timestep") {
            const dims = shapeOf(input) as number[];
            const values = Array.from({ length: dims[0] ?? 1 }, () => one[1][0]!);
            return [input, feed(graph, input, dims, values)];
          }
          const values =
            group.length === 1 ? one[1] : group.flatMap((row) => [...Array.from(row[input]![1])]);
          return [input, feed(graph, input, [together, ...one[0]], values)];
        }),
      );
      const outputs = await this.host.run(name, feeds, this.ending);
      const output = this.read(outputs[graph.outputs[0]!.name]);
      const size = output.length / together;
      for (let i = 0; i < together; i++) made.push(output.slice(i * size, (i + 1) * size));
    }
    return made.slice(0, rows.length);
  }

  /** The vectors of the prompts, and with guidance those of the negative prompts. */
  private async embeddings(): Promise<[Numbers[], Numbers[] | undefined]> {
    const { options, host, call } = this;
    const { length, cond } = host.facts;
    const size = host.graph("unet").plans[0]!.inputs.get("encoder_hidden_states")!.shape[2];
    const given = options.rows("prompt_embeds", length, Number(size));
    const givenWithout = options.rows("negative_prompt_embeds", length, Number(size));
    const { prompts } = call;
    if (!prompts === !given)
      throw new InputError(
        `${given ? "both" : "neither"} of prompt and prompt_embeds is given`,
        "prompt",
        "Give one.",
      );
    const negatives = options.texts("negative_prompt");
    const count = (given ?? prompts)!.length;
    const other = negatives ?? givenWithout;
    if ((negatives && givenWithout) || (other && ![1, count].includes(other.length)))
      throw new InputError(
        negatives && givenWithout
          ? "negative_prompt_embeds are given as well"
          : `there are ${other!.length}, and ${count} prompts`,
        "options.negative_prompt",
        "Give one, or as many as prompts.",
      );
    const guides = options.scale > 1 && cond === null;
    const texts = [...(prompts ?? []), ...(guides && !givenWithout ? (negatives ?? [""]) : [])];
    const made = new Map<string, Numbers>();
    if (texts.length)
      await host.during(["text_encoder"], async () => {
        for (const text of new Set(texts)) made.set(text, await this.encodedText(text));
      });
    const of = (list: readonly string[]): Numbers[] => list.map((text) => made.get(text)!);
    return [given ?? of(prompts!), guides ? (givenWithout ?? of(negatives ?? [""])) : undefined];
  }

  private async encodedText(text: string): Promise<Numbers> {
    const { tokenizer, facts } = this.host;
    const { length } = facts;
    let ids = tokenizer.encode(text);
    if (ids.length > length) ids = [...ids.slice(0, length - 1), ids.at(-1)!];
    const pad = tokenizer.id("pad_token") ?? 0;
    const [row] = await this.rows("text_encoder", [
      {
        input_ids: [[length], Array.from({ length }, (_, i) => ids[i] ?? pad)],
        attention_mask: [[length], Array.from({ length }, (_, i) => Number(i < ids.length))],
      },
    ]);
    return row!;
  }

  /** Normal numbers: draw n of a picture is determined by its seed and n. */
  private async noise(image: number): Promise<Numbers> {
    const n = this.drawn[image] ?? 0;
    this.drawn[image] = n + 1;
    const seed = seedOfRun(this.seeds[image]!, n);
    const { noise } = await this.host.run("noise", {}, this.ending, seed);
    return this.read(noise);
  }

  /** Latents of the given pictures. */
  private async encoded(count: number): Promise<Numbers[]> {
    const { host, call } = this;
    if (!host.has("vae_encoder"))
      throw new InputError(
        "the model has no vae_encoder",
        "image",
        "Put vae_encoder/model.onnx into its folder, and build the package again.",
      );
    if (count % call.pictures.length)
      throw new InputError(`${call.pictures.length} are given`, "image", `Give ${count}.`);
    return host.during(["vae_encoder", "pixels", "noise"], async () => {
      const parameters: Numbers[] = [];
      for (const picture of call.pictures) parameters.push(await this.encodedPicture(picture));
      const made: Numbers[] = [];
      const size = this.dims.reduce((a, b) => a * b);
      for (let i = 0; i < count; i++) {
        const row = parameters[i % parameters.length]!;
        // means and logarithms of variances, or latents
        const noise = row.length === size ? undefined : await this.noise(i);
        const one = row.slice(0, size).map((mean, k) => {
          if (!noise) return mean;
          const log = Math.min(Math.max(row[size + k]!, -30), 20);
          return mean + Math.exp(log / 2) * noise[k]!;
        });
        made.push(weighted([one], [host.facts.factor]));
      }
      return made;
    });
  }

  private async encodedPicture(picture: TaskPicture): Promise<Numbers> {
    const { host, ending } = this;
    const { width, height, data } = await readImage(picture, ending);
    const [outHeight, outWidth] = host.facts.size.map((n) => n * host.facts.scale) as [
      number,
      number,
    ];
    let pixels = new Uint8Array(3 * width * height);
    for (let i = 0, j = 0; i < data.length; i += 4, j += 3)
      for (let c = 0; c < 3; c++) pixels[j + c] = data[i + c]!;
    if (height !== outHeight || width !== outWidth) {
      const sizes = { height, width, channels: 3, outHeight, outWidth };
      pixels = resizeImage(host.device, pixels, sizes, "lanczos");
    }
    const dims = [outHeight, outWidth, 3];
    const { sample } = await host.run(
      "pixels",
      { pixels: { type: "uint8", dims, data: pixels } },
      ending,
    );
    const [row] = await this.rows("vae_encoder", [
      { sample: [[3, outHeight, outWidth], this.read(sample)] },
    ]);
    return row!;
  }

  /** The latents of each picture after the last step. */
  private async denoised(
    vectors: readonly Numbers[],
    without: readonly Numbers[] | undefined,
    from: readonly Numbers[] | undefined,
  ): Promise<Numbers[]> {
    const { schedule, call, options } = this;
    const preview = options.count("preview_steps", 0, 0);
    return this.host.during(["unet", "noise"], async () => {
      const steppers: Stepper[] = [];
      for (let i = 0; i < vectors.length; i++) {
        const given = from?.[i];
        const latents =
          given && call.pictures.length
            ? weighted([given, await this.noise(i)], schedule.start)
            : weighted([given ?? (await this.noise(i))], [schedule.sigma]);
        steppers.push(new Stepper(schedule, latents));
      }
      for (const [step, { timestep, noise }] of schedule.steps.entries()) {
        const shown = preview > 0 && (step + 1) % preview === 0;
        const previews: DrawnPicture[] = [];
        for (const [i, stepper] of steppers.entries()) {
          const output = await this.output(stepper, timestep, vectors[i]!, without?.[i]);
          if (shown) previews.push(this.preview(stepper.clean(output)));
          stepper.step(output, noise ? await this.noise(i) : null);
        }
        this.send({ status: "step", step, steps: schedule.steps.length, timestep, previews });
      }
      return steppers.map(({ latents }) => latents);
    });
  }

  /** The model's output for a picture, with guidance. */
  private async output(
    stepper: Stepper,
    timestep: number,
    vectors: Numbers,
    without: Numbers | undefined,
  ): Promise<Numbers> {
    const { options, host } = this;
    const { length, cond } = host.facts;
    const size = cond ?? 256;
    const row = (states: Numbers) => ({
      sample: [this.dims, stepper.scaled()] as const,
      timestep: [[], [timestep]] as const,
      timestep_cond: [[size], Float32Array.from(scale_embedding(options.scale, size))] as const,
      encoder_hidden_states: [[length, states.length / length], states] as const,
    });
    const made = await this.rows("unet", [...(without ? [row(without)] : []), row(vectors)]);
    if (!without) return made[0]!;
    const rescale = options.number("guidance_rescale", 0, 1);
    return guided(made[0]!, made[1]!, options.scale, rescale);
  }

  private preview(clean: Numbers): DrawnPicture {
    const [height, width] = this.host.facts.size;
    return { data: preview_pixels(clean, height * width), height, width };
  }

  private decoded(rows: readonly Numbers[]): Promise<DrawnPicture[]> {
    const { host } = this;
    const { factor, shift, scale, size } = host.facts;
    const [height, width] = size.map((n) => n * scale) as [number, number];
    return host.during(["vae_decoder", "picture"], async () => {
      const pictures: DrawnPicture[] = [];
      for (const row of rows) {
        const scaled = row.map((x) => x / factor + shift);
        const [made] = await this.rows("vae_decoder", [{ latent_sample: [this.dims, scaled] }]);
        const sample = feed(host.graph("picture"), "sample", [1, 3, height, width], made!);
        const { pixels } = await host.run("picture", { sample }, this.ending);
        pictures.push({ data: pixels!.data, height, width });
      }
      return pictures;
    });
  }

  /** Whether the safety checker refuses a picture, for each. */
  private checked(pictures: readonly DrawnPicture[]): Promise<boolean[]> {
    const { host, ending } = this;
    return host.during(["safety_checker", "pre"], async () => {
      const found: boolean[] = [];
      const graph = host.graph("safety_checker");
      for (const { data, width, height } of pictures) {
        const rgba = new Uint8Array(4 * width * height);
        for (let i = 0, j = 0; i < data.length; i += 3, j += 4)
          rgba.set(data.subarray(i, i + 3), j);
        const { values } = await pixelValues(host, { width, height, data: rgba }, ending);
        const feeds: Parameters<typeof host.run>[1] = {
          clip_input: feed(
            graph,
            "clip_input",
            values.pixel_values!.dims,
            this.read(values.pixel_values),
          ),
        };
        if (graph.inputs.some(({ name }) => name === "images")) {
          const image = Float32Array.from(data, (x) => x / 255);
          feeds.images = feed(graph, "images", [1, height, width, 3], image);
        }
        const outputs = await host.run("safety_checker", feeds, ending);
        found.push(outputs[graph.outputs[0]!.name]!.data.some((flag) => flag !== 0));
      }
      return found;
    });
  }
}
