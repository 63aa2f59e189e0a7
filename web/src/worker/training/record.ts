// What determines the rest of a run, as recorded in its checkpoint.

import { BEST, check_same_run, check_tensors } from "../../logic/training/checkpoints.ts";
import type { Checkpoint } from "../../shared/checkpoints/checkpoint.ts";
import { sha256 } from "../../shared/sha256.ts";
import type { Learner } from "../model/model.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { Data } from "./read-data.ts";
import { MAX } from "./recovery/backup.ts";
import type { RunSettings } from "./run-options.ts";
import type { Session } from "./session.ts";

const HEAD = 4096; // bytes

/** A stored checkpoint. */
export type Stored = NonNullable<Awaited<ReturnType<Checkpoint["read"]>>>;

/** Everything besides the states that the updates of a run depend on. */
export function recordOf(
  model: Learner,
  program: ProgramInfo,
  options: RunSettings,
  total: number,
  { rows, sources = [], told = [] }: Pick<Data, "rows" | "sources" | "told">,
): Record<string, unknown> {
  const { lora } = options;
  // the first states, or features, of each source tell it from others
  const heads = sources
    .flatMap((one) => ("parts" in one ? one.parts : new Uint8Array(one.buffer)))
    .map((one) => one.subarray(0, HEAD));
  heads.push(...told.map((one) => new Uint8Array(Float64Array.from(one.log_probs).buffer)));
  return {
    program: program.name,
    model: model.key,
    batch: program.batch,
    sequence: program.sequence,
    optimizer: program.optimizer,
    max_grad_norm: program.maxGradNorm,
    learning_rate: options.learning_rate,
    schedule: options.schedule,
    warmup_steps: options.warmup_steps,
    order: "randperm",
    seed: String(options.seed),
    preference: options.preference && { ...options.preference },
    proximal_mu: options.proximal_mu || undefined,
    freeze_A: options.freeze_A || undefined,
    early_stopping_patience: options.early_stopping_patience || undefined,
    load_best_model_at_end: options.load_best_model_at_end || undefined,
    gradient_accumulation_steps: options.gradient_accumulation_steps,
    total,
    ...(lora ? { r: lora.r, lora_alpha: lora.lora_alpha } : {}),
    texts: sha256(...[0, 1].map((part) => int32(rows.map((row) => row[part]!))), ...heads),
  };
}

/** The numbers of all rows as bytes. */
function int32(rows: readonly number[][]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Int32Array.from(rows.flat()).buffer);
}

/** @throws InputError if a checkpoint belongs to another run than `mine` */
export function compare(
  mine: Record<string, unknown>,
  theirs: Record<string, unknown>,
  name: string,
): void {
  check_same_run(
    mine,
    theirs,
    ["texts", "model"],
    `checkpoint '${name}'`,
    "Resume with the same texts and options, or start over with resume: false.",
  );
}

/**
 * Writes the states of a checkpoint.
 * @returns their values, where these are few and may be needed again
 * @throws InputError if the session has other states
 */
export async function fillFrom(
  session: Session,
  { record, contents, tensor }: Stored,
  name: string,
): Promise<Map<string, Uint8Array<ArrayBuffer>> | undefined> {
  const { kept } = session;
  const few = session.replaceable && kept.reduce((sum, { bytes }) => sum + bytes, 0) <= MAX;
  const wanted = new Map(kept.map((state) => [state.name, state]));
  const tensors = new Map([...contents.tensors].filter(([tensor]) => !tensor.startsWith(BEST)));
  check_tensors(tensors, wanted, `checkpoint '${name}'`);
  const best = new Map([...contents.tensors].filter(([tensor]) => tensor.startsWith(BEST)));
  const results = new Map(session.results.map((state) => [BEST + state.name, state]));
  if (best.size) check_tensors(best, results, `checkpoint '${name}'`);
  const values = few ? new Map<string, Uint8Array<ArrayBuffer>>() : undefined;
  for (const state of kept) {
    const data = await tensor(state.name);
    session.writeState(state, data);
    values?.set(state.name, data);
  }
  session.runs = record.runs;
  return values;
}
