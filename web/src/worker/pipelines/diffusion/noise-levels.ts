// The noise of a diffusion model's training: what diffusers' schedulers compute from their
// configurations. Mirrors python/edgewise/logic/diffusion/noise_levels.py.
//
// diffusers computes these tables in float32; `fround` rounds where it does.

import { InputError } from "../../../shared/errors.ts";

const { fround, sqrt } = Math;
const WHERE = "scheduler_config.json";
const MOST_STEPS = 10_000; // of training

/** Rounds half to even, as Python. */
export function round(x: number): number {
  const down = Math.floor(x);
  return x - down === 0.5 ? down + (down % 2) : Math.round(x);
}

/** `count` numbers from `first` to `last`, as numpy.linspace. */
export function evenly(first: number, last: number, count: number): number[] {
  const step = (last - first) / (count - 1);
  return Array.from({ length: count }, (_, i) =>
    i && i === count - 1 ? last : i ? first + i * step : first,
  );
}

/** The fields of a scheduler's configuration. All methods throw InputError. */
export class SchedulerConfig {
  private readonly fields: Readonly<Record<string, unknown>>;

  /** @param defaults those of the class; fields that it lacks are ignored, as by diffusers */
  constructor(
    fields: Readonly<Record<string, unknown>>,
    private readonly defaults: Readonly<Record<string, unknown>>,
  ) {
    const known = Object.entries(fields).filter(([name, v]) => name in defaults && v !== null);
    this.fields = { ...defaults, ...Object.fromEntries(known) };
  }

  /** Whether the class has a field. */
  has(name: string): boolean {
    return name in this.defaults;
  }

  get(name: string): unknown {
    return this.fields[name];
  }

  /** A field that has one of several values. */
  choice<T>(name: string, ...among: T[]): T {
    const value = this.fields[name];
    if (among.includes(value as T)) return value as T;
    throw this.refuse(name, `Supported are ${among.map((v) => JSON.stringify(v)).join(", ")}.`);
  }

  number(name: string, least: number, most: number): number {
    const value = this.fields[name];
    if (typeof value === "number" && value >= least && value <= most) return value;
    throw this.refuse(name, `Give a number from ${least} to ${most}.`);
  }

  count(name: string, least: number, most: number): number {
    const value = this.number(name, least, most);
    if (Number.isInteger(value)) return value;
    throw this.refuse(name, "Give an integer.");
  }

  flag(name: string): boolean {
    return this.choice(name, true, false);
  }

  private refuse(name: string, remedy: string): InputError {
    return new InputError(`${name} is ${JSON.stringify(this.fields[name])}`, WHERE, remedy);
  }
}

/** The noise at each time of training. */
export class Levels {
  /** How much of the variance is the picture's (alphas_cumprod), from time 0 on. */
  readonly alphas: number[];
  private readonly last: number;

  /** @param smallest replaces the last alpha if rescale_betas_zero_snr makes it 0 */
  constructor(config: SchedulerConfig, smallest?: number) {
    const rescaled = config.get("rescale_betas_zero_snr") === true;
    const betas = rescaled ? withoutSignal(betasOf(config)) : betasOf(config);
    this.alphas = products(betas.map((beta) => fround(1 - beta)));
    if (rescaled && smallest !== undefined) this.alphas[betas.length - 1] = smallest;
    this.last = config.get("set_alpha_to_one") === false ? this.alphas[0]! : 1;
  }

  /** The alpha of a time; before time 0 that after the last step. */
  alpha(time: number): number {
    return time >= 0 ? this.alphas[time]! : this.last;
  }

  /** Noise relative to the picture, for each time. */
  sigmas(): number[] {
    return this.alphas.map((a) => fround(sqrt(fround(fround(1 - a) / a))));
  }
}

function betasOf(config: SchedulerConfig): number[] {
  const trained = config.get("trained_betas");
  if (trained !== null) {
    const valid = (b: unknown): b is number => typeof b === "number" && b >= 0 && b < 1;
    if (Array.isArray(trained) && 0 < trained.length && trained.length <= MOST_STEPS)
      if (trained.every(valid)) return trained.map(fround);
    throw new InputError("trained_betas are no numbers from 0 to 1", WHERE, "Set it to null.");
  }
  const count = config.count("num_train_timesteps", 1, MOST_STEPS);
  const [first, last] = [
    config.number("beta_start", 0, 0.999),
    config.number("beta_end", 0, 0.999),
  ];
  const kind = config.choice("beta_schedule", "linear", "scaled_linear", "squaredcos_cap_v2");
  if (kind === "linear") return evenly(first, last, count).map(fround);
  if (kind === "scaled_linear")
    return evenly(sqrt(first), sqrt(last), count).map((b) => fround(fround(b) ** 2));
  const bar = (time: number): number => Math.cos((((time + 0.008) / 1.008) * Math.PI) / 2) ** 2;
  return Array.from({ length: count }, (_, i) =>
    fround(Math.min(1 - bar((i + 1) / count) / bar(i / count), 0.999)),
  );
}

/** Products of the first 1, 2, ... factors. */
function products(factors: readonly number[]): number[] {
  let product = 1;
  return factors.map((factor) => fround((product *= factor)));
}

/** Betas that leave nothing of the picture at the last time (Lin, Liu, Li, Yang 2023). */
function withoutSignal(betas: readonly number[]): number[] {
  const roots = products(betas.map((beta) => fround(1 - beta))).map((a) => fround(sqrt(a)));
  const last = roots.at(-1)!;
  const scale = fround(roots[0]! / fround(roots[0]! - last));
  const bars = roots.map((r) => fround(fround(fround(r - last) * scale) ** 2));
  return bars.map((bar, i) => fround(1 - bar / (bars[i - 1] ?? 1)));
}

/** The value at a time between integers, as numpy.interp. */
export function interpolated(time: number, values: readonly number[]): number {
  const last = values.length - 1;
  const low = Math.min(Math.max(Math.floor(time), 0), last);
  const part = Math.min(Math.max(time - low, 0), 1);
  const below = values[low]!;
  return part ? below + part * (values[Math.min(low + 1, last)]! - below) : below;
}

/** The time at which the noise is `sigma`, between integers by its logarithm. */
export function timeOf(sigma: number, sigmas: readonly number[]): number {
  const log = Math.log(Math.max(sigma, 1e-10));
  let low = 0;
  while (low < sigmas.length - 2 && Math.log(sigmas[low + 1]!) <= log) low++;
  const [below, above] = [Math.log(sigmas[low]!), Math.log(sigmas[low + 1]!)];
  const part = Math.min(Math.max((below - log) / (below - above), 0), 1);
  return (1 - part) * low + part * (low + 1);
}
