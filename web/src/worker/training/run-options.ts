// The options of a run: defaults and checks.

import { TRAINING_DEFAULTS } from "../../gen/training_defaults.ts";
import { rank_axis } from "../../logic/training/adapters.ts";
import { has_patterns, scaling_in } from "../../logic/training/lora.ts";
import {
  check_judged,
  check_number,
  check_options,
  check_whole,
} from "../../logic/training/options.ts";
import { check_preference, type Preference, RATE } from "../../logic/training/preferences.ts";
import { check_schedule, type ScheduleName } from "../../logic/training/schedules.ts";
import type { TrainingFields } from "../../protocol/training.ts";
import { Checkpoint } from "../../shared/checkpoints/checkpoint.ts";
import { InputError } from "../../shared/errors.ts";
import type { Learner } from "../model/model.ts";
import type { LoraInfo, ProgramInfo } from "../package/manifest.ts";
import { ranked } from "./adapter-config.ts";
import { adaptersOf } from "./adapters-of.ts";
import { LOSSES, type Session, weighs } from "./session.ts";

export function chooseProgram(model: Learner, adapter: unknown): ProgramInfo {
  const programs = [...model.programs.values()];
  if (!programs.length)
    throw new InputError(
      "this model was compiled without training",
      model.where,
      "Load the .onnx model with the option training, or build the package with `edgewise " +
        "build --train`.",
    );
  if (adapter !== undefined && adapter !== "lora" && adapter !== "full")
    throw new InputError(
      `it is ${JSON.stringify(adapter)?.slice(0, 60)}`,
      "options.adapter",
      "Give 'lora' or 'full'.",
    );
  const found =
    adapter === undefined
      ? (programs.find((p) => p.lora) ?? programs[0])
      : programs.find((p) => (p.lora !== null) === (adapter === "lora"));
  if (!found)
    throw new InputError(
      "this model was compiled for training " +
        `'${programs.map((p) => (p.lora ? "lora" : "full")).join("', '")}'`,
      "options.adapter",
      "Choose that, or compile the model for the other.",
    );
  return found;
}

/** The options of a run, with defaults for those that were not given. */
export interface RunSettings {
  /** Passes over the data; undefined: 1, or as many as `max_steps` takes. */
  epochs: number | undefined;
  /** Maximum number of updates. */
  max_steps: number | undefined;
  gradient_accumulation_steps: number;
  /** The loss of preferences; undefined: of next tokens. */
  preference: Preference | undefined;
  /** Whether an update adds the gradients of several runs. */
  accumulates: boolean;
  /** Highest learning rate; the schedule multiplies it. */
  learning_rate: number;
  schedule: ScheduleName;
  warmup_steps: number;
  seed: bigint;
  /** Updates between evaluations; 0: only before the first and after the last one. */
  evaluate_every: number;
  /** Evaluations without improvement after which the run ends; 0: it does not. */
  early_stopping_patience: number;
  /** Whether the run ends with the result of its best evaluation. */
  load_best_model_at_end: boolean;
  /** Configuration of the adapter; undefined if all parameters are trained. */
  lora: LoraInfo | undefined;
  /** Weight of the squared distance to the first values. */
  proximal_mu: number;
  /** LoRA's A is not trained. */
  freeze_A: boolean;
  checkpoint: { file: Checkpoint; every: number } | undefined;
  /** Of pairs: options of the pipeline's calls. */
  call_options: Readonly<Record<string, unknown>>;
}

/**
 * Checks the options of a run and fills in defaults.
 * @throws InputError if an option is invalid
 */
export function resolveSettings(program: ProgramInfo, fields: TrainingFields): RunSettings {
  const defaults = TRAINING_DEFAULTS;
  const { proximal_mu = 0, freeze_A = false, checkpoint, epochs, max_steps } = fields;
  check_options(fields, "options.");
  const schedule = fields.schedule ?? defaults.schedule;
  check_schedule(schedule, "options.schedule");
  if (freeze_A && !program.lora)
    throw new InputError("all parameters are trained", "options.freeze_A", "Leave it out.");
  check_judged(
    fields.early_stopping_patience ?? null,
    fields.load_best_model_at_end ?? null,
    fields.evaluation !== undefined,
    "options.",
  );
  if (fields.resume && !checkpoint)
    throw new InputError(
      "there is no checkpoint to resume from",
      "options.resume",
      "Give checkpoint: {name}.",
    );
  const every = checkpoint?.every ?? defaults.checkpoint_every;
  const preference = preferenceOf(program, fields);
  const batches =
    fields.gradient_accumulation_steps ??
    program.accumulation ??
    defaults.gradient_accumulation_steps;
  return {
    epochs,
    max_steps,
    gradient_accumulation_steps: batches,
    preference,
    accumulates: batches > 1 || preference !== undefined,
    learning_rate: fields.learning_rate ?? program.optimizer.lr * (preference ? RATE : 1),
    schedule,
    warmup_steps: fields.warmup_steps ?? defaults.warmup_steps,
    seed: seedOf(fields.seed),
    evaluate_every: fields.evaluate_every ?? 0,
    early_stopping_patience: fields.early_stopping_patience ?? 0,
    load_best_model_at_end: fields.load_best_model_at_end ?? false,
    lora: loraOf(program, fields),
    proximal_mu,
    freeze_A,
    call_options: callOptions(fields.call_options),
    checkpoint: checkpoint && {
      file: new Checkpoint(checkpoint.name),
      every: check_whole(every, "options.checkpoint.every", 1),
    },
  };
}

