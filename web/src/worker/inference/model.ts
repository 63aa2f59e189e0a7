// The worker's side of an InferenceSession: runs, and outputs that stay in the engine.

import type { Device } from "../../device/device.ts";
import type {
  OpenInfo,
  OpenRequest,
  RunRequest,
  ValueInfo,
  WireValue,
} from "../../protocol/inference.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import type { Warn } from "../../shared/files/cached.ts";
import { Driver } from "./driver.ts";
import { asDeclared } from "./feeds.ts";
import type { PlanLibrary } from "./library.ts";
import { RecordedRuns } from "./recorded.ts";
import type { Bounds } from "./runner.ts";
import { Outgoing, spareBuffers } from "./spare.ts";
import { byteSize, NumberTensor, type RunValue, release } from "./values.ts";
import { fromWire, together, toWire } from "./wire.ts";

/** The page has to send what it feeds, since the engine's copy was on a GPU that was lost. */
export class CopyLost extends Error {}

/** An InferenceSession in the worker. */
export class InferenceModel {
  private readonly driver: Driver;
  private readonly recorded: RecordedRuns;
  /** Outputs that stay here, by the number that the page uses for them. */
  private readonly pinned = new Map<number, NumberTensor>();
  private nextPinned = 1;
  /** Number of the next copy of an output; the page's copies of feeds are those from -1 down. */
  private nextKept = -(2 ** 40);
  /** Number of the first one: those before were on a GPU that was lost. */
  private firstPinned = 1;

  constructor(
    readonly library: PlanLibrary,
    readonly info: OpenInfo,
    private readonly request: Pick<
      OpenRequest,
      "max_loop_trips" | "max_compilations" | "max_run_seconds"
    >,
  ) {
    this.driver = new Driver(library);
    this.recorded = new RecordedRuns(library, {
      find: (id) => this.pinned.get(id),
      add: (outputs) => outputs.map(({ v, copied }) => this.stay(v, copied)),
    });
  }

  /** Takes the place of the same model on a GPU that was lost, with what stayed there. */
  follow(before: InferenceModel): void {
    this.firstPinned = this.nextPinned = before.nextPinned;
    this.nextKept = before.nextKept;
  }

  /** Whether outputs stay here, or copies of them. */
  get holds(): boolean {
    return this.pinned.size > 0;
  }

  /** The device that holds the model. */
  get device(): Device {
    return this.library.device;
  }

  /**
   * Computes the requested outputs, after checking the feeds. The session remains usable if a run
   * fails.
   * @param transfer receives the buffers to transfer to the page
   * @param signal aborts the run
   * @param warn receives the reason why compiled plans could not be stored
   */
  async run(
    request: RunRequest,
    transfer: Transferable[],
    signal: { readonly aborted: boolean } | undefined,
    warn: Warn,
  ): Promise<WireValue[]> {
    const { feeds, outputs, seed, drawn } = request;
    const outgoing = new Outgoing(transfer, request.parcel);
    const recorded = this.recorded.find(request);
    if (recorded) return recorded.run(feeds, outgoing);
    // must come first: later runs refer to these numbers, even if this run fails
    this.keepCopies(feeds);
    const wanted = this.check(feeds, outputs);
    const {
      max_loop_trips: maxLoopTrips,
      max_compilations: maxCompilations,
      max_run_seconds: maxRunSeconds,
    } = this.request;
    const bounds: Bounds = { maxLoopTrips, maxCompilations, maxRunSeconds, signal, seed, drawn };
    const python = this.library.compiling?.python;
    this.driver.begin(bounds);
    if (python) python.ending = () => this.driver.ending("");
    try {
      const values = this.inputs(feeds);
      // the driver consumes `values`
      const fed = new Map(Array.from(values, ([name, v]) => [v, name]));
      const overridden = this.info.overridable.map((i) => i.name).filter((n) => values.has(n));
      const program = await this.library.root(outputs, overridden, this.info);
      const found = await this.driver.start(program, values, wanted);
      const results = await this.results(found, fed, request, outgoing);
      this.recorded.add(request, program, fed, found);
      return results;
    } finally {
      for (const v of this.pinned.values()) v.refs = 1; // a failed run may have left other counts
      this.driver.finish([...this.pinned.values()]);
      if (python) python.ending = () => undefined;
      await this.storePlans(warn);
    }
  }

  /** The feeds as values of the model. */
  private inputs(feeds: Record<string, WireValue>): Map<string, RunValue> {
    const values = new Map<string, RunValue>();
    const { inputs, overridable } = this.info;
    for (const info of [...inputs, ...overridable.filter((i) => Object.hasOwn(feeds, i.name))]) {
      const given = feeds[info.name];
      const copied =
        given && "keep" in given && given.keep !== undefined && this.pinned.has(given.keep);
      let v = fromWire(
        copied ? { type: given.type, dims: given.dims, pinned: given.keep! } : given,
        info,
        `feed '${info.name}'`,
        (id) => this.pinned.get(id) ?? this.missing(id, `feed '${info.name}'`),
      );
      if (
        v.kind === "tensor" &&
        !this.library.compiling &&
        asDeclared(info.shape, [...v.dims]).length !== v.rank
      )
        v = v.view([]);
      values.set(info.name, v);
    }
    return values;
  }

