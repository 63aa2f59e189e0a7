// Executes programs: compiled parts, and between them what plans cannot do: loops, branches,
// sequences, strings (operators/). Mirrors python/edgewise/host/session/driver.py, with the same
// results. Needs no Python for anything that is already compiled.

import type { Buffer, Device, PlanHandle } from "../../device/device.ts";
import {
  INPUTS_PER_COMPILATION,
  LATEST_OPSET,
  MAX_COPIED_ITEMS,
  MAX_NESTING,
} from "../../gen/session.ts";
import type { ValueInfo } from "../../protocol/inference.ts";
import { Aborted, EdgewiseError, ModelError, OutOfMemory } from "../../shared/errors.ts";
import { RunSeeds } from "../../shared/seeds.ts";
import { pace } from "../../shared/share.ts";
import { tooManyTrips } from "../../shared/trips.ts";
import type { Pool, PoolBlock } from "./memory.ts";
import { NodeRun } from "./node.ts";
import { outputsOf } from "./operators/dispatch.ts";
import { type KnownBytes, knownBytes, type LoadedPlan, NOTHING_KNOWN, runPlan } from "./part.ts";
import type { GraphProgram, NodeUnit, PartUnit, Unit } from "./program.ts";
import type { Left } from "./python.ts";
import { type Bounds, type Library, type Runner, Scope } from "./runner.ts";
import { NumberTensor, type RunValue, release, retain, Sequence } from "./values.ts";

const BREATH_MS = 50; // interval of handling messages, such as an abort
const MIN_TRIPS = 64; // iterations of a plan's loops between two looks at the clock
const PLACED = 64; // number of placed tensors before released ones are removed

/** Executes programs; one run at a time. */
export class Driver implements Runner {
  readonly device: Device;
  readonly pool: Pool;
  private runs = 0;
  private depth = 0;
  private trips = 0;
  private breathed = 0;
  private compilations = 0;
  private copied = 0;
  private begun = 0;
  private bounds: Bounds = {
    maxLoopTrips: 0,
    maxCompilations: 0,
    maxRunSeconds: undefined,
    signal: undefined,
    seed: undefined,
  };
  private seeds = new RunSeeds(undefined);
  /** Tensors with data of their own that were copied to the device for this run. */
  private placed: NumberTensor[] = [];
  /** Size of `placed` at which released tensors are removed. */
  private mostPlaced = PLACED;

  constructor(readonly library: Library) {
    this.device = library.device;
    this.pool = library.pool;
  }

  /** Copies a tensor to the device for this run, if it is not there, and returns its buffer. */
  readonly place = (v: NumberTensor, where = ""): Buffer => {
    if (v.buffer) return v.buffer;
    const bytes = v.data!.length;
    const block = this.pool.take(bytes, where);
    v.block = block;
    v.buffer = block.buffer;
    if (this.placed.length >= this.mostPlaced) {
      this.placed = this.placed.filter((p) => p.buffer); // released ones have no buffer
      this.mostPlaced = Math.max(PLACED, 2 * this.placed.length);
    }
    this.placed.push(v);
    if (bytes) this.device.write(block.buffer, v.data!);
    return block.buffer;
  };

  /** The seed of the next plan that draws random numbers. */
  private readonly seed = (): NumberTensor =>
    new NumberTensor("int64", [1], new Uint8Array(BigInt64Array.of(this.seeds.next()).buffer));

  /** Starts a run. */
  begin(bounds: Bounds): void {
    this.runs++;
    this.depth = this.trips = this.compilations = this.copied = 0;
    this.begun = this.breathed = performance.now();
    this.bounds = bounds;
    this.seeds = new RunSeeds(bounds.seed, bounds.drawn);
  }

  /** Runs a whole model. Consumes the feeds. The outputs' memory is valid until `finish`. */
  async start(
    program: GraphProgram,
    feeds: Map<string, RunValue>,
    outputs: readonly ValueInfo[],
  ): Promise<RunValue[]> {
    const found = await this.call(program, feeds, undefined);
    for (let i = 0; i < found.length; i++) {
      const info = outputs[i]!;
      if (info.type !== "tensor" || info.dtype === "float16" || info.dtype === "bfloat16")
        found[i] = await this.declared(found[i]!, info);
    }
    return found;
  }