function callOptions(given: unknown): Readonly<Record<string, unknown>> {
  if (given === undefined || (typeof given === "object" && given !== null))
    return { ...(given as object | undefined) };
  throw new InputError(`it is ${String(given)}`, "options.call_options", "Give { name: value }.");
}

function preferenceOf(program: ProgramInfo, fields: TrainingFields): Preference | undefined {
  const { loss, beta, simpo_gamma, desirable_weight, undesirable_weight } = fields;
  const numbers = [beta, simpo_gamma, desirable_weight, undesirable_weight] as const;
  if (loss === undefined) {
    if (numbers.some((x) => x !== undefined))
      throw new InputError(
        "beta, simpo_gamma and the weights of labels belong to losses of preferences",
        "options",
        "Give loss: 'dpo', 'orpo', 'kto' or 'simpo', or leave them out.",
      );
    return undefined;
  }
  const only = program.balances
    ? "router_aux_loss_coef"
    : program.packing
      ? "packing"
      : program.topK && "distillation";
  if (only)
    throw new InputError(
      `the model was compiled with ${only}, with which next tokens alone are learned`,
      "options.loss",
      "Compile it without.",
    );
  const [first = null, second = null, third = null, fourth = null] = numbers;
  const made = check_preference(loss, first, second, third, fourth, "options.");
  if (!weighs(program) || !program.plans.get("evaluate")!.slots.some((s) => s.name === LOSSES))
    throw new InputError(
      "this package was compiled by a version of Edgewise without preferences",
      "options.loss",
      "Compile the model again.",
    );
  return made;
}

function seedOf(seed: number | bigint | undefined): bigint {
  if (seed === undefined) return BigInt(TRAINING_DEFAULTS.seed);
  if (
    typeof seed === "bigint"
      ? seed < 0n || seed >= 1n << 63n
      : !(Number.isSafeInteger(seed) && seed >= 0)
  )
    throw new InputError(
      `it is ${String(seed)}`,
      "options.seed",
      "Give a non-negative integer (above 2^53 as a BigInt).",
    );
  return BigInt(seed);
}

export function loraOf(
  program: ProgramInfo,
  { r, lora_alpha: alpha }: TrainingFields,
): LoraInfo | undefined {
  const own = program.lora;
  if (!own) {
    if (r !== undefined || alpha !== undefined)
      throw new InputError(
        "r and lora_alpha apply only to adapters",
        "options",
        "Leave them out when all parameters are trained.",
      );
    return undefined;
  }
  const rank = ranked(own, r ?? own.r, "options");
  const lora_alpha = alpha ?? (own.lora_alpha * rank.r) / own.r;
  if (has_patterns(own) && (rank.r !== own.r || lora_alpha !== own.lora_alpha))
    throw new InputError(
      "the model was compiled with rank_pattern or alpha_pattern, which say r and lora_alpha",
      "options",
      "Leave out r and lora_alpha, or compile the model with others.",
    );
  const scales = { ...own, ...rank, lora_alpha };
  if (own.use_dora && Math.abs(scaling_in(scales, "") / scaling_in(own, "") - 1) > 1e-12)
    throw new InputError(
      "the scaling of DoRA is that which the model was compiled with",
      "options.lora_alpha",
      "Leave it out, or compile the model with another one.",
    );
  check_number(lora_alpha, "options.lora_alpha", true);
  return { ...own, ...rank, lora_alpha };
}

/**
 * Reduces the rank of an adapter: clears the rows of A beyond the rank. B's columns are initially
 * zero, so the gradients of both are zero and they stay so.
 */
function lowerRank(session: Session, r: number): void {
  for (const state of session.results) {
    const axis = rank_axis(state.name);
    if (axis === null) continue;
    const [rows, row] = [state.shape[0]!, state.bytes / state.shape[0]!];
    const rest = axis === 0 ? (rows - r) * row : row - (r * row) / state.shape[1]!;
    const zeros = new Uint8Array(rest);
    if (axis === 0) session.writeState(state, zeros, r * row);
    else for (let i = 1; i <= rows; i++) session.writeState(state, zeros, i * row - rest);
  }
}

/**
 * Makes the states with which a run begins.
 * @param values those of the adapter that it goes on with
 * @param moments the optimizer's states of an earlier run
 */
export function writeFirst(
  session: Session,
  { accumulates, lora }: RunSettings,
  values: ReadonlyMap<string, Uint8Array> | undefined,
  moments: Uint8Array | undefined,
): void {
  session.initialize(accumulates);
  if (lora && lora.r < session.program.lora!.r) lowerRank(session, lora.r);
  if (values) session.fill(values);
  if (moments) writeMoments(session, moments);
}

/**
 * Takes over the optimizer of an earlier run.
 * @param data what `optimizerState` of its Trainer has returned
 * @throws InputError if it has another size
 */
function writeMoments(session: Session, data: Uint8Array): void {
  const { moments } = session;
  const wanted = moments.reduce((n, state) => n + state.bytes, 0);
  if (!(data instanceof Uint8Array && data.length === wanted))
    throw new InputError(
      `it is not ${wanted} bytes long`,
      "options.optimizer_state",
      "Give what `optimizerState` of a Trainer of the same program has returned.",
    );
  let at = 0;
  for (const state of moments) session.writeState(state, data.subarray(at, (at += state.bytes)));
}

export function freshName(model: Learner, base: string): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? base : `${base} ${n}`;
    if (!adaptersOf(model).has(name)) return name;
  }
}
