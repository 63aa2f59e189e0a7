// The programs of a model with their parts, plans and constants, and their compilation by Python.

import type { Device, PlanHandle } from "../../device/device.ts";
import type { Work } from "../../device/webgpu/probe.ts";
import { LOOP } from "../../gen/kernels.ts";
import {
  type ManifestSlot,
  type InferencePlan as PlanJson,
  records,
  type Weight,
} from "../../gen/schema.ts";
import { Checker } from "../../logic/manifest/checker.ts";
import { check_inference_plan } from "../../logic/manifest/inference.ts";
import type { Contents } from "../../logic/manifest/rules.ts";
import type { OpenInfo } from "../../protocol/inference.ts";
import {
  EngineError,
  InputError,
  OutOfMemory,
  PackageError,
  PlanError,
  UnsupportedOp,
} from "../../shared/errors.ts";
import { gather } from "../../shared/files/source.ts";
import type { Weights } from "../model/weights.ts";
import type { Json } from "../package/container.ts";
import { NOTES } from "../package/container.ts";
import type { ModelFiles } from "./files.ts";
import type { KeptPlans, Made } from "./kept.ts";
import { CONSTANTS, type InferenceInfo, type InferencePlan, planOf } from "./manifest.ts";
import { Pool } from "./memory.ts";
import { asKnown, type LoadedPlan, Part, shapeBytes, slotsOf } from "./part.ts";
import type { Constant, GraphProgram, NodeUnit, PartUnit, Unit } from "./program.ts";
import type { CompiledPart, Left, NodeReply, PartReply, Python } from "./python.ts";
import type { Library } from "./runner.ts";
import { byteSize, NumberTensor, type RunValue, toHex } from "./values.ts";

/** How to compile further plans of a model. */
export interface Compiling {
  files: ModelFiles;
  /** Undefined if compiled plans are not stored. */
  kept: KeptPlans | undefined;
  python: Python;
}

/** The programs, parts and plans of a model on a device. */
export class PlanLibrary implements Library {
  readonly pool: Pool;
  private readonly parts = new Map<string, Part>();
  /** Programs by `keyOf`, parents before children. */
  private readonly programs = new Map<string, GraphProgram>();
  /** Sources of weights. */
  readonly described = new Map<string, Weight>();
  /** Constants of programs that are stored as weights, by `tensorKey`. */
  private readonly constants = new Map<string, NumberTensor>();
  /** Names of these weights. */
  private readonly constantWeights = new Set<string>();
  /** Plans compiled during this run. */
  private made: Made[] = [];
  /** Whether this run added or repartitioned programs. */
  private learned = false;
  /** The latest plan of each part that was compiled here, by which `auto` may choose a GPU. */
  readonly compiled = new Map<string, Work>();
  /** Number of the next plan, distinct from those of stored plans. */
  next = 0;

  constructor(
    readonly device: Device,
    readonly weights: Weights,
    readonly where: string,
    maxMemoryBytes: number,
    /** Undefined if the model is a package. */
    readonly compiling: Compiling | undefined,
  ) {
    this.pool = new Pool(device, maxMemoryBytes);
  }

  /** Descriptions of the programs, parents before children. */
  get descriptions(): Record<string, Json>[] {
    return Array.from(this.programs.values(), (p) => p.json);
  }

  /** The plans compiled since the last call, and whether programs were added or repartitioned. */
  news(): { made: Made[]; learned: boolean } {
    const { made, learned } = this;
    this.made = [];
    this.learned = false;
    return { made, learned };
  }

  /**
   * The program that computes the given outputs of the model.
   * @param fed names of the initializers that the caller feeds
   */
  async root(outputs: string[], fed: string[], info: OpenInfo): Promise<GraphProgram> {
    const origin = fed.length ? { outputs, fed } : { outputs };
    const key = JSON.stringify(origin);
    const known = this.programs.get(key);
    if (known) return known;
    if (this.compiling) return this.program(key, () => origin);
    const inputs = info.inputs.map((i) => i.name);
    const unit: PartUnit = {
      kind: "part",
      part: "",
      inputs,
      outputs: info.outputs.map((o) => o.name),
      needs: [],
      beyond: [],
      askers: [],
      where: this.where,
      nodes: [],
      dead: [],
    };
    const program: GraphProgram = {
      name: "",
      inputs,
      outputs,
      where: this.where,
      units: [unit],
      constants: new Map(),
      json: {},
    };
    this.programs.set(key, program);
    return program;
  }

