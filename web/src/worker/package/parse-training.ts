// Validation of the training programs in a manifest.

import {
  MAX_BATCH,
  MAX_CAPACITY,
  MAX_DRAWN,
  MAX_LORA_RANK,
  MAX_PROGRAMS,
  MAX_VOCABULARY,
  STATE_KINDS,
  STATE_SIZES,
  TRAINING_NAMES,
} from "../../gen/manifest.ts";
import { type Checker, type Json, type ManifestSlot, parseSlots, product } from "./checker.ts";
import {
  type LoraInfo,
  type Manifest,
  type ProgramInfo,
  type StateInfo,
  TRAINING_PLANS,
  type TrainingPlan,
} from "./manifest.ts";
import { planFile } from "./plan-file.ts";

/** What the plans of a program are checked against. `at`: its path in the manifest. */
type ProgramFacts = Pick<ProgramInfo, "batch" | "sequence" | "states"> & { at: string };

/**
 * Parses and checks the training programs.
 * @throws PackageError
 */
export function parseTraining(
  c: Checker,
  json: Json | undefined,
  files: Manifest["files"],
  weights: Manifest["weights"],
  computed: Map<string, number>,
): Manifest["training"] {
  const programs: Manifest["training"] = new Map();
  if (json === undefined) return programs;
  c.list(json, "training", MAX_PROGRAMS).forEach((value, i) => {
    const at = `training[${i}]`;
    const program = parseTrainingProgram(c, value, at, files, weights, computed);
    if (programs.has(program.name)) c.fail(at, `has the duplicate name '${program.name}'`);
    programs.set(program.name, program);
  });
  return programs;
}

function parseTrainingProgram(
  c: Checker,
  json: Json | undefined,
  at: string,
  files: Manifest["files"],
  weights: Manifest["weights"],
  computed: Map<string, number>,
): ProgramInfo {
  const root = c.object(json, at);
  const name = c.text(root.get("name"), `${at}.name`);
  if (root.get("task") !== "causal_lm") c.fail(`${at}.task`, "is not 'causal_lm'");
  const batch = c.integer(root.get("batch"), `${at}.batch`, 1, MAX_BATCH);
  const sequence = c.integer(root.get("sequence"), `${at}.sequence`, 2, MAX_CAPACITY);
  const states: ProgramInfo["states"] = new Map();
  c.list(root.get("states"), `${at}.states`).forEach((entry, i) => {
    const path = `${at}.states[${i}]`;
    const state = parseState(c, entry, path, weights);
    if (states.has(state.name)) c.fail(path, `has the duplicate name '${state.name}'`);
    states.set(state.name, state);
  });
  const plans: ProgramInfo["plans"] = new Map();
  const described = c.object(root.get("plans"), `${at}.plans`);
  const known: ProgramFacts = { batch, sequence, states, at };
  for (const kind of TRAINING_PLANS) {
    const path = `${at}.plans.${kind}`;
    const plan = described.get(kind);
    plans.set(kind, parseTrainingPlan(c, plan, path, kind, known, files, weights, computed));
  }
  const optimizer = c.object(root.get("optimizer"), `${at}.optimizer`);
  const type = c.text(optimizer.get("type"), `${at}.optimizer.type`);
  const lr = c.number(optimizer.get("lr"), `${at}.optimizer.lr`);
  const optional = <T>(field: string, parse: (value: Json, path: string) => T): T | undefined => {
    const value = root.get(field);
    return value === null || value === undefined ? undefined : parse(value, `${at}.${field}`);
  };
  const token = (value: Json, path: string) => c.integer(value, path, 0, MAX_VOCABULARY);
  return {
    name,
    batch,
    sequence,
    lora: optional("lora", (value, path) => parseLora(c, value, path)) ?? null,
    optimizer: { ...Object.fromEntries(optimizer), type, lr },
    maxGradNorm: optional("max_grad_norm", (value, path) => c.number(value, path)) ?? null,
    plans,
    states,
    padTokenId: optional("pad_token_id", token),
    eosTokenId: optional("eos_token_id", token),
  };
}

