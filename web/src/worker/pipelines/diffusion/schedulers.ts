// Schedulers of diffusion models: PNDM, DDIM, Euler, Euler ancestral, DPM-Solver++ and LCM of
// diffusers. Mirrors python/edgewise/logic/diffusion/schedulers.py.

import { InputError } from "../../../shared/errors.ts";
import { evenly, interpolated, Levels, round, SchedulerConfig, timeOf } from "./noise-levels.ts";
import type { Factors, Pair, Schedule, Step } from "./stepper.ts";

/** What a call asks of a scheduler. */
export interface ScheduleRequest {
  /** num_inference_steps */
  steps: number;
  /** How many steps of the schedule are left out, for image-to-image. */
  begin?: number;
  /** Of DDIM. */
  eta?: number;
  timesteps?: readonly number[] | undefined;
  sigmas?: readonly number[] | undefined;
  /** original_inference_steps of LCM */
  original?: number | undefined;
  /** Of image-to-image, where LCM's own pipeline divides its steps by it. */
  strength?: number;
}

const { fround, sqrt } = Math;
const COMMON = {
  num_train_timesteps: 1000,
  beta_start: 0.0001,
  beta_end: 0.02,
  beta_schedule: "linear",
  trained_betas: null,
  prediction_type: "epsilon",
  steps_offset: 0,
};
const KARRAS = {
  use_karras_sigmas: false,
  use_exponential_sigmas: false,
  use_beta_sigmas: false,
  final_sigmas_type: "zero",
  rescale_betas_zero_snr: false,
  timestep_spacing: "linspace",
};
const CLIPPED = { thresholding: false, rescale_betas_zero_snr: false, set_alpha_to_one: true };

type Make = (config: SchedulerConfig, request: ScheduleRequest) => Schedule;

/** Schedulers by their class in diffusers: defaults, and the options that they take. */
const SCHEDULERS: Record<string, { make: Make; defaults: object; takes: string[] }> = {
  PNDMScheduler: {
    make: pndm,
    defaults: { skip_prk_steps: false, set_alpha_to_one: false, timestep_spacing: "leading" },
    takes: [],
  },
  DDIMScheduler: { make: ddim, defaults: { ...CLIPPED, timestep_spacing: "leading" }, takes: [] },
  EulerDiscreteScheduler: {
    make: (config, request) => {
      config.choice("interpolation_type", "linear");
      config.choice("timestep_type", "discrete");
      return euler(config, request, false);
    },
    defaults: {
      ...KARRAS,
      interpolation_type: "linear",
      timestep_type: "discrete",
      sigma_min: null,
      sigma_max: null,
    },
    takes: ["timesteps", "sigmas"],
  },
  EulerAncestralDiscreteScheduler: {
    make: (config, request) => euler(config, request, true),
    defaults: { timestep_spacing: "linspace", rescale_betas_zero_snr: false },
    takes: [],
  },
  DPMSolverMultistepScheduler: {
    make: dpm,
    defaults: {
      ...KARRAS,
      solver_order: 2,
      algorithm_type: "dpmsolver++",
      solver_type: "midpoint",
      lower_order_final: true,
      euler_at_final: false,
      use_lu_lambdas: false,
      use_flow_sigmas: false,
      thresholding: false,
    },
    takes: ["timesteps"],
  },
  LCMScheduler: {
    make: lcm,
    defaults: {
      ...CLIPPED,
      beta_start: 0.00085,
      beta_end: 0.012,
      beta_schedule: "scaled_linear",
      original_inference_steps: 50,
      timestep_scaling: 10,
    },
    takes: ["timesteps"],
  },
};

/**
 * The steps of a call.
 * @param config contents of scheduler_config.json; `_class_name` names the scheduler
 * @throws InputError if the scheduler, a field or an option is not supported
 */
export function scheduleOf(
  config: Readonly<Record<string, unknown>>,
  request: ScheduleRequest,
): Schedule {
  const name = String(config._class_name);
  const known = Object.hasOwn(SCHEDULERS, name) ? SCHEDULERS[name]! : undefined;
  if (!known)
    throw new InputError(
      `there is no scheduler '${name}'`,
      "scheduler",
      `There are: ${Object.keys(SCHEDULERS).join(", ")}.`,
    );
  const fields = new SchedulerConfig(config, { ...COMMON, ...known.defaults });
  if (fields.has("thresholding")) fields.choice("thresholding", false);
  for (const option of ["timesteps", "sigmas"] as const)
    if (request[option] && !known.takes.includes(option))
      throw new InputError(`${name} takes no ${option}`, option, "Use EulerDiscreteScheduler.");
  return known.make(fields, request);
}

