// A model of any kind in the worker: its weights, its programs and their plans, and what feeds and
// reads them. Plans come with the package, an earlier visit has kept them, or Python makes them
// when new shapes come (session/page.py); the driver runs them, and what stands between.

import { Checker, type Json, type Weight } from "../package/checker.ts";
import { checkTable, Weights } from "../model/decoder.ts";
import { Engine, withKernels, type EngineOptions } from "../../device/engine.ts";
import {
  Aborted,
  EngineError,
  InputError,
  ModelError,
  OutOfMemory,
  PackageError,
  StorageError,
} from "../../shared/errors.ts";
import { fillBeside, notThere } from "../model/load.ts";
import { openPackage } from "../package/package.ts";
import { Compiler } from "../compiler-client.ts";
import { BlobSource, gather, HandedSource } from "../../shared/files/source.ts";
import { KeptSource, type Warn } from "../files/storage.ts";
import { Driver, type Bounds, type Library } from "./driver.ts";
import { asDeclared } from "./feeds.ts";
import { ModelFiles } from "./files.ts";
import { KeptPlans, notesOf, type Found, type Made } from "./kept.ts";
import { CONSTANTS, parsePlan, type InferencePlan } from "./manifest.ts";
import { Pool } from "./memory.ts";
import { Part, shapeBytes, slotsOf, type LoadedPlan } from "./part.ts";
import type { Constant, NodeUnit, PartUnit, Program, Unit } from "./program.ts";
import { Python, type Left, type NodeReply, type PythonHost } from "./python.ts";
import { spareBuffers } from "./spare.ts";
import { byteSize, NumberTensor, release, type RunValue } from "./values.ts";
import { fromWire, toWire } from "./wire.ts";
import { HttpSource, NotFound } from "../../shared/files/http.ts";
import type { Urls } from "../../protocol/loading.ts";
import type {
  WireValue,
  ValueInfo,
  OpenRequest,
  OpenInfo,
  RunRequest,
} from "../../protocol/inference.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { MAGIC } from "../../shared/files/magic.ts";
import { NOTES } from "../package/notes.ts";

/** Of a model that Python may compile more plans of. */
interface Compiling {
  files: ModelFiles;
  /** Undefined where nothing is to be kept. */
  kept: KeptPlans | undefined;
  python: Python;
}

/** What makes a Python; tests have another one than a page. */
export type StartPython = (urls: Urls, signal: AbortSignal) => PythonHost;

const inWorker: StartPython = (urls, signal) => new Compiler(urls, signal);

/** An InferenceSession in the worker. */
export class InferenceModel implements Library {
  readonly pool: Pool;
  private readonly driver: Driver;
  private readonly parts = new Map<string, Part>();
  /**
   * By what they are of (`keyOf`), in the order in which they came to be known: parents before
   * children.
   */
  private readonly programs = new Map<string, Program>();
  /** Where weights come from. */
  private readonly described = new Map<string, Weight>();
  /** Constants of programs that lie among the weights. */
  private readonly constants = new Map<string, NumberTensor>();
  /** What this run has compiled. */
  private made: Made[] = [];
  /** Whether this run came to know programs, or cut them anew. */
  private learned = false;
  /** Outputs that stay here, by the numbers that the page knows them by. */
  private readonly pinned = new Map<number, NumberTensor>();
  private nextPinned = 1;
  /** Number of the next plan: those that are kept have others. */
  private next = 0;

  private constructor(
    readonly engine: Engine,
    private readonly weights: Weights,
    private readonly where: string,
    readonly info: OpenInfo,
    private readonly request: OpenRequest,
    /** Undefined where the model is a package. */
    private readonly compiling: Compiling | undefined,
  ) {
    this.pool = new Pool(engine, request.max_memory_bytes);
    this.driver = new Driver(this);
  }

