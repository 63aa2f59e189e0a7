// A model of any kind in the worker: its plans, one for each set of input shapes, and what feeds and reads them. Plans come with the
// package, an earlier visit has kept them, or Python makes them when new shapes come (session/page.py); a graph that no plan covers
// (loops, shapes that follow from data) is run by Python, in Pyodide's own engine.

import { Checker, type Json, type Weight } from "../checker.ts";
import { checkTable, Weights, type Place } from "../decoder.ts";
import { Engine, withKernels, type EngineOptions, type Plan } from "../engine.ts";
import { Aborted, EngineError, InputError, ModelError, PackageError } from "../errors.ts";
import type { Urls } from "../env.ts";
import { fillBeside, notThere } from "../load.ts";
import { MAGIC, openPackage } from "../package.ts";
import { Compiler, MissingFile } from "../pyodide.ts";
import { NOTES } from "../recorder.ts";
import { seedOfRun } from "../seeds.ts";
import { BlobSource, gather, HandedSource, HttpSource, NotFound, type ByteSource, type Handed } from "../source.ts";
import { KeptSource, type Warn } from "../storage.ts";
import type { PlainTensor } from "../tensor.ts";
import { asDeclared, fits } from "./feeds.ts";
import { ModelFiles } from "./files.ts";
import { KeptPlans, MAX_PLANS, notesOf, type Found } from "./kept.ts";
import { CONSTANTS, parseInference, parsePlan, planKey, runKey, SIZES, type InferencePlan, type ValueInfo } from "./manifest.ts";

/** A model to open, as InferenceSession.create was called. */
export interface OpenRequest {
  /** An address, or a file; the bytes of a package are handed over. */
  model: string | Blob | Handed;
  /** Files beside it, by the names that the model calls them; addresses are fetched when they are asked for. */
  external: Record<string, Blob | string>;
  urls: Urls;
  flavour: EngineOptions["flavour"] | undefined;
  threads: number | undefined;
  /** Keep what is compiled in the browser's storage, and use what is there. */
  cache: boolean;
  /** Keep what is downloaded, too. */
  cache_files: boolean;
}

/** What the page knows of an open model. */
export interface OpenInfo { inputs: ValueInfo[]; outputs: ValueInfo[]; flavour: string; threads: number; whyNotThreads: string }

interface Loaded { info: InferencePlan; plan: Plan; slots: Map<string, Place>; owned: number[]; where: string }

/** Of a model that Python may compile more plans of. */
interface Compiling {
  files: ModelFiles;
  /** Undefined where nothing is to be kept. */
  kept: KeptPlans | undefined;
  urls: Urls;
  signal: AbortSignal;
  /** Once there is something to compile. */
  python: Compiler | undefined;
}

/** An InferenceSession in the worker. */
export class InferenceModel {
  private readonly plans = new Map<string, Loaded>();
  /** Of inputs whose numbers shapes follow from: they are part of a plan's key. */
  private readonly needs = new Set<string>();
  /** Where weights come from. */
  private readonly described = new Map<string, Weight>();
  /** Why Python runs the graph itself. */
  private driven: string | undefined;
  /** Number of the next plan: those that are kept have others. */
  private next = 0;

  private constructor(
    readonly engine: Engine, private readonly weights: Weights, private readonly where: string, readonly info: OpenInfo,
    /** Undefined where the model is a package. */
    private readonly compiling: Compiling | undefined,
  ) {}

