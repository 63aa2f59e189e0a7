// Recorded runs: a run of a graph that is one plan, whose shapes depend on no data, is recorded
// when the driver has made it. From then on, feeds of these types and shapes are copied to the
// engine, the plan is run, and the outputs are copied out. Everything else is the driver's.

import type { RunRequest, WireValue } from "../../protocol/inference.ts";
import type { PlanLibrary } from "./library.ts";
import type { PoolBlock } from "./memory.ts";
import { bindTo, type LoadedPlan, MAX_PLANS, NOTHING_KNOWN, registersOf } from "./part.ts";
import type { GraphProgram, PartUnit } from "./program.ts";
import type { Outgoing } from "./spare.ts";
import { byteSize, type NumberTensor, type RunValue, sameDims } from "./values.ts";

type Data = Extract<WireValue, { data: Uint8Array<ArrayBuffer> }>;

/** A feed: what it must be, so that the recorded run is right for it. */
interface Fed {
  readonly name: string;
  readonly type: string;
  readonly dims: readonly number[];
  readonly bytes: number;
}

/** A requested output: what an output slot holds, a number known when compiling, or a feed. */
type Result =
  | {
      readonly type: string;
      readonly dims: number[];
      readonly slot: number;
      readonly bytes: number;
    }
  | { readonly type: string; readonly dims: number[]; readonly data: Uint8Array<ArrayBuffer> }
  | { readonly fed: string };

/** The recorded runs of a model, by outputs, types and shapes; the last used first. */
export class RecordedRuns {
  private readonly kept: RecordedRun[] = [];

  constructor(private readonly library: PlanLibrary) {}

  /** The recorded run of a request; undefined: the driver must run it. */
  find({ feeds, outputs, pinned, kept }: RunRequest): RecordedRun | undefined {
    if (pinned?.length || kept) return undefined;
    const i = this.kept.findIndex((run) => run.fits(feeds, outputs));
    if (i < 0) return undefined;
    const [run] = this.kept.splice(i, 1) as [RecordedRun];
    if (!run.lives()) return undefined;
    this.kept.unshift(run);
    return run;
  }

  /**
   * Records a run that the driver has made, if it can be.
   * @param fed its feeds, with their names
   * @param found its outputs
   */
  add(
    request: RunRequest,
    program: GraphProgram,
    fed: ReadonlyMap<RunValue, string>,
    found: readonly RunValue[],
  ): void {
    if (request.pinned?.length || request.kept) return;
    const run = recorded(this.library, request, program, fed, found);
    if (!run) return;
    this.kept.unshift(run);
    this.kept.splice(MAX_PLANS);
  }
}

/** A run of one plan for feeds of given types and shapes. */
class RecordedRun {
  constructor(
    private readonly library: PlanLibrary,
    private readonly program: GraphProgram,
    private readonly unit: PartUnit,
    private readonly loaded: LoadedPlan,
    private readonly outputs: readonly string[],
    private readonly feeds: readonly Fed[],
    private readonly registers: readonly number[],
    private readonly results: readonly Result[],
  ) {}

  /** Whether these outputs are requested, of the same types and shapes. */
  fits(feeds: Record<string, WireValue>, outputs: readonly string[]): boolean {
    if (outputs.length !== this.outputs.length) return false;
    for (let i = 0; i < outputs.length; i++) if (outputs[i] !== this.outputs[i]) return false;
    for (const { name, type, dims, bytes } of this.feeds) {
      const v = feeds[name] as Partial<Data> | null | undefined;
      if (
        v?.type !== type ||
        v.keep !== undefined ||
        !(v.data instanceof Uint8Array) ||
        v.data.length !== bytes ||
        !Array.isArray(v.dims) ||
        !sameDims(v.dims, dims)
      )
        return false;
    }
    return Object.keys(feeds).length === this.feeds.length;
  }

  /** Whether the model would still use its plan, which is then the last one to be dropped. */
  lives(): boolean {
    const { library, program, unit, loaded } = this;
    return program.units[0] === unit && !unit.needs.length && library.part(unit.part).use(loaded);
  }