  /** @throws ModelError, PackageError, InputError, EngineError, Aborted */
  static async open(
    request: OpenRequest,
    signal: AbortSignal,
    warn: Warn,
    startPython: StartPython = inWorker,
  ): Promise<InferenceModel> {
    const { model, urls, flavour, threads } = request;
    const options = {
      ...urls,
      ...(flavour === undefined ? {} : { flavour }),
      ...(threads === undefined ? {} : { threads }),
    };
    const packed =
      typeof model === "string"
        ? new URL(model).pathname.endsWith(".edge")
        : !(model instanceof Blob) || (await model.slice(0, 8).text()) === MAGIC;
    const fetching = (url: string) =>
      request.cache_files ? new KeptSource(url, { signal }, warn) : new HttpSource(url, { signal });
    const start = () => {
      // any model: beside what Python takes the full engine is nothing
      const opening = Engine.open({ ...options, full: !packed });
      opening.catch(() => undefined);
      return opening;
    };
    let opening = start();
    let python: Python | undefined;
    let files: ModelFiles | undefined;
    try {
      if (packed || !(typeof model === "string" || model instanceof Blob)) {
        const source =
          typeof model === "string"
            ? fetching(model)
            : model instanceof Blob
              ? new BlobSource(model, model instanceof File ? model.name : "model", { signal })
              : new HandedSource(model, { signal });
        await source.open();
        return await InferenceModel.fromPackage(source, await opening, options, request).catch(
          async (e: unknown) => {
            // the next load fetches it anew
            if (e instanceof PackageError && source instanceof KeptSource) await source.forget();
            throw e;
          },
        );
      }
      files = new ModelFiles(model, request.external, fetching);
      await files.mark(files.name); // a model that is not there is told at once
      const kept = request.cache ? await KeptPlans.of(await opening, files) : undefined;
      let made: InferenceModel | undefined;
      python = new Python(
        () => startPython(urls, signal),
        files,
        () => made?.descriptions ?? [],
      );
      const compiling: Compiling = { files, kept, python };
      const found = await kept?.find();
      if (found) {
        try {
          return (made = await InferenceModel.fromKept(found, await opening, compiling, request));
        } catch (e) {
          // the network's, the file's, the visitor's doing
          if (e instanceof ModelError || e instanceof Aborted || e instanceof NotFound) throw e;
          // else one of the model's files was damaged where it was kept: it is fetched again
          if (!(e instanceof StorageError)) await kept!.forget();
          (await opening).close(); // with all that was loaded
          opening = start();
        }
      }
      const info = await python.open();
      const engine = await opening;
      return (made = new InferenceModel(
        engine,
        new Weights(engine, { weights: new Map() }),
        files.name,
        { ...info, ...engine.choice },
        request,
        compiling,
      ));
    } catch (e) {
      python?.end();
      opening.then(
        (engine) => engine.close(),
        () => undefined,
      );
      throw e instanceof NotFound ? notThere(e) : e;
    } finally {
      files?.close();
    }
  }

  /**
   * What an earlier visit compiled. Weights go from the network or the file into their places;
   * Python is started by shapes that are new.
   */
  private static async fromKept(
    { opened, sources }: Found,
    engine: Engine,
    compiling: Compiling,
    request: OpenRequest,
  ): Promise<InferenceModel> {
    const { manifest, files } = opened;
    const where = compiling.files.name;
    checkTable(engine, manifest, where);
    const { inputs, outputs, plans, programs } = manifest.inference!;
    const weights = new Weights(engine, manifest);
    await fillBeside(opened, weights.extents(manifest, where), sources, where);
    const made = new InferenceModel(
      engine,
      weights,
      where,
      { inputs, outputs, ...engine.choice },
      request,
      compiling,
    );
    for (const weight of manifest.weights.values()) made.described.set(weight.name, weight);
    const units = new Map<string, PartUnit>();
    for (const program of programs) {
      await made.learn(program);
      for (const unit of program.units) if (unit.kind === "part") units.set(unit.part, unit);
    }
    for (const plan of plans) {
      made.next = Math.max(made.next, 1 + (Number(/\d+$/.exec(plan.file)?.[0]) || 0));
      const { inputs: names } = units.get(plan.part)!;
      made
        .part(plan.part)
        .add(
          names,
          await made.load(
            plan,
            names,
            files.get(plan.file),
            files.get(notesOf(plan.file)),
            plan === plans.at(-1),
          ),
        );
    }
    return made;
  }