  /** @throws ModelError, PackageError, InputError, EngineError, Aborted */
  static async open(request: OpenRequest, signal: AbortSignal, warn: Warn): Promise<InferenceModel> {
    const { model, urls, flavour, threads } = request;
    const options = { ...urls, ...(flavour === undefined ? {} : { flavour }), ...(threads === undefined ? {} : { threads }) };
    const packed = typeof model === "string" ? new URL(model).pathname.endsWith(".edge") : !(model instanceof Blob) || (await model.slice(0, 8).text()) === MAGIC;
    const fetching = (url: string) => (request.cache_files ? new KeptSource(url, { signal }, warn) : new HttpSource(url, { signal }));
    const start = () => {
      const opening = Engine.open({ ...options, full: !packed }); // any model: beside what Python takes the full engine is nothing
      opening.catch(() => undefined);
      return opening;
    };
    let opening = start();
    let python: Compiler | undefined;
    let files: ModelFiles | undefined;
    try {
      if (packed || !(typeof model === "string" || model instanceof Blob)) {
        const source = typeof model === "string" ? fetching(model) : model instanceof Blob ? new BlobSource(model, model instanceof File ? model.name : "model", { signal }) : new HandedSource(model, { signal });
        await source.open();
        return await InferenceModel.fromPackage(source, await opening, options).catch(async (e: unknown) => {
          if (e instanceof PackageError && source instanceof KeptSource) await source.forget(); // the next load fetches it anew
          throw e;
        });
      }
      files = new ModelFiles(model, request.external, fetching);
      await files.mark(files.name); // a model that is not there is told at once
      const kept = request.cache ? await KeptPlans.of(await opening, files) : undefined;
      const compiling: Compiling = { files, kept, urls, signal, python: undefined };
      const found = await kept?.find();
      if (found) {
        try {
          return await InferenceModel.fromKept(found, await opening, compiling);
        } catch (e) {
          if (e instanceof ModelError || e instanceof Aborted || e instanceof NotFound) throw e; // the network's, the file's, the visitor's doing
          await kept!.forget();
          (await opening).close(); // with all that was loaded
          opening = start();
        }
      }
      compiling.python = python = new Compiler(urls, signal);
      const info = await readModel(python, files);
      const engine = await opening;
      return new InferenceModel(engine, new Weights(engine, { weights: new Map() }), files.name, { ...info, ...engine.choice }, compiling);
    } catch (e) {
      python?.end();
      opening.then((engine) => engine.close(), () => undefined);
      throw e instanceof NotFound ? notThere(e) : e;
    } finally {
      files?.close();
    }
  }

  /** What an earlier visit compiled. Weights go from the network or the file into their places; Python is started by shapes that are new. */
  private static async fromKept({ opened, sources }: Found, engine: Engine, compiling: Compiling): Promise<InferenceModel> {
    const { manifest, files } = opened;
    const where = compiling.files.name;
    checkTable(engine, manifest, where);
    const { inputs, outputs, plans } = manifest.inference!;
    const weights = new Weights(engine, manifest);
    await fillBeside(opened, weights.extents(manifest, where), sources, where);
    const made = new InferenceModel(engine, weights, where, { inputs, outputs, ...engine.choice }, compiling);
    for (const weight of manifest.weights.values()) made.described.set(weight.name, weight);
    for (const plan of plans.slice(-MAX_PLANS)) {
      for (const name of plan.known.keys()) made.needs.add(name);
      made.next = Math.max(made.next, 1 + (Number(/\d+$/.exec(plan.file)?.[0]) || 0));
      made.plans.set(runKey(plan), await made.load(plan, files.get(plan.file)!, files.get(notesOf(plan.file)), plan === plans.at(-1)));
    }
    return made;
  }

  private static async fromPackage(source: ByteSource, base: Engine, options: EngineOptions): Promise<InferenceModel> {
    const where = source.name;
    const { manifest, files, finish } = await openPackage(source);
    checkTable(base, manifest, where);
    const { inference } = manifest;
    if (!inference) throw new PackageError(`its task is '${manifest.task}'`, where, "Load it with pipeline(); InferenceSession takes .onnx files and packages made with `edgewise build --dims`.");
    const engine = await withKernels(base, options, manifest.kernels, where);
    const weights = new Weights(engine, manifest);
    await finish(weights.extents(manifest, where));
    const made = new InferenceModel(engine, weights, where, { inputs: inference.inputs, outputs: inference.outputs, ...engine.choice }, undefined);
    for (const plan of inference.plans) {
      const lacks = inference.outputs.find((o) => !plan.outputs.has(o.name) && !plan.passed.has(o.name));
      if (lacks) throw new PackageError(`its plan '${plan.file}' does not compute the output '${lacks.name}'`, where, "Build the package again with `edgewise build`.");
      made.plans.set(planKey(plan.inputs), await made.load(plan, files.get(plan.file)!, files.get(NOTES), plan === inference.plans.at(-1)));
    }
    return made;
  }