  /** Ends a run, successful or not, and frees all engine memory except that of `kept`. */
  finish(kept: readonly RunValue[] = []): void {
    for (const v of this.placed) {
      v.buffer = undefined;
      v.block = undefined;
    }
    this.placed = [];
    this.mostPlaced = PLACED;
    const blocks = new Map<PoolBlock, number>();
    for (const v of kept)
      if (v.kind === "tensor" && v.block) blocks.set(v.block, (blocks.get(v.block) ?? 0) + 1);
    this.pool.finish(blocks);
  }

  /** Executes a program and returns its outputs, one reference each. Consumes `values`. */
  async call(
    program: GraphProgram,
    values: Map<string, RunValue>,
    around: Scope | undefined,
  ): Promise<RunValue[]> {
    if (this.depth >= MAX_NESTING)
      throw new ModelError(
        "its functions and subgraphs are nested too deeply",
        program.where,
        "Export the model again.",
      );
    this.depth++;
    const scope = new Scope(values, around);
    let { units } = program;
    const done: number[] = [];
    for (let i = 0; i < units.length; i++) {
      const unit = units[i]!;
      if (unit.kind === "part") {
        const pending = this.part(program, unit, scope, done);
        const rest = pending && (await pending);
        if (rest) {
          units = rest;
          i = -1;
          continue;
        }
      } else await this.node(program, unit, scope);
      for (const n of unit.nodes) done.push(n);
      if (units.length > 1) {
        const breath = this.pause(unit.where);
        if (breath) await breath;
      }
      for (const name of unit.dead) scope.drop(name);
    }
    this.depth--;
    const out = program.outputs.map((name) => {
      const v = this.find(program, scope, name);
      if (!v)
        throw new ModelError(
          "no node computes it",
          `output '${name}' of '${program.where}'`,
          "Export the model again.",
        );
      return retain(v);
    });
    for (const v of scope.values.values()) release(v);
    return out;
  }

  /**
   * Executes a part. Asynchronous only if its shapes depend on data or it must be compiled. The
   * promise resolves to the remaining units of the program if it had to be partitioned anew.
   */
  private part(
    program: GraphProgram,
    unit: PartUnit,
    scope: Scope,
    done: readonly number[],
  ): Promise<Unit[] | undefined> | undefined {
    const values: RunValue[] = [];
    for (const name of unit.inputs) {
      const v = scope.find(name);
      if (!v)
        throw new ModelError(
          `an input '${name}' is computed by no node`,
          unit.where,
          "The graph is broken; export it again.",
        );
      values.push(v);
    }
    const part = this.library.part(unit.part);
    const run = (known: KnownBytes) =>
      this.runPart(program, unit, scope, values, done, part.find(unit, values, known));
    return unit.needs.length ? knownBytes(unit, values, this.device).then(run) : run(NOTHING_KNOWN);
  }

  private runPart(
    program: GraphProgram,
    unit: PartUnit,
    scope: Scope,
    values: RunValue[],
    done: readonly number[],
    found: LoadedPlan | undefined,
  ): Promise<Unit[] | undefined> | undefined {
    if (!found) return this.compiled(program, unit, scope, values, done);
    return this.runFound(found, unit, scope, values)?.then(() => undefined);
  }

  private runFound(
    found: LoadedPlan,
    unit: PartUnit,
    scope: Scope,
    values: RunValue[],
  ): Promise<void> | undefined {
    const { device, pool, place, seed, loop } = this;
    const set = (name: string, v: RunValue) => scope.set(name, v);
    return runPlan(device, pool, found, unit, values, place, seed, set, loop);
  }