  private static async fromPackage(
    source: ByteSource,
    base: Engine,
    options: EngineOptions,
    request: OpenRequest,
  ): Promise<InferenceModel> {
    const where = source.name;
    const { manifest, files, finish } = await openPackage(source);
    checkTable(base, manifest, where);
    const { inference } = manifest;
    if (!inference)
      throw new PackageError(
        `its task is '${manifest.task}'`,
        where,
        "Load it with pipeline(); InferenceSession takes .onnx files and packages made with " +
          "`edgewise build --dims`.",
      );
    const engine = await withKernels(base, options, manifest.kernels, where);
    const weights = new Weights(engine, manifest);
    await finish(weights.extents(manifest, where));
    const { inputs, outputs } = inference;
    const made = new InferenceModel(
      engine,
      weights,
      where,
      { inputs, outputs, ...engine.choice },
      request,
      undefined,
    );
    for (const plan of inference.plans) {
      const lacks = outputs.find((o) => !plan.outputs.has(o.name) && !plan.passed.has(o.name));
      if (lacks)
        throw new PackageError(
          `its plan '${plan.file}' does not compute the output '${lacks.name}'`,
          where,
          "Build the package again with `edgewise build`.",
        );
      const names = inputs.map((i) => i.name);
      const without = names.find((name) => !plan.inputs.has(name));
      if (without !== undefined)
        throw new PackageError(
          `its plan '${plan.file}' is for no shape of the input '${without}'`,
          where,
          "Build the package again with `edgewise build`.",
        );
      made
        .part("")
        .add(
          names,
          await made.load(
            plan,
            names,
            files.get(plan.file),
            files.get(NOTES),
            plan === inference.plans.at(-1),
          ),
        );
    }
    return made;
  }

  /** Descriptions of its programs, parents before children. */
  get descriptions(): Record<string, Json>[] {
    return Array.from(this.programs.values(), (p) => p.json);
  }

  /**
   * Computes the outputs of these names. Feeds are checked; a run that fails loses nothing.
   * @param transfer gets the buffers of what goes to the page. @param warn gets in words why what
   *   was compiled could not be kept /
   */
  async run(
    { feeds, outputs, seed, pinned }: RunRequest,
    transfer: Transferable[],
    signal: { readonly aborted: boolean } | undefined,
    warn: Warn,
  ): Promise<WireValue[]> {
    // first of all: runs that were sent after this one feed them by their numbers, even if this one
    // fails
    this.keepCopies(feeds);
    const wanted = this.check(feeds, outputs);
    const values = new Map<string, RunValue>();
    const fed = new Map<RunValue, string>();
    const {
      max_loop_trips: maxLoopTrips,
      max_compilations: maxCompilations,
      max_run_seconds: maxRunSeconds,
    } = this.request;
    const bounds: Bounds = { maxLoopTrips, maxCompilations, maxRunSeconds, signal, seed };
    const kept: RunValue[] = [];
    const python = this.compiling?.python;
    this.driver.begin(bounds);
    if (python) python.ending = () => this.driver.ending("");
    try {
      for (const info of this.info.inputs) {
        const given = feeds[info.name];
        const copied =
          given && "keep" in given && given.keep !== undefined && this.pinned.has(given.keep);
        let v = fromWire(
          copied ? { type: given.type, dims: given.dims, pinned: given.keep! } : given,
          info,
          `feed '${info.name}'`,
          (id) => this.pinned.get(id),
        );
        if (
          v.kind === "tensor" &&
          !this.compiling &&
          asDeclared(info.shape, [...v.dims]).length !== v.rank
        )
          v = v.view([]);
        values.set(info.name, v);
        fed.set(v, info.name);
      }
      const found = await this.driver.start(await this.root(outputs), values, wanted);
      return found.map((v, i): WireValue => {
        const input = fed.get(v);
        if (input !== undefined) return { fed: input };
        if (v.kind !== "tensor" || !pinned?.includes(outputs[i]!))
          return toWire(v, this.engine, transfer);
        const id = this.nextPinned++;
        this.pinned.set(id, found.indexOf(v) < i ? v.view(v.dims) : v);
        return { type: v.type, dims: [...v.dims], pinned: id };
      });
    } finally {
      for (const v of this.pinned.values()) {
        v.refs = 1; // whatever a run that failed left behind
        kept.push(v);
      }
      this.driver.finish(kept);
      if (python) python.ending = () => undefined;
      const { made } = this;
      this.made = [];
      const { learned } = this;
      this.learned = false;
      if (this.compiling && (made.length || learned))
        await this.compiling.kept?.add(
          this.info,
          this.descriptions,
          this.described,
          made,
          this.compiling.python.reads,
          warn,
        );
    }
  }

