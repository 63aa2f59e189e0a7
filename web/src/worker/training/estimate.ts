// What a run will take: memory from the program's plans, time by an update that is made and
// forgotten.

import {
  change,
  type Estimate,
  estimated,
  type PlanMemory,
  plans_of_step,
} from "../../logic/training/memory.ts";
import type { TrainingEstimate, TrainingFields, TrainingRecord } from "../../protocol/training.ts";
import type { Learner } from "../model/model.ts";
import type { ProgramInfo, TrainingPlan } from "../package/manifest.ts";
import { adaptersOf } from "./adapters-of.ts";
import { orderOf, readData, updatesOf } from "./read-data.ts";
import { chooseProgram, type RunSettings, resolveSettings } from "./run-options.ts";
import { TrainingRun } from "./trainer.ts";

const OWN = 2 ** 26; // bytes for the engine, plans of generation and a short sequence
const RECORDS = 16; // of preferences and pairs, for the update that is timed: each is run before

/**
 * Memory and time of a run.
 * @param measure whether an update is made, to time it
 * @throws the same errors as TrainingRun.open, but for OutOfMemory
 */
export async function estimate(
  model: Learner,
  texts: (string | TrainingRecord)[],
  fields: TrainingFields,
  measure: boolean,
  signal: AbortSignal,
): Promise<TrainingEstimate> {
  const program = chooseProgram(model, fields.adapter);
  const options = resolveSettings(program, adaptersOf(model).continued(fields));
  const data = await readData(model, program, texts, fields.evaluation, options, signal);
  const updates = updatesOf(orderOf(data, program, options.seed), options);
  const steps = updates.total(options.epochs ?? null, options.max_steps ?? null);
  const memory = memoryOf(model, program, options);
  const { maxBytes } = model.device;
  // the length of the engine's memory says nothing: it never shrinks, and what was freed is used
  const besides = Math.max(0, model.weights.bytes - memory.weights);
  const available = maxBytes === undefined ? null : maxBytes - OWN - besides;
  const { batch, sequence, lora } = program;
  const wanted = change(
    memory,
    available ?? Number.MAX_SAFE_INTEGER,
    batch,
    sequence,
    lora !== null,
    options.gradient_accumulation_steps,
  );
  const { weights, states, activations, plans, total } = memory;
  const made: TrainingEstimate = {
    program: lora ? "lora" : "full",
    batch,
    sequence,
    gradient_accumulation_steps: options.gradient_accumulation_steps,
    total: steps,
    memory: { weights, states, activations, plans, total },
    available,
    fits: wanted === null,
    change: wanted,
  };
  if (!made.fits || !measure || !steps) return made;
  const step = await secondsOf(model, texts, fields, options, signal);
  return { ...made, seconds_per_step: step, seconds: step * steps };
}

function memoryOf(model: Learner, program: ProgramInfo, options: RunSettings): Estimate {
  const plans = plans_of_step(options.accumulates).map((kind) => {
    const { file, slots, arenaBytes } = program.plans.get(kind as TrainingPlan)!;
    const read = slots.map(({ name, kind, bytes: size }) => ({ name, kind, size }));
    return { size: model.files.get(file)!.length, arena: arenaBytes, slots: read } as PlanMemory;
  });
  const states = Array.from(program.states.values(), ({ kind, bytes: size }) => ({ kind, size }));
  return estimated(plans, states, options.accumulates);
}

/** Seconds of an update. Makes one, and leaves the adapters as they were. */
async function secondsOf(
  model: Learner,
  texts: (string | TrainingRecord)[],
  fields: TrainingFields,
  options: RunSettings,
  signal: AbortSignal,
): Promise<number> {
  const adapters = adaptersOf(model);
  const active = adapters.list().find((one) => one.active);
  const batches = options.gradient_accumulation_steps;
  const timed = Math.min(batches, 2); // of the batches of an update: all take the same time
  const run = await TrainingRun.open(
    model,
    options.preference || model.pairs ? texts.slice(0, RECORDS) : texts,
    {
      ...fields,
      name: undefined,
      evaluation: undefined,
      checkpoint: undefined,
      resume: undefined,
      gradient_accumulation_steps: options.preference ? batches : timed,
    },
    signal,
  );
  try {
    const { seconds } = await run.update(0);
    return options.preference ? seconds : (seconds * batches) / timed;
  } finally {
    await run.close();
    await adapters.remove(run.adapter);
    await adapters.use(active?.name ?? null, active?.scale ?? 1);
  }
}