  /**
   * Runs a plan with loops in parts, between which messages are handled.
   * @throws ModelError if there are too many iterations
   * @throws Aborted
   */
  private readonly loop = async (plan: PlanHandle, where: string): Promise<void> => {
    const { device } = this;
    if (!device.runSome || !device.limitTrips || device.watcher) return device.run(plan, where);
    const left = this.bounds.maxLoopTrips - this.trips;
    device.limitTrips(plan, left);
    for (let some = MIN_TRIPS; ; ) {
      const begun = performance.now();
      if (device.runSome(plan, where, some)) break;
      if (performance.now() - begun < BREATH_MS / 4) some *= 2;
      const { runs } = device;
      const breath = this.pause(where);
      if (breath) await breath;
      // What it had computed is lost if another session ran: it is done again, at once.
      if (device.runs !== runs) {
        device.run(plan, where);
        break;
      }
    }
    this.trips += device.limitTrips(plan, left);
  };

  private async compiled(
    program: GraphProgram,
    unit: PartUnit,
    scope: Scope,
    values: RunValue[],
    done: readonly number[],
  ): Promise<Unit[] | undefined> {
    this.compilations += 1 + Math.floor(unit.inputs.length / INPUTS_PER_COMPILATION);
    if (this.compilations > this.bounds.maxCompilations)
      throw new ModelError(
        `it needs more than ${this.bounds.maxCompilations} plans in one run`,
        unit.where,
        "Its shapes change in each round of a loop; if that is right, set " +
          "SessionOptions.max_compilations.",
      );
    const made = await this.library.compile(program, unit, values, () => [...done], this.runs);
    if (Array.isArray(made)) return made;
    await this.breathe(unit.where);
    await this.runFound(made, unit, scope, values);
    return undefined;
  }

  /** The value of a name, from the run or from the program's constants. */
  find(program: GraphProgram, scope: Scope, name: string): RunValue | undefined {
    const v = scope.find(name);
    if (v) return v;
    const constant = program.constants.get(name);
    return constant && ("weight" in constant ? this.library.weight(constant) : constant);
  }

  /** Executes a node that is not part of a plan. */
  private async node(program: GraphProgram, unit: NodeUnit, scope: Scope): Promise<void> {
    const inputs: (RunValue | undefined)[] = unit.inputs.map((name) => {
      if (!name) return undefined;
      const v = this.find(program, scope, name);
      if (!v)
        throw new ModelError(
          `its input '${name}' is computed by no node`,
          unit.where,
          "The graph is broken; export it again.",
        );
      return v;
    });
    while (inputs.length && inputs.at(-1) === undefined) inputs.pop();
    const run = new NodeRun(this, program, unit, scope, inputs);
    let outs: (RunValue | undefined)[];
    try {
      outs = await outputsOf(run);
    } catch (e) {
      if (e instanceof RangeError)
        throw new OutOfMemory(
          `out of memory (${e.message})`,
          unit.where,
          "Use a smaller batch, sequence or model.",
        );
      if (e instanceof EdgewiseError && !e.where)
        throw new (
          e.constructor as new (
            what: string,
            where: string,
            remedy: string,
          ) => EdgewiseError
        )(e.what, unit.where, e.remedy);
      throw e;
    }
    if (outs.length < unit.outputs.filter(Boolean).length)
      throw new ModelError(
        `it has ${unit.outputs.length} outputs, ${unit.op} gives ${outs.length}`,
        unit.where,
        "Export the model again.",
      );
    unit.outputs.forEach((name, i) => {
      const v = outs[i];
      if (name && v) scope.set(name, retain(v));
    });
    run.end();
  }

  /**
   * Executes a node as a program of its own.
   * @param more `like`: program and node whose attributes are used
   * @returns the outputs, one reference each
   */
  async single(
    op: string,
    domain: string,
    inputs: readonly (RunValue | undefined)[],
    wanted: readonly boolean[],
    attrs: Record<string, unknown>,
    more: { opset?: number; dtype?: string; label?: string; like?: [string, number] } = {},
  ): Promise<(RunValue | undefined)[]> {
    const present = inputs.map((v) => (v === undefined ? 0 : v.kind === "tensor" ? 2 : 1));
    const { label = "", ...rest } = more;
    const origin = JSON.stringify(
      { op, domain, present, wanted, attrs, opset: LATEST_OPSET, ...rest },
      (_, x: unknown) =>
        typeof x === "number" && !Number.isFinite(x)
          ? { float: String(x).replace("Infinity", "inf") }
          : x,
    );
    const program = await this.library.program(origin, () => ({
      op: { ...(JSON.parse(origin) as object), label },
    }));
    const values = new Map<string, RunValue>();
    inputs.forEach((v, i) => v && values.set(`x${i}`, retain(v)));
    const outs = await this.call(program, values, undefined);
    let at = 0;
    return wanted.map((w) => (w ? outs[at++] : undefined));
  }