  part(name: string): Part {
    let part = this.parts.get(name);
    if (!part) this.parts.set(name, (part = new Part()));
    return part;
  }

  async program(key: string, origin: () => Record<string, unknown>): Promise<GraphProgram> {
    const known = this.programs.get(key);
    if (known) return known;
    const { program, weights } = await this.compiling!.python.program(origin());
    this.describe(weights, new Map());
    await this.learn(program);
    this.learned = true;
    return program;
  }

  weight(constant: Extract<Constant, { weight: string }>): NumberTensor {
    return this.constants.get(tensorKey(constant))!;
  }

  pythonNode(
    program: GraphProgram,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
    left: Left,
  ): Promise<NodeReply> {
    return this.compiling!.python.node(program, unit, values, left, this.device);
  }

  async compile(
    program: GraphProgram,
    unit: PartUnit,
    values: readonly RunValue[],
    done: () => number[],
    run: number,
  ): Promise<LoadedPlan | Unit[]> {
    if (!this.compiling) throw this.noPlan(unit, values);
    const { python } = this.compiling;
    // if a plan for a range of lengths cannot be loaded, compile one for these shapes only
    let fixed = false;
    for (;;) {
      const known = await shapeBytes(unit, values, this.device);
      const file = `plan/${this.next}`;
      const reply = await python.part(program, unit, values, known, done(), run, file, fixed);
      if ("program" in reply) {
        await this.repartition(program, reply);
        return reply.rest;
      }
      unit.needs = reply.needs;
      unit.beyond = reply.beyond;
      if (!("plan" in reply)) continue;
      this.next++;
      unit.askers = reply.askers;
      const json = (program.json.units as Record<string, Json>[] | undefined)?.find(
        (u) => u.part === unit.part,
      );
      if (json)
        Object.assign(json, { needs: unit.needs, beyond: unit.beyond, askers: unit.askers });
      const info = this.parseReply(unit, values, known, reply);
      try {
        return await this.addPlan(unit, info, reply.files);
      } catch (e) {
        if (!info.register || fixed || !(e instanceof OutOfMemory || e instanceof PlanError))
          throw unloaded(e, unit.where);
        fixed = true;
      }
    }
  }

  /** Replaces the units of a program. */
  private async repartition(
    program: GraphProgram,
    reply: Extract<PartReply, { program: GraphProgram }>,
  ): Promise<void> {
    this.describe(reply.weights, new Map());
    const { units, constants, json } = reply.program;
    Object.assign(program, { units, constants, json });
    await this.learn(program);
    this.learned = true;
  }

  /** Parses a compiled plan and adds the weights that came with it. */
  private parseReply(
    unit: PartUnit,
    values: readonly RunValue[],
    known: ReadonlyMap<string, Uint8Array>,
    reply: CompiledPart,
  ): InferencePlan {
    this.describe(reply.weights, reply.files);
    const knows = Object.fromEntries(
      unit.needs.map((i) => {
        const name = unit.inputs[i]!;
        return [name, toHex(asKnown(unit, i, known.get(name)!, values))];
      }),
    );
    const beyond = unit.beyond.map((b) => [...b]);
    const plan = { ...reply.plan, part: unit.part, known: knows, beyond };
    const c = new Checker(this.where, records());
    c.check_record(plan, "InferencePlan", "the plan");
    const contents: Contents = {
      files: Object.fromEntries([...reply.files].map(([name, data]) => [name, [0, data.length]])),
      weights: new Map([...this.described].map(([name, weight]) => [name, weight.bytes])),
      adapters: new Map(),
      computed: new Map(),
      own: true,
    };
    check_inference_plan(c, plan as unknown as PlanJson, "the plan", contents);
    return planOf(c, plan as unknown as PlanJson, "the plan");
  }