function parseState(
  c: Checker,
  json: Json | undefined,
  path: string,
  weights: Manifest["weights"],
): StateInfo {
  const state = c.object(json, path);
  const name = c.text(state.get("name"), `${path}.name`);
  const kind = c.oneOf(state.get("kind"), `${path}.kind`, STATE_KINDS);
  const dtype = c.text(state.get("dtype"), `${path}.dtype`);
  const shape = c.shape(state.get("shape"), `${path}.shape`);
  const bytes = c.integer(state.get("bytes"), `${path}.bytes`);
  if (product(shape) * (Object.hasOwn(STATE_SIZES, dtype) ? STATE_SIZES[dtype]! : NaN) !== bytes)
    c.fail(
      path,
      `has ${bytes} bytes, which do not match ${dtype.slice(0, 40)} [${shape.join(", ")}]`,
    );
  const initial = parseInitial(c, state.get("initial"), `${path}.initial`, path, weights);
  return { name, kind: kind as StateInfo["kind"], dtype, shape, bytes, initial };
}

/** Parses the initial value of a state. `state`: its path, for errors. */
function parseInitial(
  c: Checker,
  json: Json | undefined,
  at: string,
  state: string,
  weights: Manifest["weights"],
): StateInfo["initial"] {
  const how = c.list(json, at, 3);
  if (how[0] === "constant") {
    const name = c.text(how[1], `${at}[1]`);
    if (!weights.has(name))
      c.fail(state, `is initialized from the weight '${name}', which is not in the package`);
    return ["constant", name];
  }
  if (how[0] === "fill") return ["fill", c.number(how[1], `${at}[1]`)];
  if (how[0] === "uniform" || how[0] === "normal")
    return [how[0], c.number(how[1], `${at}[1]`), c.integer(how[2], `${at}[2]`, 0, MAX_DRAWN)];
  return c.fail(at, "is not one of 'constant', 'fill', 'uniform' and 'normal'");
}

function parseTrainingPlan(
  c: Checker,
  json: Json | undefined,
  path: string,
  kind: TrainingPlan,
  program: ProgramFacts,
  files: Manifest["files"],
  weights: Manifest["weights"],
  computed: Map<string, number>,
): { file: string; slots: ManifestSlot[]; arenaBytes: number } {
  const plan = c.object(json, path);
  const file = planFile(c, plan.get("file"), `${path}.file`, files);
  const arenaBytes = c.integer(plan.get("arena_bytes"), `${path}.arena_bytes`);
  const slots = parseSlots(c, plan.get("slots"), `${path}.slots`, weights, computed);
  slots.forEach((slot, i) => checkSlot(c, slot, `${path}.slots[${i}]`, program));
  const names = new Set(
    slots.filter((s) => s.kind === "input" || s.kind === "output").map((s) => s.name),
  );
  for (const one of TRAINING_NAMES[kind]!) if (!names.has(one)) c.fail(path, `lacks '${one}'`);
  return { file, slots, arenaBytes };
}

/** Checks that training can bind a slot. */
function checkSlot(c: Checker, slot: ManifestSlot, where: string, program: ProgramFacts): void {
  const ids = 8 * program.batch * program.sequence;
  const inputs: Record<string, [string, number]> = {
    input_ids: ["int64", ids],
    labels: ["int64", ids],
    learning_rate: ["float32", 4],
    gradient_scale: ["float32", 4],
    seed: ["int64", 8],
  };
  if (slot.kind === "state" && program.states.get(slot.name)?.bytes !== slot.bytes)
    c.fail(
      where,
      `is the state '${slot.name}' of ${slot.bytes} bytes, which ${program.at}.states ` +
        "does not have",
    );
  if (slot.kind === "cache") c.fail(where, "is a cache, which training does not have");
  if (slot.kind === "input") {
    const known = Object.hasOwn(inputs, slot.name) ? inputs[slot.name] : undefined;
    if (!known || slot.dtype !== known[0] || slot.bytes !== known[1])
      c.fail(
        where,
        `is an input '${slot.name}' (${slot.dtype.slice(0, 40)}, ${slot.bytes} bytes) ` +
          "that training does not feed",
      );
  }
  if (
    slot.kind === "output" &&
    (slot.name !== "loss" || slot.dtype !== "float32" || slot.bytes !== 4)
  )
    c.fail(where, "is not the one output 'loss', float32");
}

function parseLora(c: Checker, json: Json, at: string): LoraInfo {
  const config = c.object(json, at);
  const r = c.integer(config.get("r"), `${at}.r`, 1, MAX_LORA_RANK);
  return {
    ...Object.fromEntries(config),
    r,
    lora_alpha: c.number(config.get("lora_alpha"), `${at}.lora_alpha`),
    use_rslora: config.get("use_rslora") === true,
  };
}