  /**
   * Puts copies of tensors into the engine, for this run and those that follow. What is no tensor
   * is left to the checks of feeds. @throws OutOfMemory
   */
  keepCopies(feeds: Record<string, WireValue> | WireValue[]): void {
    for (const given of Object.values(feeds)) {
      if (given && "sequence" in given && Array.isArray(given.sequence))
        this.keepCopies(given.sequence);
      if (!given || !("keep" in given) || given.keep === undefined || this.pinned.has(given.keep))
        continue;
      const { keep, type, dims, data } = given;
      if (
        !Array.isArray(dims) ||
        !(data instanceof Uint8Array) ||
        data.length !== byteSize(type, dims)
      )
        continue;
      const block = this.pool.take(data.length);
      this.engine.bytes(block.address, data.length).set(data);
      this.pinned.set(keep, new NumberTensor(type, dims, undefined, block.address, block));
    }
  }

  /** Buffers of a run's feeds that nothing here refers to any more. */
  spare(feeds: Record<string, WireValue>): ArrayBuffer[] {
    return spareBuffers(Object.values(feeds), this.pinned.values());
  }

  /** The bytes of an output that stayed here. @throws InputError: it has been disposed of */
  read(id: number): Uint8Array<ArrayBuffer> {
    const v = this.pinned.get(id);
    if (!v)
      throw new InputError(
        "it has been disposed of",
        "Tensor",
        "Read it before it is disposed of.",
      );
    return v.data ? v.data.slice() : v.read(this.engine);
  }

  /** Lets go of outputs that stayed here. */
  drop(ids: readonly number[]): void {
    for (const id of ids) {
      const v = this.pinned.get(id);
      if (v && this.pinned.delete(id)) release(v);
    }
  }

  private check(feeds: Record<string, WireValue>, outputs: string[]): ValueInfo[] {
    const { inputs, outputs: has } = this.info;
    for (const name of Object.keys(feeds))
      if (!inputs.some((i) => i.name === name))
        throw new InputError(
          "the model has no such input",
          `feed '${name}'`,
          `It has ${inputs.map((i) => i.name).join(", ")}.`,
        );
    for (const { name, type } of inputs)
      if (!Object.hasOwn(feeds, name) && type !== "optional")
        throw new InputError(
          "it is missing",
          `feed '${name}'`,
          `Feed ${inputs.map((i) => i.name).join(", ")}.`,
        );
    return outputs.map((name) => has.find((o) => o.name === name) ?? fail(name, has));
  }