/**
 * The times of the steps, the noisiest first.
 * @param extra how many more times are spaced and left out at the end
 * @param exact whether times between integers are possible
 */
function timesOf(
  config: SchedulerConfig,
  { steps, timesteps }: ScheduleRequest,
  extra = 0,
  exact = false,
): number[] {
  const train = config.count("num_train_timesteps", 1, 10_000);
  let times = [...(timesteps ?? [])];
  if (!timesteps) {
    if (steps > train)
      throw new InputError(
        `there are ${train} steps of training`,
        "num_inference_steps",
        `Give at most ${train}.`,
      );
    const kind = config.choice("timestep_spacing", "linspace", "leading", "trailing");
    const all = steps + extra;
    if (kind === "linspace")
      times = evenly(0, train - 1, all).map((t) => (exact ? fround(t) : round(t)));
    else if (kind === "leading") {
      const [ratio, offset] = [Math.floor(train / all), config.count("steps_offset", 0, train)];
      times = Array.from({ length: all }, (_, i) => i * ratio + offset);
    } else {
      const ratio = train / steps;
      const count = Math.ceil(train / ratio);
      return Array.from({ length: count }, (_, i) => round(train - i * ratio) - 1);
    }
    times = times.reverse().slice(0, steps);
  }
  if (!times.length || !times.every((t) => t >= 0 && t < train))
    throw new InputError(
      `timesteps are not from 0 to ${train - 1}`,
      timesteps ? "timesteps" : "num_inference_steps",
      "Give others, or set steps_offset of the scheduler to 0.",
    );
  return times;
}

/** The picture that the model expects. */
function cleanOf(kind: string, alpha: number): Pair {
  const [signal, noise] = [sqrt(alpha), sqrt(1 - alpha)];
  if (kind === "epsilon") return signal ? [1 / signal, -noise / signal] : [0, 0];
  return kind === "v_prediction" ? [signal, -noise] : [0, 1];
}

/** What image-to-image begins with. */
function started({ alphas }: Levels, [time]: readonly number[]): Pair {
  const alpha = time === undefined ? 1 : alphas[Math.floor(time)]!;
  return [sqrt(alpha), sqrt(1 - alpha)];
}

const ADAMS = [
  [1],
  [3 / 2, -1 / 2],
  [23 / 12, -16 / 12, 5 / 12],
  [55 / 24, -59 / 24, 37 / 24, -9 / 24],
];

function pndm(config: SchedulerConfig, request: ScheduleRequest): Schedule {
  config.choice("skip_prk_steps", true);
  const kind = config.choice("prediction_type", "epsilon", "v_prediction");
  const levels = new Levels(config);
  const train = levels.alphas.length;
  let times = timesOf(config, request);
  times = [...times.slice(0, 2), ...times.slice(1)]; // the second step twice, if there is one
  const ratio = Math.floor(train / request.steps);
  times = times.slice(request.begin ?? 0);
  let kept: number[] = []; // steps whose outputs count
  const steps = times.map((time, i): Step => {
    let [now, after] = [time, time - ratio];
    if (i === 1) [now, after] = [time + ratio, time];
    else kept = [...kept.slice(-3), i];
    const weights = i === 1 ? [0.5, 0.5] : ADAMS[kept.length - 1]!;
    const of = i === 1 ? [1, 0] : [...kept].reverse();
    const [alpha, below] = [levels.alpha(Math.min(now, train - 1)), levels.alpha(after)];
    const beta = 1 - alpha;
    let sample = sqrt(below / alpha);
    const divisor = alpha * sqrt(1 - below) + sqrt(alpha * beta * below);
    let output = below === alpha ? 0 : -(below - alpha) / divisor;
    if (kind === "v_prediction") {
      sample += output * sqrt(beta);
      output *= sqrt(alpha);
    }
    return {
      timestep: time,
      scale: 1,
      convert: [0, 1],
      samples: [[i === 1 ? 1 : 0, sample]],
      outputs: of.map((k, j): Pair => [i - k, weights[j]! * output]),
      noise: 0,
      clean: cleanOf(kind, levels.alpha(time)),
    };
  });
  return { steps, sigma: 1, start: started(levels, times) };
}