  /**
   * Runs the plan on feeds that fit.
   * @param outgoing carries the outputs to the page
   */
  async run(feeds: Record<string, WireValue>, outgoing: Outgoing): Promise<WireValue[]> {
    const { library, loaded, registers } = this;
    const { device, pool } = library;
    const plan = loaded.plan!;
    const taken: PoolBlock[] = [];
    const take = (bytes: number, where: string): PoolBlock => {
      const block = pool.take(bytes, where);
      taken.push(block);
      return block;
    };
    try {
      for (const [k, place] of loaded.follows.entries())
        if (place) device.register(plan, k, registers[k]!);
      for (const input of loaded.inputs) {
        const { data } = feeds[input.name] as Data;
        // of a plan for a range of lengths, the slot is as large as the largest one needs
        const room = loaded.follows.length ? Math.max(data.length, input.bytes) : data.length;
        const { buffer } = take(room, input.where);
        if (data.length) device.write(buffer, data);
        bindTo(device, loaded, input, buffer);
      }
      const blocks = loaded.outputs.map((output) => {
        const block = take(output.bytes, output.where);
        bindTo(device, loaded, output, block.buffer);
        return block;
      });
      device.run(plan, loaded.where);
      return await this.read(blocks, outgoing);
    } finally {
      for (const block of taken) block.release();
      pool.next();
    }
  }

  /** Copies the outputs, at once where the device waits for each read. */
  private async read(blocks: readonly PoolBlock[], outgoing: Outgoing): Promise<WireValue[]> {
    const { device } = this.library;
    const ranges = this.results.flatMap((r) =>
      "slot" in r ? [[blocks[r.slot]!.buffer, r.bytes] as const] : [],
    );
    const all = device.readAll && ranges.length !== 1 ? await device.readAll(ranges) : undefined;
    const values: WireValue[] = [];
    let at = 0;
    for (const r of this.results) {
      if ("fed" in r) {
        values.push({ fed: r.fed });
        continue;
      }
      let data: Uint8Array<ArrayBuffer>;
      if ("data" in r) data = r.data.slice();
      else {
        const [buffer, bytes] = ranges[at]!;
        data = all ? all[at]! : await device.read(buffer, 0, bytes);
        at++;
      }
      values.push({ type: r.type, dims: [...r.dims], data: outgoing.move(data) });
    }
    return values;
  }
}

/** A RecordedRun for the arguments of RecordedRuns.add; undefined if it must stay the driver's. */
function recorded(
  library: PlanLibrary,
  request: RunRequest,
  program: GraphProgram,
  fed: ReadonlyMap<RunValue, string>,
  found: readonly RunValue[],
): RecordedRun | undefined {
  const [unit, ...more] = program.units;
  // what it computes depends on data, or there are further units
  if (unit?.kind !== "part" || more.length || unit.needs.length) return undefined;
  const given = new Map(Array.from(fed, ([v, name]) => [name, v]));
  for (const v of given.values()) if (v.kind !== "tensor" || !v.data) return undefined;
  const values = unit.inputs.map((name) => given.get(name) as NumberTensor);
  if (values.includes(undefined as never)) return undefined;
  const loaded = library.part(unit.part).find(unit, values, NOTHING_KNOWN);
  // loops let messages in between, and seeds change: both are the driver's
  if (loaded?.plan === undefined || loaded.loops || loaded.inputs.some((i) => i.index < 0))
    return undefined;
  const results: Result[] = [];
  for (const [i, v] of found.entries()) {
    const result = resultOf(loaded, program.outputs[i]!, v, fed.get(v));
    if (!result) return undefined;
    results.push(result);
  }
  // as they were given, since a single element is fed as a scalar; copied, as the caller owns them
  const feeds = Array.from(given.keys(), (name) => {
    const { type, dims, data } = request.feeds[name] as Data;
    return { name, type, dims: [...dims], bytes: data.length };
  });
  const outputs = [...request.outputs];
  const registers = registersOf(loaded, values) ?? [];
  return new RecordedRun(library, program, unit, loaded, outputs, feeds, registers, results);
}

/** Where an output of a run comes from; undefined if its plan does not compute it. */
function resultOf(
  { outputs }: LoadedPlan,
  name: string,
  v: RunValue,
  fed: string | undefined,
): Result | undefined {
  if (fed !== undefined) return { fed };
  if (v.kind !== "tensor") return undefined;
  const { type, data, bytes } = v;
  const dims = [...v.dims];
  if (data) return { type, dims, data };
  const slot = outputs.findIndex(({ names }) => names.some((n) => n.name === name));
  // an output that was converted after the plan has another type
  const of = outputs[slot]?.names.find((n) => n.name === name);
  return of?.dtype === type && bytes
    ? { type, dims, slot, bytes: byteSize(type, dims) }
    : undefined;
}