  /** Converts an output to half precision if it is declared so; internally values are float32. */
  private async declared(v: RunValue, info: ValueInfo): Promise<RunValue> {
    const of = info.type === "optional" && info.elem ? info.elem : info;
    if (v.kind === "sequence" && of.type === "sequence" && of.elem) {
      const inner = of.elem;
      const items: RunValue[] = [];
      // sequentially, since the driver and Python execute one thing at a time
      for (const x of v.items) items.push(await this.declared(retain(x), inner));
      const made = new Sequence(items);
      for (const x of items) release(x);
      release(v);
      return made;
    }
    if (
      v.kind !== "tensor" ||
      v.type !== "float32" ||
      (of.dtype !== "float16" && of.dtype !== "bfloat16")
    )
      return v;
    const [narrow] = await this.single("Identity", "", [v], [true], {}, { dtype: of.dtype });
    release(v);
    return narrow!;
  }

  /**
   * Counts an iteration of a loop.
   * @throws ModelError if there are too many
   * @throws Aborted
   */
  trip(where: string): Promise<void> | undefined {
    if (++this.trips > this.bounds.maxLoopTrips)
      throw tooManyTrips(this.bounds.maxLoopTrips, where);
    return this.trips & 7 ? undefined : this.pause(where);
  }

  /**
   * Counts items of a sequence that a node copies.
   * @throws ModelError if there are too many
   */
  copies(items: number, where: string): void {
    this.copied += items;
    if (this.copied > MAX_COPIED_ITEMS)
      throw new ModelError(
        `its sequence operators copied more than ${MAX_COPIED_ITEMS} items`,
        where,
        "Append behind the last item, which copies none; if a loop of the model grows, check " +
          "what ends it.",
      );
  }

  /**
   * Handles messages if that was not done recently.
   * @throws Aborted
   */
  private pause(where: string): Promise<void> | undefined {
    return performance.now() - this.breathed > BREATH_MS ? this.breathe(where) : undefined;
  }

  /**
   * Lets the event loop handle messages, such as an abort.
   * @throws Aborted
   */
  private async breathe(where: string): Promise<void> {
    await new Promise((resolve) => {
      setTimeout(resolve, 0);
    });
    await pace.wait();
    this.breathed = performance.now();
    const end = this.ending(where);
    if (end) throw end;
  }

  /** The reason to end the run; undefined if there is none. */
  ending(where: string): Aborted | undefined {
    const { signal, maxRunSeconds } = this.bounds;
    if (signal?.aborted) return new Aborted("the run was aborted by its signal", where, "");
    if (maxRunSeconds !== undefined && performance.now() - this.begun > 1000 * maxRunSeconds)
      return new Aborted(
        `the run took longer than ${maxRunSeconds} s`,
        where,
        "Raise SessionOptions.max_run_seconds, or check what makes it long.",
      );
    return undefined;
  }

  /** Executes a node in Python, within the remaining limits of this run. */
  async pythonNode(
    program: GraphProgram,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
  ): Promise<Map<string, RunValue>> {
    const { bounds, trips, compilations, pool } = this;
    const left: Left = {
      max_memory_bytes: pool.room,
      max_loop_trips: bounds.maxLoopTrips - trips,
      max_compilations: bounds.maxCompilations - compilations,
    };
    const reply = await this.library.pythonNode(program, unit, values, left);
    this.trips += reply.trips;
    this.compilations += reply.compilations;
    return reply.outputs;
  }
}