  /** Computes the outputs of these names. Feeds are checked; a run that fails loses nothing. `seed`: of the run's random numbers. `warn`: what is compiled could not be kept. */
  async run(feeds: Record<string, PlainTensor>, outputs: string[], seed: bigint, warn: Warn): Promise<Record<string, PlainTensor>> {
    this.check(feeds, outputs);
    const of = this.info.inputs.map(({ name }): [string, PlainTensor] => [name, feeds[name]!]);
    if (this.driven !== undefined) return this.runInPython(of, outputs, seed);
    const declared = new Map(this.info.inputs.map(({ name, shape }) => [name, shape]));
    const shapes = of.map(([name, { type, dims }]): [string, { dtype: string; shape: number[] }] => [name, { dtype: type, shape: this.compiling ? dims : asDeclared(declared.get(name)!, dims) }]);
    const known = () => Array.from(this.needs, (n): [string, number[]] => [n, numbers(feeds[n]!)]);
    const key = () => (this.compiling ? runKey({ inputs: shapes, outputs: new Set(outputs), known: texts(known()) }) : planKey(shapes));
    let loaded = this.plans.get(key());
    if (!loaded) {
      if (!this.compiling) {
        const made = [...this.plans.values()].map(({ info }) => [...info.inputs].map(([n, i]) => `${n} ${i.dtype} [${i.shape.join(", ")}]`).join("; "));
        throw new InputError(`there is no plan for ${shapes.map(([n, i]) => `${n} ${i.dtype} [${i.shape.join(", ")}]`).join("; ")}`, this.where,
          `The package was built for ${made.join(" or ")}: feed such tensors, build it with more --dims, or give the page the .onnx file.`);
      }
      const plan = await this.compile(this.compiling, shapes, outputs, known, warn);
      if (!plan) return this.runInPython(of, outputs, seed);
      loaded = plan;
      this.plans.set(key(), loaded);
      for (const [old, one] of this.plans) {
        if (this.plans.size <= MAX_PLANS) break;
        this.plans.delete(old);
        this.release(one);
      }
    } else if (this.compiling) { // the latest last
      this.plans.delete(key());
      this.plans.set(key(), loaded);
    }
    for (const [name, { data }] of of) {
      const place = loaded.slots.get(name);
      if (place) this.engine.bytes(place.address, data.length).set(data);
    }
    if (loaded.info.seed !== undefined) this.engine.bytes(loaded.slots.get(loaded.info.seed)!.address, 8).set(new Uint8Array(BigInt64Array.of(seedOfRun(seed, 0)).buffer));
    this.engine.run(loaded.plan, loaded.where);
    return Object.fromEntries(outputs.map((name) => {
      const input = loaded.info.passed.get(name);
      if (input !== undefined) return [name, feeds[input]!];
      const { slot, dtype, shape, bytes } = loaded.info.outputs.get(name)!;
      return [name, { type: dtype, dims: shape, data: this.engine.bytes(loaded.slots.get(slot)!.address, bytes).slice() }];
    }));
  }

  private check(feeds: Record<string, PlainTensor>, outputs: string[]): void {
    const names = this.info.inputs.map((i) => i.name);
    const unknown = Object.keys(feeds).find((n) => !names.includes(n));
    if (unknown !== undefined) throw new InputError("the model has no such input", `feed '${unknown}'`, `It has ${names.join(", ")}.`);
    for (const { name, dtype, shape, type } of this.info.inputs) {
      const fed = feeds[name];
      if (!fed) throw new InputError("it is missing", `feed '${name}'`, `Feed ${names.join(", ")}.`);
      if (type !== "tensor") throw new InputError(`it is a ${type}`, `feed '${name}'`, "A page's session takes tensors; run such a model in Python.");
      if (fed.type !== dtype) throw new InputError(`its type is ${fed.type}, the model wants ${dtype}`, `feed '${name}'`, "Convert it.");
      if (!fits(shape, fed.dims))
        throw new InputError(`its dims are [${fed.dims.join(", ")}], the model wants [${shape!.map((d) => d ?? "?").join(", ")}]`, `feed '${name}'`, "Reshape it.");
      const bytes = fed.dims.reduce((n, d) => n * d, SIZES[fed.type] ?? NaN);
      if (fed.data.length !== bytes) throw new InputError(`it has ${fed.data.length} bytes, its type and dims take ${bytes}`, `feed '${name}'`, "Give data of the tensor's own type and size.");
    }
    const has = this.info.outputs.map((o) => o.name);
    for (const name of outputs) if (!has.includes(name)) throw new InputError("the model has no such output", `fetch '${name}'`, `It has ${has.join(", ")}.`);
    const other = this.info.outputs.find((o) => outputs.includes(o.name) && o.type !== "tensor");
    if (other) throw new InputError(`it is a ${other.type}`, `output '${other.name}'`, "A page's session gives tensors; fetch other outputs, or run the model in Python.");
  }