  /** Loads a newly compiled plan and adds it to its part. */
  private async addPlan(
    unit: PartUnit,
    info: InferencePlan,
    files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
  ): Promise<LoadedPlan> {
    const [data, notes] = [files.get(info.file), files.get(NOTES)];
    const loaded = await this.load(info, unit.inputs, data, notes, true);
    await this.device.ready().catch((e: unknown) => {
      this.release(loaded);
      throw e;
    });
    for (const old of this.part(unit.part).add(unit.inputs, loaded)) this.release(old);
    const kinds = info.slots.map(({ kind }) => kind);
    if (data && this.device.options.adapter !== undefined)
      this.compiled.set(unit.part, { plan: data, kinds, times: 1 });
    this.made.push({
      plan: info,
      data,
      notes,
      constant: (name) => this.device.read(this.weights.buffer(name)),
    });
    return loaded;
  }

  private noPlan(unit: PartUnit, values: readonly RunValue[]): InputError {
    const given = unit.inputs.map((n, i) => `${n} ${String(values[i]).replace("[", " [")}`);
    const made = this.part(unit.part).plans.map(({ info }) =>
      [...info.inputs].map(([n, i]) => `${n} ${i.dtype} [${i.shape.join(", ")}]`).join("; "),
    );
    return new InputError(
      `there is no plan for ${given.join("; ")}`,
      this.where,
      `The package was built for ${made.join(" or ")}: feed such tensors, build it with more ` +
        "--dims, or give the page the .onnx file.",
    );
  }

  /** Adds a program and loads the weights that it uses as constants, permanently. */
  async learn(program: GraphProgram): Promise<void> {
    for (const constant of program.constants.values()) {
      if (!("weight" in constant) || this.constants.has(tensorKey(constant))) continue;
      const { weight: name, dtype, shape } = constant;
      const described = this.described.get(name);
      if (!described || described.bytes < byteSize(dtype, shape))
        throw new PackageError(
          `its program needs the weight '${name}', which is missing or too short`,
          this.where,
          "Clear the site's data.",
        );
      if (!this.weights.has(name)) await this.fill(new Map([[name, described]]));
      this.constantWeights.add(name);
      this.constants.set(
        tensorKey(constant),
        new NumberTensor(
          dtype,
          shape,
          undefined,
          this.weights.buffer(name).part(0, byteSize(dtype, shape)),
        ),
      );
    }
    this.programs.set(keyOf(program), program);
  }

  /** Adds sources of weights; loads those that Python sent along. */
  private describe(weights: Weight[], sent: Map<string, Uint8Array>): void {
    for (const w of weights) {
      this.described.set(w.name, w);
      if (w.file !== CONSTANTS || this.weights.has(w.name)) continue;
      this.weights.add({ weights: new Map([[w.name, w]]) });
      const data = sent.get(CONSTANTS)!.subarray(w.offset, w.offset + w.bytes);
      this.device.write(this.weights.buffer(w.name), data);
    }
  }

  /** Allocates weights and reads them from the model's files, each file once and in order. */
  private async fill(wanted: Map<string, Weight>): Promise<void> {
    this.weights.add({ weights: wanted });
    try {
      for (const [file, extents] of this.weights.extents({ weights: wanted })) {
        const blob = await this.compiling?.files.blob(file);
        if (!blob)
          throw new EngineError(
            `weights lie in '${file}', which is missing`,
            this.where,
            "This is a bug in Edgewise; please report it.",
          );
        await gather(blob, extents, file);
      }
    } catch (e) {
      for (const name of wanted.keys()) this.weights.drop(name);
      throw e;
    }
  }

  /**
   * Loads a plan.
   * @param release free weights that no run reads and that the model's files still contain; those
   *   of a package only with its last plan, since they could not be read again
   */
  async load(
    info: InferencePlan,
    inputs: readonly string[],
    data: Uint8Array | undefined,
    notes: Uint8Array | undefined,
    release: boolean,
  ): Promise<LoadedPlan> {
    const { device, weights } = this;
    const loaded = this.place(info, inputs, data, notes);
    const { plan, where } = loaded;
    if (plan === undefined) return loaded;
    try {
      const computes = !weights.hasComputed(info.slots);
      const needed = Array.from(info.slots.entries()).filter(
        ([slot, { kind }]) => kind === "weight" && (computes || device.inRuns(plan, slot)),
      );
      const gone = needed
        .filter(([, { name }]) => !weights.has(name))
        .map(([, { name }]): [string, Weight] => [name, this.described.get(name)!]);
      if (gone.length) await this.fill(new Map(gone));
      for (const [slot, { name }] of needed)
        device.bind(plan, slot, weights.buffer(name), `${where}, slot '${name}'`);
      weights.compute(
        [{ plan, slots: info.slots, where }, ...this.plansInUse()],
        release,
        (name) => this.constantWeights.has(name) || this.described.get(name)?.file === CONSTANTS,
      );
    } catch (e) {
      this.release(loaded);
      throw e;
    }
    return loaded;
  }