function ddim(config: SchedulerConfig, request: ScheduleRequest): Schedule {
  const kind = config.choice("prediction_type", "epsilon", "v_prediction", "sample");
  const levels = new Levels(config);
  const times = timesOf(config, request).slice(request.begin ?? 0);
  const ratio = Math.floor(levels.alphas.length / request.steps);
  const steps = times.map((time): Step => {
    const [alpha, below] = [levels.alpha(time), levels.alpha(time - ratio)];
    const [signal, noise] = [sqrt(alpha), sqrt(1 - alpha)];
    const clean = cleanOf(kind, alpha);
    const error =
      kind === "epsilon"
        ? [0, 1]
        : kind === "v_prediction"
          ? [noise, signal]
          : [1 / noise, -signal / noise];
    const deviation = (request.eta ?? 0) * sqrt(((1 - below) / (1 - alpha)) * (1 - alpha / below));
    const [toClean, toError] = [sqrt(below), sqrt(Math.max(1 - below - deviation ** 2, 0))];
    const [sample, output] = [0, 1].map((k) => toClean * clean[k]! + toError * error[k]!);
    return {
      timestep: time,
      scale: 1,
      convert: [0, 1],
      samples: [[0, sample!]],
      outputs: [[0, output!]],
      noise: deviation,
      clean,
    };
  });
  return { steps, sigma: 1, start: started(levels, times) };
}

function lcm(config: SchedulerConfig, request: ScheduleRequest): Schedule {
  const kind = config.choice("prediction_type", "epsilon", "v_prediction", "sample");
  const levels = new Levels(config);
  const train = levels.alphas.length;
  let times: number[];
  if (request.timesteps) times = timesOf(config, request);
  else {
    const original = request.original ?? config.count("original_inference_steps", 1, train);
    if (original > train)
      throw new InputError(
        `the model was trained with ${train} steps`,
        "original_inference_steps",
        `Give at most ${train}.`,
      );
    const k = Math.floor(train / original);
    const count = Math.floor(original * (request.strength ?? 1));
    if (request.steps < 1 || request.steps > count)
      throw new InputError(
        `${request.steps} steps of ${count} are not possible`,
        "num_inference_steps",
        "Give fewer, or raise original_inference_steps or strength.",
      );
    times = Array.from({ length: request.steps }, (_, i) => {
      const index = Math.floor((i * count) / request.steps);
      return (count - index) * k - 1;
    });
  }
  const scaling = config.number("timestep_scaling", 0, 1e6);
  const steps = times.map((time, i): Step => {
    const last = i === times.length - 1;
    const alpha = levels.alpha(time);
    const below = last ? alpha : levels.alpha(times[i + 1]!);
    const square = (time * scaling) ** 2 + 0.25;
    const [signal, noise] = last ? [1, 0] : [sqrt(below), sqrt(1 - below)];
    const clean = cleanOf(kind, alpha);
    return {
      timestep: time,
      scale: 1,
      convert: clean,
      samples: [[0, (signal * 0.25) / square]],
      outputs: [[0, (signal * time * scaling) / sqrt(square)]],
      noise,
      clean,
    };
  });
  const begin = request.begin ?? 0;
  return { steps: steps.slice(begin), sigma: 1, start: started(levels, times.slice(begin)) };
}

/** The noise of each step and after the last; `times` are changed for Karras' noise. */
function sigmasOf(config: SchedulerConfig, request: ScheduleRequest, times: number[]): number[] {
  const table = new Levels(config, 2 ** -24).sigmas();
  if (config.has("use_beta_sigmas")) config.choice("use_beta_sigmas", false);
  const change = (sigmas: readonly number[]): void => {
    times.splice(0, times.length, ...sigmas.map((s) => fround(timeOf(s, table))));
  };
  if (request.sigmas) {
    const given = request.sigmas.map(fround);
    if (given.length < 2 || !given[0] || !given.every((s) => s >= 0 && s < Infinity))
      throw new InputError("these are no sigmas", "sigmas", "Give numbers that end with 0.");
    change(given.slice(0, -1));
    return given;
  }
  let sigmas = times.map((t) => interpolated(t, table));
  const ramp = ["use_karras_sigmas", "use_exponential_sigmas"].find((f) => config.get(f) === true);
  if (ramp) {
    if (request.timesteps)
      throw new InputError(`timesteps are given with ${ramp}`, "timesteps", "Leave one out.");
    const own = config.has("sigma_max");
    const end = (name: string, otherwise: number): number =>
      typeof config.get(name) === "number" ? (config.get(name) as number) : otherwise;
    const most = end("sigma_max", own ? sigmas[0]! : table.at(-1)!);
    const least = end("sigma_min", own ? sigmas.at(-1)! : table[0]!);
    sigmas =
      ramp === "use_karras_sigmas"
        ? evenly(most ** (1 / 7), least ** (1 / 7), times.length).map((r) => r ** 7)
        : evenly(Math.log(most), Math.log(least), times.length).map(Math.exp);
    change(sigmas);
  }
  const final = config.has("final_sigmas_type")
    ? config.choice("final_sigmas_type", "zero", "sigma_min")
    : "zero";
  return [...sigmas, final === "zero" ? 0 : table[0]!].map(fround);
}

