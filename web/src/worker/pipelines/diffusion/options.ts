// Options of text-to-image: those of diffusers that a page has.

import { type Request, schedule_of } from "../../../logic/diffusion/schedulers.ts";
import type { Schedule } from "../../../logic/diffusion/stepper.ts";
import type { PlainNumbers } from "../../../protocol/drawing.ts";
import { InputError } from "../../../shared/errors.ts";
import { checkSeed, randomSeed } from "../../../shared/seeds.ts";
import { meant } from "../../../shared/words.ts";
import type { Facts } from "./host.ts";

const NAMES = [
  ...["strength", "height", "width", "num_inference_steps", "timesteps", "sigmas"],
  ...["original_inference_steps", "guidance_scale", "guidance_rescale", "negative_prompt"],
  ...["num_images_per_prompt", "eta", "seed", "latents", "prompt_embeds"],
  ...["negative_prompt_embeds", "scheduler", "output_type", "preview_steps", "safety_checker"],
];

/** The options of a call. All methods throw InputError. */
export class DrawOptions {
  private readonly given: Readonly<Record<string, unknown>>;

  constructor(
    given: Readonly<Record<string, unknown>>,
    private readonly facts: Facts,
  ) {
    for (const name of Object.keys(given))
      if (!NAMES.includes(name))
        throw new InputError(
          `there is no option '${name}'`,
          "options",
          meant(name.slice(0, 100), NAMES, `There are: ${NAMES.join(", ")}.`),
        );
    this.given = Object.fromEntries(Object.entries(given).filter(([, v]) => v !== null));
    const [height, width] = facts.size;
    for (const [name, size] of Object.entries({ height, width }))
      if (this.count(name, size * facts.scale) !== size * facts.scale)
        this.refuse(
          name,
          `The package was built for ${height * facts.scale} x ${width * facts.scale}: use that, ` +
            "or build it with --dims height=...,width=....",
        );
  }

  private refuse(name: string, remedy: string): never {
    const shown = String(this.given[name]).slice(0, 100);
    throw new InputError(`it is ${shown}`, `options.${name}`, remedy);
  }

  has(name: string): boolean {
    return this.given[name] !== undefined;
  }

  number(name: string, otherwise: number, most: number): number {
    const value = this.given[name] ?? otherwise;
    return typeof value === "number" && value >= 0 && value <= most
      ? value
      : this.refuse(name, `Give a number from 0 to ${most}.`);
  }

  count(name: string, otherwise: number, least = 1): number {
    const value = this.number(name, otherwise, 1e5);
    return Number.isInteger(value) && value >= least
      ? value
      : this.refuse(name, `Give an integer of ${least} or more.`);
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.given[name] ?? otherwise;
    return typeof value === "boolean" ? value : this.refuse(name, "Give true or false.");
  }

  /** Whether the result are latents. */
  get latent(): boolean {
    const value = this.given.output_type ?? "image";
    if (value !== "image" && value !== "latent")
      this.refuse("output_type", "Give 'image' or 'latent'.");
    return value === "latent";
  }

  /** A list of strings, or one string. */
  texts(name: string): string[] | undefined {
    const value = this.given[name];
    if (value === undefined) return undefined;
    const list: unknown[] = Array.isArray(value) ? value : [value];
    return list.length && list.every((x): x is string => typeof x === "string")
      ? list
      : this.refuse(name, "Give a string or a list of strings.");
  }

  private numbers(name: string): number[] | undefined {
    const value = this.given[name];
    if (value === undefined) return undefined;
    return Array.isArray(value) && value.length && value.every(Number.isFinite)
      ? (value as number[])
      : this.refuse(name, "Give a list of numbers.");
  }

  /** The rows of a tensor, of the given shape. */
  rows(name: string, ...dims: number[]): Float32Array<ArrayBuffer>[] | undefined {
    const value = this.given[name] as PlainNumbers | undefined;
    if (value === undefined) return undefined;
    const size = dims.reduce((a, b) => a * b);
    if (
      !(value.data instanceof Float32Array) ||
      value.dims.length !== dims.length + 1 ||
      !dims.every((d, i) => value.dims[i + 1] === d)
    )
      throw new InputError(
        "it has another type or shape",
        `options.${name}`,
        `Give a Tensor of float32 [n, ${dims.join(", ")}].`,
      );
    const count = value.data.length / size;
    return Array.from({ length: count }, (_, i) =>
      Float32Array.from(value.data.subarray(i * size, (i + 1) * size)),
    );
  }

  /** A seed for each picture. */
  seeds(count: number): bigint[] {
    const { seed } = this.given;
    if (!Array.isArray(seed)) {
      const first = checkSeed(seed, "options.seed") ?? randomSeed();
      return Array.from({ length: count }, (_, i) => BigInt.asUintN(63, first + BigInt(i)));
    }
    if (seed.length !== count) this.refuse("seed", `Give ${count} seeds, or one.`);
    return seed.map((one) => checkSeed(one, "options.seed") ?? 0n);
  }

  /** Whether it is a latent consistency model in a pipeline of its own. */
  private get consistency(): boolean {
    return this.facts.kind.includes("LatentConsistency");
  }

  get scale(): number {
    return this.number("guidance_scale", this.consistency ? 8.5 : 7.5, 1e6);
  }

  /** The steps. `from`: whether they begin with a picture. */
  schedule(from: boolean): Schedule {
    const { scheduler } = this.given;
    const config: Record<string, unknown> = { ...this.facts.scheduler };
    if (typeof scheduler === "string") config._class_name = scheduler;
    else if (typeof scheduler === "object") Object.assign(config, scheduler);
    else if (scheduler !== undefined) this.refuse("scheduler", "Give a name or an object.");
    const [timesteps, sigmas] = [this.numbers("timesteps"), this.numbers("sigmas")];
    let steps = this.count("num_inference_steps", this.consistency ? 4 : 50);
    if (timesteps && sigmas) this.refuse("sigmas", "Give only one of timesteps and sigmas.");
    if (timesteps) steps = timesteps.length;
    if (sigmas) steps = sigmas.length - 1;
    const request: Request = {
      ...{ steps, begin: 0, eta: this.number("eta", 0, 1), strength: 1 },
      ...{ timesteps: timesteps ?? null, sigmas: sigmas ?? null },
      original: this.has("original_inference_steps")
        ? this.count("original_inference_steps", 50)
        : null,
    };
    const strength = this.number("strength", 0.8, 1);
    if (from && this.consistency) request.strength = strength;
    else if (from) request.begin = Math.max(steps - Math.floor(steps * strength), 0);
    const schedule = schedule_of(config, request);
    if (schedule.steps.length) return schedule;
    throw new InputError(
      `no step is left of ${steps}`,
      "options.strength",
      "Raise it, or num_inference_steps.",
    );
  }
}
