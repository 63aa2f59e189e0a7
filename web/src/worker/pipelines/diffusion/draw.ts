// Runs text-to-image: logic/diffusion has its options, and the loop over its steps.

import {
  Denoising,
  for_decoder,
  groups,
  type Inpainted,
  type Request,
} from "../../../logic/diffusion/denoising.ts";
import { joined, POOLED } from "../../../logic/diffusion/encoders.ts";
import { preview_pixels, scale_embedding } from "../../../logic/diffusion/guidance.ts";
import { latent_mask, mask_of, without_masked } from "../../../logic/diffusion/masks.ts";
import { DEFAULTS, DrawOptions, padded } from "../../../logic/diffusion/options.ts";
import type { Schedule } from "../../../logic/diffusion/stepper.ts";
import { read_choice, read_count } from "../../../logic/options.ts";
import type {
  DrawCall,
  DrawEvent,
  Drawn,
  DrawnPicture,
  PlainNumbers,
} from "../../../protocol/drawing.ts";
import type { TaskPicture, TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Sequence } from "../../../shared/python.ts";
import { seedOfRun } from "../../../shared/seeds.ts";
import { resizeImage } from "../../media/resize.ts";
import { readImage } from "../images/decode.ts";
import { pixelValues } from "../images/pictures.ts";
import { Options } from "../options.ts";
import { numbers } from "../outputs.ts";
import type { DiffusionHost } from "./host.ts";
import { feed } from "./tensors.ts";

/** Float32 numbers, flat. */
type Numbers = Float32Array<ArrayBuffer>;
type Rows = readonly Sequence<number>[];
/** What the text encoders make of a text. */
interface Vectors {
  states: Numbers;
  /** The vector of the whole text, of Stable Diffusion XL. */
  pooled: Numbers | undefined;
}
type Fed = Record<string, readonly [dims: readonly number[], values: ArrayLike<number>]>;
type Send = (event: DrawEvent) => void;