  /** Gives a plan to the engine, without its weights. */
  private place(
    info: InferencePlan,
    inputs: readonly string[],
    data: Uint8Array | undefined,
    notes: Uint8Array | undefined,
  ): LoadedPlan {
    const where = `${this.where}, ${info.file}`;
    const numbers = Array.from(info.numbers, ([name, value]) => ({ name, value }));
    const plan =
      info.file && data
        ? this.device.loadPlan(
            data,
            where,
            info.file,
            notes,
            info.slots.map(({ kind }) => kind),
          )
        : undefined;
    const loops = plan !== undefined && this.device.describe(plan).kernels.includes(LOOP);
    return { info, plan, where, loops, ...slotsOf(info, inputs), numbers };
  }

  /**
   * Adds the plans of a package, whose weights are in memory. `Weights.compute` must follow, with
   * the plans of all libraries that share the weights (`plansInUse`).
   * @throws PackageError if a plan lacks an input or an output of the model
   */
  addPackaged(
    { inputs, outputs, plans }: InferenceInfo,
    files: ReadonlyMap<string, Uint8Array>,
  ): void {
    const names = inputs.map((i) => i.name);
    const damaged = (what: string): PackageError =>
      new PackageError(what, this.where, "Build the package again with `edgewise build`.");
    for (const info of plans) {
      const lacks = outputs.find((o) => !info.outputs.has(o.name) && !info.passed.has(o.name));
      if (lacks)
        throw damaged(`its plan '${info.file}' does not compute the output '${lacks.name}'`);
      const without = names.find((name) => !info.inputs.has(name));
      if (without !== undefined)
        throw damaged(`its plan '${info.file}' has no shape for the input '${without}'`);
      const loaded = this.place(info, names, files.get(info.file), files.get(NOTES));
      const { plan, where } = loaded;
      for (const [slot, { name, kind }] of info.slots.entries())
        if (kind === "weight" && plan !== undefined)
          this.device.bind(plan, slot, this.weights.buffer(name), `${where}, slot '${name}'`);
      for (const old of this.part("").add(names, loaded)) this.release(old);
    }
  }

  /** The plans in the engine, for `Weights.compute`. */
  plansInUse(): { plan: PlanHandle; slots: ManifestSlot[]; where: string }[] {
    return Array.from(this.parts.values(), (p) => p.plans)
      .flat()
      .flatMap(({ plan, info: { slots }, where }) =>
        plan === undefined ? [] : [{ plan, slots, where }],
      );
  }

  /** Frees the plans and the memory of values between them. The library cannot be used again. */
  free(): void {
    for (const { plan } of this.plansInUse()) this.device.freePlan(plan);
    this.parts.clear();
    this.pool.free();
  }

  /** Frees a plan, and what was computed for it alone. */
  private release({ plan, info }: LoadedPlan): void {
    if (plan === undefined) return;
    this.device.freePlan(plan);
    const others = this.plansInUse().filter((one) => one.plan !== plan);
    this.weights.dropComputed(info.slots, others);
  }
}

/** The key of a constant: the same bytes of a file may have several shapes. */
function tensorKey({ weight, dtype, shape }: Extract<Constant, { weight: string }>): string {
  return `${weight}:${dtype}[${shape.join()}]`;
}

/** The key by which the driver requests a program. */
function keyOf({ json }: GraphProgram): string {
  const origin = json.origin as Record<string, Json>;
  if (!origin.op) return JSON.stringify(origin);
  const { label, ...rest } = origin.op as Record<string, Json>;
  return JSON.stringify(rest);
}

/** The error for a newly compiled plan that cannot be loaded: it is not damaged. */
function unloaded(e: unknown, where: string): unknown {
  if (e instanceof OutOfMemory && where) return new OutOfMemory(e.what, where, e.remedy);
  if (e instanceof PlanError)
    return new UnsupportedOp(
      `the engine rejected its plan (${e.what})`,
      e.where || where || "graph",
      "Check the shapes and types that were fed; if they are right, report this model.",
    );
  return e;
}