  /** Asks Python for a plan, and keeps it; undefined where the graph has to be run there. */
  private async compile({ files, kept }: Compiling, shapes: [string, { dtype: string; shape: number[] }][], outputs: string[], known: () => [string, number[]][], warn: Warn): Promise<Loaded | undefined> {
    const python = await this.python();
    for (;;) {
      const file = `plan/${this.next}`;
      const wanted = { of: "inference", call: "plan", feeds: Object.fromEntries(shapes.map(([n, i]) => [n, [i.dtype, i.shape]])), outputs, known: Object.fromEntries(known()), file };
      const { manifest, files: sent, reads } = await python.compile(new Map(), wanted, () => undefined);
      const reply = JSON.parse(manifest) as { plan?: Record<string, Json>; weights?: Weight[]; needs?: string[]; driven?: string };
      if (reply.needs) {
        for (const name of reply.needs) this.needs.add(name);
        continue;
      }
      if (reply.driven !== undefined) {
        this.driven = reply.driven;
        return undefined;
      }
      this.next++;
      this.describe(reply.weights!, sent);
      const at = new Checker(this.where);
      const info = parsePlan(at, { ...reply.plan!, known: Object.fromEntries(texts(known())) }, "the plan", sent, this.described, new Map());
      const data = sent.get(info.file)!;
      const notes = sent.get(NOTES);
      const loaded = await this.load(info, data, notes, true);
      await kept?.add(this.info, { plan: info, data, notes, weights: this.described, reads, constant: (name) => {
        const { address, bytes } = this.weights.address(name);
        return this.engine.bytes(address, bytes).slice();
      } }, warn);
      return loaded;
    }
  }

  /** Python with the model. */
  private async python(): Promise<Compiler> {
    const compiling = this.compiling!;
    if (!compiling.python) {
      const python = new Compiler(compiling.urls, compiling.signal);
      try {
        await readModel(python, compiling.files);
      } catch (e) {
        python.end();
        throw e;
      }
      compiling.python = python;
    }
    return compiling.python;
  }

  /** Notes where weights are; those that Python sent along are taken over. */
  private describe(weights: Weight[], sent: Map<string, Uint8Array>): void {
    for (const w of weights) {
      this.described.set(w.name, w);
      if (w.file !== CONSTANTS || this.weights.has(w.name)) continue;
      this.weights.add({ weights: new Map([[w.name, w]]) });
      this.engine.bytes(this.weights.address(w.name).address, w.bytes).set(sent.get(CONSTANTS)!.subarray(w.offset, w.offset + w.bytes));
    }
  }

  /** Takes memory for weights and copies them there from the model's files: each file is read once, in order. */
  private async fill(wanted: Map<string, Weight>): Promise<void> {
    this.weights.add({ weights: wanted });
    try {
      for (const [file, extents] of this.weights.extents({ weights: wanted })) {
        const blob = await this.compiling?.files.blob(file);
        if (!blob) throw new EngineError(`weights lie in '${file}', which is not there`, this.where, "This is a mistake in Edgewise; please report it.");
        await gather(blob, extents, file);
      }
    } catch (e) {
      for (const name of wanted.keys()) this.weights.drop(name);
      throw e;
    }
  }

