// Checks the training programs of a manifest.

import { Checker, parseSlots, product, type Json } from "./checker.ts";
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
import {
  TRAINING_PLANS,
  type StateInfo,
  type LoraInfo,
  type ProgramInfo,
  type Manifest,
} from "./manifest.ts";
import { planFile } from "./plan-file.ts";

export function parseTraining(
  c: Checker,
  json: Json | undefined,
  files: Manifest["files"],
  weights: Manifest["weights"],
  computed: Map<string, number>,
): Manifest["training"] {
  const programs: Manifest["training"] = new Map();
  if (json === undefined) return programs;
  c.list(json, "training", MAX_PROGRAMS).forEach((value, p) => {
    const at = `training[${p}]`;
    const root = c.object(value, at);
    const name = c.text(root.get("name"), `${at}.name`);
    if (programs.has(name)) c.fail(at, `has the name '${name}' of another one`);
    if (root.get("task") !== "causal_lm") c.fail(`${at}.task`, "is not 'causal_lm'");
    const batch = c.integer(root.get("batch"), `${at}.batch`, 1, MAX_BATCH);
    const sequence = c.integer(root.get("sequence"), `${at}.sequence`, 2, MAX_CAPACITY);

    const states: ProgramInfo["states"] = new Map();
    c.list(root.get("states"), `${at}.states`).forEach((entry, s) => {
      const path = `${at}.states[${s}]`;
      const state = c.object(entry, path);
      const stateName = c.text(state.get("name"), `${path}.name`);
      const kind = c.oneOf(state.get("kind"), `${path}.kind`, STATE_KINDS);
      const dtype = c.text(state.get("dtype"), `${path}.dtype`);
      const shape = c.shape(state.get("shape"), `${path}.shape`);
      const bytes = c.integer(state.get("bytes"), `${path}.bytes`);
      if (
        product(shape) * (Object.hasOwn(STATE_SIZES, dtype) ? STATE_SIZES[dtype]! : NaN) !==
        bytes
      )
        c.fail(
          path,
          `has ${bytes} bytes, which are not those of ${dtype.slice(0, 40)} [${shape.join(", ")}]`,
        );
      const how = c.list(state.get("initial"), `${path}.initial`, 3);
      let initial: StateInfo["initial"];
      if (how[0] === "constant") {
        initial = ["constant", c.text(how[1], `${path}.initial[1]`)];
        if (!weights.has(initial[1]))
          c.fail(path, `begins as the weight '${initial[1]}', which is not in the package`);
      } else if (how[0] === "fill") initial = ["fill", c.number(how[1], `${path}.initial[1]`)];
      else if (how[0] === "uniform" || how[0] === "normal")
        initial = [
          how[0],
          c.number(how[1], `${path}.initial[1]`),
          c.integer(how[2], `${path}.initial[2]`, 0, MAX_DRAWN),
        ];
      else c.fail(`${path}.initial`, "is none of 'constant', 'fill', 'uniform' and 'normal'");
      if (states.has(stateName)) c.fail(path, `has the name '${stateName}' of another one`);
      states.set(stateName, {
        name: stateName,
        kind: kind as StateInfo["kind"],
        dtype,
        shape,
        bytes,
        initial,
      });
    });

    const plans: ProgramInfo["plans"] = new Map();
    const described = c.object(root.get("plans"), `${at}.plans`);
    for (const kind of TRAINING_PLANS) {
      const path = `${at}.plans.${kind}`;
      const plan = c.object(described.get(kind), path);
      const file = planFile(c, plan.get("file"), `${path}.file`, files);
      const arenaBytes = c.integer(plan.get("arena_bytes"), `${path}.arena_bytes`);
      const ids = 8 * batch * sequence;
      const inputs: Record<string, [string, number]> = {
        input_ids: ["int64", ids],
        labels: ["int64", ids],
        learning_rate: ["float32", 4],
        gradient_scale: ["float32", 4],
        seed: ["int64", 8],
      };
      const slots = parseSlots(c, plan.get("slots"), `${path}.slots`, weights, computed);
      slots.forEach((slot, s) => {
        const where = `${path}.slots[${s}]`;
        if (slot.kind === "state" && states.get(slot.name)?.bytes !== slot.bytes)
          c.fail(
            where,
            `is the state '${slot.name}' of ${slot.bytes} bytes, which ${at}.states does not have`,
          );
        if (slot.kind === "cache") c.fail(where, "is a cache, which training has not");
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
      });
      const names = new Set(
        slots.filter((s) => s.kind === "input" || s.kind === "output").map((s) => s.name),
      );
      for (const one of TRAINING_NAMES[kind]!) if (!names.has(one)) c.fail(path, `lacks '${one}'`);
      plans.set(kind, { file, slots, arenaBytes });
    }

    const optimizer = c.object(root.get("optimizer"), `${at}.optimizer`);
    const type = c.text(optimizer.get("type"), `${at}.optimizer.type`);
    const lr = c.number(optimizer.get("lr"), `${at}.optimizer.lr`);
    let lora: LoraInfo | null = null;
    if (root.get("lora") !== null && root.get("lora") !== undefined) {
      const config = c.object(root.get("lora"), `${at}.lora`);
      const r = c.integer(config.get("r"), `${at}.lora.r`, 1, MAX_LORA_RANK);
      lora = {
        ...Object.fromEntries(config),
        r,
        lora_alpha: c.number(config.get("lora_alpha"), `${at}.lora.lora_alpha`),
        use_rslora: config.get("use_rslora") === true,
      };
    }
    const token = (field: string) => {
      const id = root.get(field);
      return id === null || id === undefined
        ? undefined
        : c.integer(id, `${at}.${field}`, 0, MAX_VOCABULARY);
    };
    const norm = root.get("max_grad_norm");
    programs.set(name, {
      name,
      batch,
      sequence,
      lora,
      optimizer: { ...Object.fromEntries(optimizer), type, lr },
      maxGradNorm:
        norm === null || norm === undefined ? null : c.number(norm, `${at}.max_grad_norm`),
      plans,
      states,
      padTokenId: token("pad_token_id"),
      eosTokenId: token("eos_token_id"),
    });
  });
  return programs;
}
