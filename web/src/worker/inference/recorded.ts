// Recorded runs: a run of a graph that is one plan is recorded when the driver has made it. From
// then on, feeds of these types and shapes, and with the same numbers where the plan depends on
// them, are copied to the engine, unless they are there, the plan is run, and the outputs that do
// not stay are copied out. Everything else is the driver's.

import { MAX_SHAPE_NUMBERS } from "../../gen/session.ts";
import type { RunRequest, WireValue } from "../../protocol/inference.ts";
import type { PlanLibrary } from "./library.ts";
import type { PoolBlock } from "./memory.ts";
import { bindTo, type LoadedPlan, MAX_PLANS, registersOf } from "./part.ts";
import type { GraphProgram, PartUnit } from "./program.ts";
import type { Outgoing } from "./spare.ts";
import { byteSize, NumberTensor, type RunValue, sameDims } from "./values.ts";

type Data = Extract<WireValue, { data: Uint8Array<ArrayBuffer> }>;

/** The tensors that stay in the engine. */
export interface Staying {
  /** The tensor of a number; undefined if there is none. */
  find(id: number): NumberTensor | undefined;
  /**
   * Adds outputs, with a reference each, and returns their numbers.
   * @param copied whether the page has its own copy of each
   */
  add(outputs: readonly { v: NumberTensor; copied: boolean }[]): number[];
}

/** A feed: what it must be, so that the recorded run is right for it. */
interface Fed {
  readonly name: string;
  readonly type: string;
  readonly dims: readonly number[];
  readonly bytes: number;
  /** Whether it is a tensor that stays in the engine. */
  readonly stays: boolean;
  /** Its bytes, where the plan depends on them. */
  readonly same: Uint8Array | undefined;
}

/** Whether an output is copied to the page, stays in the engine, or both. */
type Way = "copied" | "pinned" | "both";

/** A requested output: what an output slot holds, a number known when compiling, or a feed. */
type Result =
  | {
      readonly type: string;
      readonly dims: number[];
      readonly slot: number;
      readonly bytes: number;
      readonly way: Way;
    }
  | { readonly type: string; readonly dims: number[]; readonly data: Uint8Array<ArrayBuffer> }
  | { readonly fed: string };

/** The recorded runs of a model, by outputs, types and shapes; the last used first. */
export class RecordedRuns {
  private readonly kept: RecordedRun[] = [];

  constructor(
    private readonly library: PlanLibrary,
    private readonly staying: Staying,
  ) {}

  /** The recorded run of a request; undefined: the driver must run it. */
  find(request: RunRequest): RecordedRun | undefined {
    const i = this.kept.findIndex((run) => run.fits(request));
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
    const run = recorded(this.library, this.staying, request, program, fed, found);
    if (!run) return;
    this.kept.unshift(run);
    this.kept.splice(MAX_PLANS);
  }
}

/** A run of one plan for feeds of given types and shapes. */
class RecordedRun {
  constructor(
    private readonly library: PlanLibrary,
    private readonly staying: Staying,
    private readonly program: GraphProgram,
    private readonly unit: PartUnit,
    /** Indices of the inputs whose numbers are those of the feeds. */
    private readonly needs: readonly number[],
    private readonly loaded: LoadedPlan,
    /** As it was recorded: the outputs, and those that stay. */
    private readonly request: Pick<RunRequest, "outputs" | "pinned" | "kept">,
    private readonly feeds: readonly Fed[],
    private readonly registers: readonly number[],
    private readonly results: readonly Result[],
  ) {}

  /** Whether these outputs are requested, of the same types and shapes, in the same places. */
  fits({ feeds, outputs, pinned, kept }: RunRequest): boolean {
    const { request } = this;
    if (
      !sameNames(outputs, request.outputs) ||
      !sameNames(pinned ?? [], request.pinned ?? []) ||
      !sameNames(kept?.names ?? [], request.kept?.names ?? [])
    )
      return false;
    for (const { name, type, dims, bytes, stays, same } of this.feeds) {
      const v = feeds[name] as Partial<Data> | null | undefined;
      if (v?.type !== type || !Array.isArray(v.dims) || !sameDims(v.dims, dims)) return false;
      const id = stayingAs(v as WireValue);
      if ((id !== undefined) !== stays) return false;
      if (id !== undefined) {
        const there = this.staying.find(id);
        // a tensor of this model, whatever the page says of it
        if (!there?.block || there.type !== type || there.bytes !== bytes) return false;
      } else if (!(v.data instanceof Uint8Array) || v.data.length !== bytes) return false;
      else if (same) for (let i = 0; i < bytes; i++) if (v.data[i] !== same[i]) return false;
    }
    return Object.keys(feeds).length === this.feeds.length;
  }