  /** The model as a program for some of its outputs. */
  private async root(outputs: string[]): Promise<Program> {
    const origin = { outputs };
    const key = JSON.stringify(origin);
    const known = this.programs.get(key);
    if (known) return known;
    if (this.compiling) return this.program(key, () => origin);
    const inputs = this.info.inputs.map((i) => i.name);
    const unit: PartUnit = {
      kind: "part",
      part: "",
      inputs,
      outputs: this.info.outputs.map((o) => o.name),
      needs: [],
      askers: [],
      where: this.where,
      nodes: [],
      dead: [],
    };
    const program: Program = {
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

  // Library

  part(name: string): Part {
    let part = this.parts.get(name);
    if (!part) this.parts.set(name, (part = new Part()));
    return part;
  }

  async program(key: string, origin: () => Record<string, unknown>): Promise<Program> {
    const known = this.programs.get(key);
    if (known) return known;
    const { program, weights } = await this.compiling!.python.program(origin());
    this.describe(weights, new Map());
    await this.learn(program);
    this.learned = true;
    return program;
  }

  weight({ weight }: Extract<Constant, { weight: string }>): NumberTensor {
    return this.constants.get(weight)!;
  }

  pythonNode(
    program: Program,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
    left: Left,
  ): Promise<NodeReply> {
    return this.compiling!.python.node(program, unit, values, left, this.engine);
  }

  async compile(
    program: Program,
    unit: PartUnit,
    values: readonly RunValue[],
    done: () => number[],
    run: number,
  ): Promise<LoadedPlan | Unit[]> {
    if (!this.compiling) throw this.noPlan(unit, values);
    const { python } = this.compiling;
    for (;;) {
      const known = shapeBytes(unit, values, this.engine);
      const reply = await python.part(
        program,
        unit,
        values,
        known,
        done(),
        run,
        `plan/${this.next}`,
      );
      if ("program" in reply) {
        this.describe(reply.weights, new Map());
        Object.assign(program, {
          units: reply.program.units,
          constants: reply.program.constants,
          json: reply.program.json,
        });
        await this.learn(program);
        this.learned = true;
        return reply.rest;
      }
      unit.needs = reply.needs;
      if (!("plan" in reply)) continue;
      this.next++;
      unit.askers = reply.askers;
      const json = (program.json.units as Record<string, Json>[] | undefined)?.find(
        (u) => u.part === unit.part,
      );
      if (json) Object.assign(json, { needs: unit.needs, askers: unit.askers });
      this.describe(reply.weights, reply.files);
      const knows = Object.fromEntries(
        unit.needs.map((i) => [
          unit.inputs[i]!,
          Array.from(known.get(unit.inputs[i]!)!, (b) => b.toString(16).padStart(2, "0")).join(""),
        ]),
      );
      const info = parsePlan(
        new Checker(this.where),
        { ...reply.plan, part: unit.part, known: knows },
        "the plan",
        reply.files,
        this.described,
        new Map(),
      );
      const [data, notes] = [reply.files.get(info.file), reply.files.get(NOTES)];
      const loaded = await this.load(info, unit.inputs, data, notes, true).catch((e: unknown) => {
        throw e instanceof OutOfMemory && unit.where
          ? new OutOfMemory(e.what, unit.where, e.remedy)
          : e;
      });
      for (const old of this.part(unit.part).add(unit.inputs, loaded)) this.release(old);
      this.made.push({
        plan: info,
        data,
        notes,
        constant: (name) => {
          const { address, bytes } = this.weights.address(name);
          return this.engine.bytes(address, bytes).slice();
        },
      });
      return loaded;
    }
  }

  private noPlan(unit: PartUnit, values: readonly RunValue[]): InputError {
    const made = this.part(unit.part).plans.map(({ info }) =>
      [...info.inputs].map(([n, i]) => `${n} ${i.dtype} [${i.shape.join(", ")}]`).join("; "),
    );
    return new InputError(
      `there is no plan for ${unit.inputs.map((n, i) => `${n} ${String(values[i]).replace("[", " [")}`).join("; ")}`,
      this.where,
      `The package was built for ${made.join(" or ")}: feed such tensors, build it with more ` +
        "--dims, or give the page the .onnx file.",
    );
  }

  /**
   * Takes note of a program; what it needs of the model's weights is brought into memory, for good.
   */
  private async learn(program: Program): Promise<void> {
    for (const constant of program.constants.values()) {
      if (!("weight" in constant) || this.constants.has(constant.weight)) continue;
      const { weight: name, dtype, shape } = constant;
      const described = this.described.get(name);
      if (!described || described.bytes < byteSize(dtype, shape))
        throw new PackageError(
          `its program needs the weight '${name}', which is missing or too short`,
          this.where,
          "Clear the site's data.",
        );
      if (!this.weights.has(name)) await this.fill(new Map([[name, described]]));
      this.constants.set(
        name,
        new NumberTensor(dtype, shape, undefined, this.weights.address(name).address),
      );
    }
    this.programs.set(keyOf(program), program);
  }

  /** Notes where weights are; those that Python sent along are taken over. */
  private describe(weights: Weight[], sent: Map<string, Uint8Array>): void {
    for (const w of weights) {
      this.described.set(w.name, w);
      if (w.file !== CONSTANTS || this.weights.has(w.name)) continue;
      this.weights.add({ weights: new Map([[w.name, w]]) });
      this.engine
        .bytes(this.weights.address(w.name).address, w.bytes)
        .set(sent.get(CONSTANTS)!.subarray(w.offset, w.offset + w.bytes));
    }
  }

  /**
   * Takes memory for weights and copies them there from the model's files: each file is read once,
   * in order.
   */
  private async fill(wanted: Map<string, Weight>): Promise<void> {
    this.weights.add({ weights: wanted });
    try {
      for (const [file, extents] of this.weights.extents({ weights: wanted })) {
        const blob = await this.compiling?.files.blob(file);
        if (!blob)
          throw new EngineError(
            `weights lie in '${file}', which is not there`,
            this.where,
            "This is a mistake in Edgewise; please report it.",
          );
        await gather(blob, extents, file);
      }
    } catch (e) {
      for (const name of wanted.keys()) this.weights.drop(name);
      throw e;
    }
  }

  /**
   * `release`: lets go of weights that no run reads and that the model's files still have; a
   * package's only with its last plan, since nobody could read them again.
   */
  private async load(
    info: InferencePlan,
    inputs: readonly string[],
    data: Uint8Array | undefined,
    notes: Uint8Array | undefined,
    release: boolean,
  ): Promise<LoadedPlan> {
    const { engine, weights } = this;
    const where = `${this.where}, ${info.file}`;
    const numbers = Array.from(info.numbers, ([name, value]) => ({ name, value }));
    if (!info.file || !data)
      return { info, plan: undefined, where, inputs: [], outputs: [], numbers };
    const plan = engine.loadPlan(data, where, info.file, notes);
    const loaded: LoadedPlan = { info, plan, where, ...slotsOf(info, inputs), numbers };
    try {
      const computes = !weights.hasComputed(info.slots);
      const needed = Array.from(info.slots.entries()).filter(
        ([slot, { kind }]) => kind === "weight" && (computes || engine.inRuns(plan, slot)),
      );
      const gone = needed
        .filter(([, { name }]) => !weights.has(name))
        .map(([, { name }]): [string, Weight] => [name, this.described.get(name)!]);
      if (gone.length) await this.fill(new Map(gone));
      for (const [slot, { name }] of needed)
        engine.bind(
          plan,
          slot,
          weights.address(name).address,
          weights.address(name).bytes,
          `${where}, slot '${name}'`,
        );
      const others = Array.from(this.parts.values(), (p) => p.plans)
        .flat()
        .flatMap((one) =>
          one.plan === undefined
            ? []
            : [{ plan: one.plan, slots: one.info.slots, where: one.where }],
        );
      weights.compute(
        [{ plan, slots: info.slots, where }, ...others],
        release,
        (name) => this.constants.has(name) || this.described.get(name)?.file === CONSTANTS,
      );
    } catch (e) {
      this.release(loaded);
      throw e;
    }
    return loaded;
  }

  private release({ plan }: LoadedPlan): void {
    if (plan !== undefined) this.engine.freePlan(plan);
  }
}

/** What a program is of, as the driver asks for it. */
function keyOf({ json }: Program): string {
  const origin = json.origin as Record<string, Json>;
  if (!origin.op) return JSON.stringify(origin);
  const { label, ...rest } = origin.op as Record<string, Json>;
  return JSON.stringify(rest);
}

function fail(name: string, has: readonly ValueInfo[]): never {
  throw new InputError(
    "the model has no such output",
    `fetch '${name}'`,
    `It has ${has.map((o) => o.name).join(", ")}.`,
  );
}