  /** Converts outputs for the page; those that are feeds or stay in the engine are not read. */
  private async results(
    found: readonly RunValue[],
    fed: ReadonlyMap<RunValue, string>,
    { outputs, pinned, kept }: RunRequest,
    outgoing: Outgoing,
  ): Promise<WireValue[]> {
    const results: WireValue[] = [];
    const staying = new Map<number, NumberTensor>();
    const stays = (v: RunValue, i: number) => fed.has(v) || !!pinned?.includes(outputs[i]!);
    const reader = await together(
      this.device,
      found.filter((v, i) => !stays(v, i)),
    );
    for (const [i, v] of found.entries()) {
      const input = fed.get(v);
      if (input !== undefined) {
        results.push({ fed: input });
        continue;
      }
      if (v.kind !== "tensor" || !pinned?.includes(outputs[i]!)) {
        const result = await toWire(v, reader(v), outgoing);
        const keeps = v.kind === "tensor" && v.block && kept?.names.includes(outputs[i]!);
        if (keeps && v.bytes >= kept!.bytes && result && "data" in result)
          staying.set((result.keep = this.nextKept--), shared(v, found.indexOf(v) < i));
        results.push(result);
        continue;
      }
      const id = this.nextPinned++;
      staying.set(id, shared(v, found.indexOf(v) < i));
      results.push({ type: v.type, dims: [...v.dims], pinned: id });
    }
    // only now: the page gets no numbers of a run that fails while its outputs are read
    for (const [id, v] of staying) this.pinned.set(id, v);
    return results;
  }

  /** Keeps an output; returns its number. */
  private stay(v: NumberTensor, copied: boolean): number {
    const id = copied ? this.nextKept-- : this.nextPinned++;
    this.pinned.set(id, v);
    return id;
  }

  /** Stores what this run compiled for the next visit. */
  private async storePlans(warn: Warn): Promise<void> {
    const { made, learned } = this.library.news();
    const { compiling } = this.library;
    if (made.length && this.info.device.gpu) this.info.device = this.device.info;
    if (compiling && (made.length || learned))
      await compiling.kept?.add(
        this.info,
        this.library.descriptions,
        this.library.described,
        made,
        compiling.python.reads,
        warn,
      );
  }

  /**
   * Copies tensors to the engine, for this run and later ones. Invalid feeds are skipped here and
   * rejected by the checks of feeds.
   * @throws OutOfMemory
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
      const block = this.library.pool.take(data.length);
      this.device.write(block.buffer, data);
      this.pinned.set(keep, new NumberTensor(type, dims, undefined, block.buffer, block));
    }
  }

  /** Buffers of a run's feeds that are no longer referenced. */
  spare(request: RunRequest): ArrayBuffer[] {
    return spareBuffers(request, this.pinned.values());
  }

  /**
   * @throws CopyLost if a copy of a feed was on a GPU that was lost
   * @throws EngineError if an output was
   */
  private missing(id: number, where: string): undefined {
    if (id < 0) throw new CopyLost();
    if (id < this.firstPinned)
      throw new EngineError(
        "it stayed on a GPU that was lost",
        where,
        "Run the session again for it; outputs that are fetched are not lost.",
      );
  }

  /**
   * Reads an output that stayed here.
   * @throws InputError if it has been disposed of; EngineError if it was on a GPU that was lost
   */
  async read(id: number): Promise<Uint8Array<ArrayBuffer>> {
    const v = this.pinned.get(id) ?? this.missing(id, "Tensor");
    if (!v)
      throw new InputError(
        "it has been disposed of",
        "Tensor",
        "Read it before it is disposed of.",
      );
    return v.data ? v.data.slice() : v.read(this.device);
  }

  /** Frees outputs that stayed here. */
  drop(ids: readonly number[]): void {
    for (const id of ids) {
      const v = this.pinned.get(id);
      if (v && this.pinned.delete(id)) release(v);
    }
  }

  private check(feeds: Record<string, WireValue>, outputs: string[]): ValueInfo[] {
    const { inputs, overridable, outputs: has } = this.info;
    const known = [...inputs, ...overridable].map((i) => i.name);
    for (const name of Object.keys(feeds))
      if (!known.includes(name))
        throw new InputError(
          "the model has no such input",
          `feed '${name}'`,
          `It has ${known.join(", ")}.`,
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
}

/** An output that is kept. `again`: it is one before, too. */
const shared = (v: NumberTensor, again: boolean): NumberTensor => (again ? v.view(v.dims) : v);

function fail(name: string, has: readonly ValueInfo[]): never {
  throw new InputError(
    "the model has no such output",
    `fetch '${name}'`,
    `It has ${has.map((o) => o.name).join(", ")}.`,
  );
}