  /** Whether the model would still use its plan, which is then the last one to be dropped. */
  lives(): boolean {
    const { library, program, unit, needs, loaded } = this;
    return (
      program.units[0] === unit &&
      sameDims(unit.needs, needs) &&
      !unit.beyond.length &&
      library.part(unit.part).use(loaded)
    );
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
        const v = feeds[input.name]!;
        const id = stayingAs(v);
        const there = id === undefined ? undefined : this.staying.find(id)!;
        const bytes = there?.bytes ?? (v as Data).data.length;
        // of a plan for a range of lengths, the slot is as large as the largest one needs
        const room = loaded.follows.length ? Math.max(bytes, input.bytes) : bytes;
        let buffer = there?.buffer;
        if (there && buffer!.bytes >= room) {
          there.block!.retain(); // the page may drop it while outputs are read
          taken.push(there.block!);
        } else {
          const before = buffer;
          ({ buffer } = take(room, input.where));
          if (before) device.copy(before, buffer, bytes);
          else if (bytes) device.write(buffer, (v as Data).data);
        }
        bindTo(device, loaded, input, buffer!);
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
      "slot" in r && r.way !== "pinned" ? [[blocks[r.slot]!.buffer, r.bytes] as const] : [],
    );
    const all = device.readAll && ranges.length !== 1 ? await device.readAll(ranges) : undefined;
    const values: WireValue[] = [];
    const stay: { v: NumberTensor; copied: boolean; as: (id: number) => void }[] = [];
    let at = 0;
    for (const r of this.results) {
      if ("fed" in r) {
        values.push({ fed: r.fed });
        continue;
      }
      if ("slot" in r && r.way === "pinned") {
        const value = { type: r.type, dims: [...r.dims], pinned: 0 };
        stay.push({ v: held(r, blocks), copied: false, as: (id) => (value.pinned = id) });
        values.push(value);
        continue;
      }
      let data: Uint8Array<ArrayBuffer>;
      if ("data" in r) data = r.data.slice();
      else {
        const [buffer, bytes] = ranges[at]!;
        data = all ? all[at]! : await device.read(buffer, 0, bytes);
        at++;
      }
      const value: Data = { type: r.type, dims: [...r.dims], data: outgoing.move(data) };
      if ("slot" in r && r.way === "both")
        stay.push({ v: held(r, blocks), copied: true, as: (id) => (value.keep = id) });
      values.push(value);
    }
    // only now: the page gets no numbers of a run that fails while its outputs are read
    for (const { v } of stay) v.block!.retain();
    for (const [i, id] of this.staying.add(stay).entries()) stay[i]!.as(id);
    return values;
  }
}

/** An output that stays, without a reference to its block. */
const held = (
  { type, dims, slot }: { type: string; dims: readonly number[]; slot: number },
  blocks: readonly PoolBlock[],
): NumberTensor => new NumberTensor(type, dims, undefined, blocks[slot]!.buffer, blocks[slot]);

/** The number of a feed that stays in the engine; undefined if it comes from the page. */
function stayingAs(v: WireValue): number | undefined {
  if (!v) return undefined;
  return "pinned" in v ? v.pinned : "keep" in v ? v.keep : undefined;
}

function sameNames(a: readonly string[], b: readonly string[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** A RecordedRun for the arguments of RecordedRuns.add; undefined if it must stay the driver's. */
function recorded(
  library: PlanLibrary,
  staying: Staying,
  request: RunRequest,
  program: GraphProgram,
  fed: ReadonlyMap<RunValue, string>,
  found: readonly RunValue[],
): RecordedRun | undefined {
  const [unit, ...more] = program.units;
  // there are further units, or numbers that grow from run to run
  if (unit?.kind !== "part" || more.length || unit.beyond.length) return undefined;
  const given = new Map(Array.from(fed, ([v, name]) => [name, v]));
  for (const [name, v] of given)
    if (v.kind !== "tensor" || !(stayingAs(request.feeds[name]!) === undefined ? v.data : v.block))
      return undefined;
  const values = unit.inputs.map((name) => given.get(name) as NumberTensor);
  if (values.includes(undefined as never)) return undefined;
  const known = new Map<number, Uint8Array>();
  for (const i of unit.needs) {
    const { data, count } = values[i]!;
    if (!data || count > MAX_SHAPE_NUMBERS) return undefined;
    known.set(i, data.slice());
  }
  const loaded = library.part(unit.part).find(unit, values, known);
  // loops let messages in between, and seeds change: both are the driver's
  if (loaded?.plan === undefined || loaded.loops || loaded.inputs.some((i) => i.index < 0))
    return undefined;
  const results: Result[] = [];
  for (const [i, v] of found.entries()) {
    const result = resultOf(loaded, request, program.outputs[i]!, v, fed.get(v));
    if (!result) return undefined;
    results.push(result);
  }
  // as they were given, since a single element is fed as a scalar; copied, as the caller owns them
  const feeds = Array.from(given, ([name, v]) => {
    const wire = request.feeds[name]!;
    const { type, dims } = wire as Data;
    const { bytes } = v as NumberTensor;
    const same = known.get(unit.inputs.indexOf(name));
    return { name, type, dims: [...dims], bytes, stays: stayingAs(wire) !== undefined, same };
  });
  const { outputs, pinned = [], kept } = request;
  const asked = {
    outputs: [...outputs],
    pinned: [...pinned],
    kept: kept && { ...kept, names: [...kept.names] },
  };
  const registers = registersOf(loaded, values) ?? [];
  return new RecordedRun(
    ...([library, staying, program, unit, [...unit.needs]] as const),
    ...([loaded, asked, feeds, registers, results] as const),
  );
}

/** Where an output of a run comes from; undefined if its plan does not compute it. */
function resultOf(
  { outputs }: LoadedPlan,
  { pinned, kept }: RunRequest,
  name: string,
  v: RunValue,
  fed: string | undefined,
): Result | undefined {
  if (fed !== undefined) return { fed };
  if (v.kind !== "tensor") return undefined;
  const { type, data, bytes } = v;
  const dims = [...v.dims];
  const pins = pinned?.includes(name);
  if (data) return pins ? undefined : { type, dims, data };
  const slot = outputs.findIndex(({ names }) => names.some((n) => n.name === name));
  // an output that was converted after the plan has another type
  const of = outputs[slot]?.names.find((n) => n.name === name);
  if (of?.dtype !== type || !bytes) return undefined;
  const both = kept?.names.includes(name) && bytes >= kept.bytes;
  const way: Way = pins ? "pinned" : both ? "both" : "copied";
  return { type, dims, slot, bytes: byteSize(type, dims), way };
}