  /** `release`: lets go of weights that no run reads and that the model's files still have; a package's only with its last plan, since nobody could read them again. */
  private async load(info: InferencePlan, data: Uint8Array, notes: Uint8Array | undefined, release: boolean): Promise<Loaded> {
    const { engine, weights } = this;
    const where = `${this.where}, ${info.file}`;
    const plan = engine.loadPlan(data, where, info.file, notes);
    const slots = new Map<string, Place>();
    const owned: number[] = [];
    try {
      info.slots.forEach(({ name, kind, bytes }, slot) => {
        if (kind === "weight" || kind === "computed") return;
        const place = { address: engine.alloc(bytes, `the ${kind} '${name}'`), bytes };
        owned.push(place.address);
        slots.set(name, place);
        engine.bind(plan, slot, place.address, place.bytes, `${where}, slot '${name}'`);
      });
      const computes = !weights.hasComputed(info.slots);
      const needed = Array.from(info.slots.entries()).filter(([slot, { kind }]) => kind === "weight" && (computes || engine.inRuns(plan, slot)));
      const gone = needed.filter(([, { name }]) => !weights.has(name)).map(([, { name }]): [string, Weight] => [name, this.described.get(name)!]);
      if (gone.length) await this.fill(new Map(gone));
      for (const [slot, { name }] of needed) engine.bind(plan, slot, weights.address(name).address, weights.address(name).bytes, `${where}, slot '${name}'`);
      const others = Array.from(this.plans.values(), (one) => ({ plan: one.plan, slots: one.info.slots, where: one.where }));
      weights.compute([{ plan, slots: info.slots, where }, ...others], release, (name) => this.described.get(name)?.file === CONSTANTS);
    } catch (e) {
      this.release({ info, plan, slots, owned, where });
      throw e;
    }
    return { info, plan, slots, owned, where };
  }

  private release({ plan, owned }: Loaded): void {
    this.engine.freePlan(plan);
    for (const address of owned) this.engine.free(address);
  }

  private async runInPython(feeds: [string, PlainTensor][], outputs: string[], seed: bigint): Promise<Record<string, PlainTensor>> {
    const data = new Map(feeds.map(([name, { data: bytes }]) => [name, new Blob([bytes])]));
    const { manifest, files } = await (await this.python()).compile(data, { of: "inference", call: "run", feeds: Object.fromEntries(feeds.map(([n, t]) => [n, [t.type, t.dims]])), outputs, seed: String(seed) }, () => undefined);
    const described = (JSON.parse(manifest) as { outputs: Record<string, [string, number[]]> }).outputs;
    return Object.fromEntries(Object.entries(described).map(([name, [type, dims]]) => [name, { type, dims, data: files.get(name)! }]));
  }
}

/** Lets Python read a model, and fetches what it asks for meanwhile. @throws ModelError, UnsupportedOp, Aborted */
async function readModel(python: Compiler, files: ModelFiles): Promise<{ inputs: ValueInfo[]; outputs: ValueInfo[] }> {
  await files.blob(files.name);
  for (;;) {
    try {
      const { manifest } = await python.compile(new Map(files.blobs), { of: "inference", call: "open", model_file: files.name }, () => undefined);
      const { inputs, outputs } = parseInference(new Checker(files.name), { ...(JSON.parse(manifest) as object), plans: [] }, new Map(), new Map(), new Map());
      return { inputs, outputs };
    } catch (e) {
      if (!(e instanceof MissingFile)) throw e;
      if (files.blobs.has(e.file) || !(await files.blob(e.file))) throw e.error;
    }
  }
}

/** Numbers in decimal, as keys and manifests have them. */
function texts(known: [string, number[]][]): [string, string[]][] {
  return known.map(([name, numbers]) => [name, numbers.map(String)]);
}

/** The numbers of a tensor that shapes follow from. */
function numbers({ type, data }: PlainTensor): number[] {
  const { buffer, byteOffset: at, length } = data;
  const wide = (a: BigInt64Array | BigUint64Array): number[] => Array.from(a, (x) => {
    if (!Number.isSafeInteger(Number(x))) throw new InputError(`${x} is no size`, "a feed that shapes depend on", "Check what is fed.");
    return Number(x);
  });
  switch (type) {
    case "int64": return wide(new BigInt64Array(buffer, at, length / 8));
    case "uint64": return wide(new BigUint64Array(buffer, at, length / 8));
    case "int32": return Array.from(new Int32Array(buffer, at, length / 4));
    case "float32": return Array.from(new Float32Array(buffer, at, length / 4));
    case "float64": return Array.from(new Float64Array(buffer, at, length / 8));
    case "bool": case "uint8": return Array.from(data);
    default: throw new InputError(`shapes depend on a tensor of type ${type}`, "a feed", "Run the model in Python.");
  }
}