function euler(config: SchedulerConfig, request: ScheduleRequest, ancestral: boolean): Schedule {
  const kind = ancestral
    ? config.choice("prediction_type", "epsilon", "v_prediction")
    : config.choice("prediction_type", "epsilon", "v_prediction", "sample");
  const times = request.sigmas ? [] : timesOf(config, request, 0, true);
  const sigmas = sigmasOf(config, request, times);
  const steps = times.map((time, i): Step => {
    const [sigma, after] = [sigmas[i]!, sigmas[i + 1]!];
    const total = sigma ** 2 + 1;
    const up = ancestral ? (after * sqrt(Math.max(sigma ** 2 - after ** 2, 0))) / sigma : 0;
    const left = sqrt(Math.max(after ** 2 - up ** 2, 0)) / sigma;
    const clean: Pair =
      kind === "epsilon"
        ? [1, -sigma]
        : kind === "v_prediction"
          ? [1 / total, -sigma / sqrt(total)]
          : [0, 1];
    return {
      timestep: time,
      scale: 1 / sqrt(total),
      convert: clean,
      samples: [[0, left]],
      outputs: [[0, 1 - left]],
      noise: up,
      clean,
    };
  });
  const most = Math.max(...sigmas);
  const begin = Math.min(request.begin ?? 0, steps.length);
  return {
    steps: steps.slice(begin),
    sigma: config.get("timestep_spacing") === "leading" ? sqrt(most ** 2 + 1) : most,
    start: [1, sigmas[begin]!],
  };
}

function dpm(config: SchedulerConfig, request: ScheduleRequest): Schedule {
  const kind = config.choice("prediction_type", "epsilon", "v_prediction", "sample");
  for (const field of ["use_exponential_sigmas", "use_lu_lambdas", "use_flow_sigmas"])
    config.choice(field, false);
  const random =
    config.choice("algorithm_type", "dpmsolver++", "sde-dpmsolver++") !== "dpmsolver++";
  const heun = config.choice("solver_type", "midpoint", "heun") === "heun";
  const order = config.choice("solver_order", 1, 2);
  const times = timesOf(config, request, config.get("timestep_spacing") === "trailing" ? 0 : 1);
  const sigmas = sigmasOf(config, request, times);
  const whole = config.get("beta_schedule") === "squaredcos_cap_v2" ? Math.floor : round;
  const finalFirst =
    config.flag("euler_at_final") ||
    (config.flag("lower_order_final") && times.length < 15) ||
    sigmas.at(-1) === 0;
  const begin = Math.min(request.begin ?? 0, times.length);
  const steps = times.slice(begin).map((time, j): Step => {
    const i = begin + j;
    const [sigma, after] = [sigmas[i]!, sigmas[i + 1]!];
    const [signal, now] = [1 / sqrt(after ** 2 + 1), 1 / sqrt(sigma ** 2 + 1)];
    const part = after / sigma;
    const clean = cleanOf(kind, now ** 2);
    const ofClean = signal * (1 - (random ? part ** 2 : part));
    let outputs: Factors = [[0, ofClean]];
    if (order === 2 && j && !(i === times.length - 1 && finalFirst)) {
      const [h, before] = [-Math.log(part), Math.log(sigmas[i - 1]! / sigma)];
      let bend = ofClean / 2;
      if (heun && random) bend = signal * ((1 - part ** 2) / (-2 * h) + 1);
      else if (heun) bend = signal * ((part - 1) / h + 1);
      bend *= h / before;
      outputs = [
        [0, ofClean + bend],
        [1, -bend],
      ];
    }
    return {
      timestep: whole(time),
      scale: 1,
      convert: clean,
      samples: [[0, ((after * signal) / (sigma * now)) * (random ? part : 1)]],
      outputs,
      noise: random ? after * signal * sqrt(Math.max(1 - part ** 2, 0)) : 0,
      clean,
    };
  });
  const signal = 1 / sqrt(sigmas[begin]! ** 2 + 1);
  return { steps, sigma: 1, start: [signal, sigmas[begin]! * signal] };
}