/** Options that pages alone have. */
const OWN = ["output_type", "preview_steps", "safety_checker"];

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
  private readonly own: Options;
  private readonly options: DrawOptions;
  private readonly schedule: Schedule;
  /** [channels, height, width] of latents. */
  private readonly dims: number[];
  /** Numbers of an image's latents. */
  private readonly size: number;
  private readonly latent: boolean;
  private readonly preview: number;
  /** Whether the safety checker is asked. */
  private readonly checks: boolean;
  private seeds: bigint[] = [];

  constructor(
    private readonly host: DiffusionHost,
    private readonly call: DrawCall,
    private readonly ending: AbortSignal,
    private readonly send: Send,
  ) {
    const { facts } = host;
    const own = new Options(call.options, [...Object.keys(DEFAULTS), ...OWN]);
    this.own = own;
    this.latent = read_choice(own.given, "output_type", "image", ["image", "latent"]) === "latent";
    this.preview = read_count(own.given, "preview_steps", 0) ?? 0;
    const checks = own.flag("safety_checker", true);
    this.checks = checks && !this.latent && host.has("safety_checker");
    const begun = call.pictures.length > 0;
    const masked = call.mask !== undefined;
    this.options = new DrawOptions(call.options, facts.kind, begun, "options.", masked);
    this.options.check_inputs(facts);
    this.checkSize();
    this.schedule = this.options.schedule(facts.scheduler);
    this.dims = [facts.channels, ...facts.size];
    this.size = this.dims.reduce((a, b) => a * b);
  }

  /** @throws InputError if pictures are to have another size than the package's */
  private checkSize(): void {
    const { size, scale } = this.host.facts;
    const [height, width] = size.map((n) => n * scale) as [number, number];
    for (const [name, own] of Object.entries({ height, width }))
      if ((this.options[name as "height" | "width"] ?? own) !== own)
        this.own.refuse(
          name,
          `The package was built for ${height} x ${width}: use that, or build it with --dims ` +
            "height=...,width=....",
        );
  }

  async make(): Promise<Drawn> {
    const { options, call, host, latent, dims } = this;
    const { facts } = host;
    const [vectors, without] = await this.embeddings();
    const count = vectors.length * options.each;
    this.seeds = options.seeds(count);
    const given = this.tensor("latents");
    if (given) options.check_latents(given.dims, [count, ...dims]);
    const of = (rows: Vectors[], i: number) => rows[Math.floor(i / options.each) % rows.length]!;
    const rowsGiven = given ? this.rowsOf(given) : null;
    const inpainted = call.mask ? await this.inpainted(call.mask, count) : undefined;
    const encoded = call.pictures.length && !inpainted ? (await this.encoded(count))[0] : undefined;
    const guides = without !== undefined;
    const loop = new Denoising(this.schedule, count, guides, options, this.preview);
    const steps = inpainted
      ? loop.from_masked(inpainted, rowsGiven)
      : encoded
        ? loop.from_pictures(encoded, this.size, facts.factor)
        : loop.from_noise(rowsGiven);
    const rows = await host.during(["unet", "noise"], () =>
      drive(steps, (request: Request) =>
        this.answer(request, (image, negative) => of(negative ? without! : vectors, image)),
      ),
    );
    const pictures = latent ? [] : await this.decoded(rows);
    const unsafe = this.checks ? await this.checked(pictures) : undefined;
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

  /** Does what the loop asks for. `of`: the vectors of an image. */
  private async answer(
    request: Request,
    of: (image: number, negative: boolean) => Vectors,
  ): Promise<unknown> {
    const { host, ending, options } = this;
    if (request.kind === "draw") {
      const seed = seedOfRun(this.seeds[request.image]!, request.number);
      const { noise } = await host.run("noise", {}, ending, seed);
      return this.read(noise);
    }
    if (request.kind === "denoise") {
      const { length, cond, inputs, size: latents, scale: pixels } = host.facts;
      const [tall, wide] = latents.map((n) => n * pixels) as [number, number];
      const times = [false, true].map((negative) => options.time_ids(tall, wide, negative));
      const size = cond ?? 256;
      const scale = [[size], scale_embedding(options.scale, size)] as const;
      return this.rows(
        "unet",
        request.rows.map(({ image, negative, sample, timestep }) => {
          const { states, pooled } = of(image, negative);
          const fed: Fed = {
            sample: [[inputs, ...latents], sample],
            timestep: [[], [timestep]],
            timestep_cond: scale,
            encoder_hidden_states: [[length, states.length / length], states],
          };
          if (pooled) {
            fed.text_embeds = [[pooled.length], pooled];
            fed.time_ids = [[6], times[Number(negative)]!];
          }
          return fed;
        }),
      );
    }
    const [height, width] = host.facts.size;
    const { step, steps, timestep } = request;
    const previews = request.expected.map((row) => ({
      data: preview_pixels(row, height * width) as Uint8Array<ArrayBuffer>,
      height,
      width,
    }));
    this.send({ status: "step", step, steps, timestep, previews });
    return false;
  }

  private stacked(rows: Rows): PlainNumbers {
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
  private async rows(name: string, rows: readonly Fed[]): Promise<Numbers[]> {
    return (await this.rowsOfAll(name, rows)).map(([first]) => first!);
  }

  /** As `rows`, with all outputs of each row. */
  private async rowsOfAll(name: string, rows: readonly Fed[]): Promise<Numbers[][]> {
    const graph = this.host.graph(name);
    const [plan] = graph.plans;
    const shapeOf = (input: string): readonly unknown[] => plan!.inputs.get(input)?.shape ?? [];
    const together = Number(shapeOf(graph.inputs[0]!.name)[0] ?? 1);
    const made: Numbers[][] = [];
    for (const indices of groups(rows.length, together)) {
      const group = indices.map((i) => rows[i]!);
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
      const read = graph.outputs.map((output) => this.read(outputs[output.name]));
      for (let i = 0; i < together; i++)
        made.push(
          read.map((all) => {
            const size = all.length / together;
            return all.slice(i * size, (i + 1) * size);
          }),
        );
    }
    return made.slice(0, rows.length);
  }

  /** A tensor among the options. */
  private tensor(name: string): PlainNumbers | undefined {
    const value = this.call.options[name] as PlainNumbers | null | undefined;
    if (value === undefined || value === null) return undefined;
    if (value.data instanceof Float32Array) return value;
    throw new InputError("it has another type", `options.${name}`, "Give a Tensor of float32.");
  }

  private rowsOf({ dims, data }: PlainNumbers): Numbers[] {
    const size = data.length / dims[0]!;
    return Array.from({ length: dims[0]! }, (_, i) =>
      Float32Array.from(data.subarray(i * size, (i + 1) * size)),
    );
  }

  /** The rows of a tensor [n, tokens, size]. */
  private vectorsOf(prefix: string): Vectors[] | undefined {
    const name = `${prefix}prompt_embeds`;
    const value = this.tensor(name);
    if (value === undefined) return undefined;
    const other = `${prefix}pooled_prompt_embeds`;
    const pooled = this.tensor(other);
    if (pooled && (pooled.dims.length !== 2 || pooled.dims[0] !== value.dims[0]))
      throw new InputError(
        "it has another shape",
        `options.${other}`,
        "Give a Tensor of float32 [prompts, size].",
      );
    const second = pooled && this.rowsOf(pooled);
    const { length } = this.host.facts;
    const size = this.host.graph("unet").plans[0]!.inputs.get("encoder_hidden_states")!.shape[2];
    const [count, ...own] = value.dims;
    if (count && String(own) === String([length, size]))
      return this.rowsOf(value).map((states, i) => ({ states, pooled: second?.[i] }));
    throw new InputError(
      "it has another shape",
      `options.${name}`,
      `Give a Tensor of float32 [n, ${length}, ${size}].`,
    );
  }

  /** The vectors of the prompts, and with guidance those of the negative prompts. */
  private async embeddings(): Promise<[Vectors[], Vectors[] | undefined]> {
    const { options, host } = this;
    const given = this.vectorsOf("");
    const givenWithout = this.vectorsOf("negative_");
    const guides = options.guided(host.facts);
    const asked = options.prompts(guides, host.facts.zeros);
    const made = await this.encodedTexts("text_encoder", asked.texts);
    const second = await this.encodedTexts("text_encoder_2", asked.other_texts);
    const of = (list: readonly string[], others: readonly string[] | null): Vectors[] =>
      list.map((text, i) => {
        const first = made.get(text)!;
        const other = others && second.get(others[i]!)!;
        if (!other) return first;
        const states = joined(first.states, other.states, host.facts.length);
        return { states, pooled: other.pooled };
      });
    const vectors = given ?? of(asked.prompts!, asked.seconds);
    if (!guides) return [vectors, undefined];
    const without = asked.zero
      ? [zerosLike(vectors[0]!)]
      : (givenWithout ?? of(asked.negatives!, asked.other_negatives));
    options.check_negatives(without.length, vectors.length);
    return [vectors, without];
  }

  /** What a text encoder makes of texts. */
  private async encodedTexts(
    name: string,
    texts: readonly string[],
  ): Promise<ReadonlyMap<string, Vectors>> {
    const { host } = this;
    const { tokenizer, facts } = host;
    const { length } = facts;
    const pad = name === "text_encoder" ? (tokenizer.id("pad_token") ?? null) : facts.pad;
    const made = new Map<string, Vectors>();
    const pooled = texts.length
      ? host.graph(name).outputs.findIndex((output) => output.name === POOLED)
      : -1;
    if (texts.length)
      await host.during([name], async () => {
        for (const text of texts) {
          const { ids, mask } = padded(tokenizer.encode(text), length, pad);
          const fed: Fed = { input_ids: [[length], ids], attention_mask: [[length], mask] };
          const [row] = await this.rowsOfAll(name, [fed]);
          made.set(text, { states: row![pooled === 0 ? 1 : 0]!, pooled: row![pooled] });
        }
      });
    return made;
  }

  /** The pictures of inpainting. */
  private async inpainted(picture: TaskPicture, count: number): Promise<Inpainted> {
    const { facts } = this.host;
    const [height, width] = facts.size;
    const pixels = await this.pixels(picture);
    const white = mask_of(pixels, pixels.length / 3);
    const model = facts.inputs !== facts.channels;
    const [encoded, without] = await this.encoded(count, model ? white : undefined);
    const mask = latent_mask(white, height, width, facts.scale);
    const { channels, factor } = facts;
    return { encoded, without, mask, channels, factor, model };
  }

  /**
   * Outputs of the encoder for the given pictures, and for what `mask` leaves of them: 1 where a
   * pixel is made anew.
   */
  private async encoded(
    count: number,
    mask?: readonly number[],
  ): Promise<[whole: Numbers[], without: Numbers[]]> {
    const { host, call } = this;
    if (!host.has("vae_encoder"))
      throw new InputError(
        "the model has no vae_encoder",
        "image",
        "Put vae_encoder/model.onnx into its folder, and build the package again.",
      );
    this.options.check_pictures(call.pictures.length, count);
    return host.during(["vae_encoder", "pixels"], async () => {
      const made: [Numbers[], Numbers[]] = [[], []];
      const [height, width] = host.facts.size.map((n) => n * host.facts.scale);
      const dims = [height!, width!, 3];
      const shape = [3, height!, width!];
      for (const picture of call.pictures) {
        const data = await this.pixels(picture);
        const pixels: TaskTensor = { type: "uint8", dims, data };
        const sample = this.read((await host.run("pixels", { pixels }, this.ending)).sample);
        made[0].push(...(await this.rows("vae_encoder", [{ sample: [shape, sample] }])));
        if (!mask) continue;
        const kept = without_masked(sample, mask);
        made[1].push(...(await this.rows("vae_encoder", [{ sample: [shape, kept] }])));
      }
      return made;
    });
  }

  /** Red, green, blue of a picture at the package's size. */
  private async pixels(picture: TaskPicture): Promise<Uint8Array<ArrayBuffer>> {
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
    return pixels;
  }

  private decoded(rows: Rows): Promise<DrawnPicture[]> {
    const { host } = this;
    const { factor, shift, scale, size } = host.facts;
    const [height, width] = size.map((n) => n * scale) as [number, number];
    return host.during(["vae_decoder", "picture"], async () => {
      const pictures: DrawnPicture[] = [];
      for (const row of rows) {
        const scaled = for_decoder(row, factor, shift);
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

function zerosLike({ states, pooled }: Vectors): Vectors {
  return {
    states: new Float32Array(states.length),
    pooled: pooled && new Float32Array(pooled.length),
  };
}
