// Answers what logic/speech/graphs.py asks for: runs graphs, keeps large values and results.
// Mirrors python/edgewise/host/pipelines/speech/graphs.py.

import type { Append, Feed, Give, Numbers, Run } from "../../logic/speech/graphs.ts";
import type { WireValue } from "../../protocol/inference.ts";
import type { TaskTensor } from "../../protocol/tasks.ts";
import { drive } from "../../shared/drive.ts";
import { arrayOf } from "../../shared/element-arrays.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { fromHalf, toHalf } from "../../shared/float16.ts";
import { seedOfRun } from "../../shared/seeds.ts";
import type { InferenceModel } from "../inference/model.ts";
import type { Graphs } from "./model.ts";

type Request = Run | Append | Give;
/** A value that stays in the engine, as an output of one graph. */
interface Pinned {
  type: string;
  dims: number[];
  pinned: number;
  model: InferenceModel;
}
type Value = TaskTensor | Pinned;

const size = (dims: readonly number[]): number => dims.reduce((n, d) => n * d, 1);

/** A call of logic that runs graphs. */
export class GraphHost {
  private runs = 0;
  private depth = 0;
  private readonly slots = new Map<string, Value>();
  private readonly results = new Map<string, { piece: TaskTensor; axis: "last" | "first" }[]>();

  constructor(
    private readonly graphs: Graphs,
    /** Of the call. */
    public signal: AbortSignal,
    private readonly seed?: bigint,
    /** The file of a graph, where rules have another name for it. */
    private readonly file: (graph: string) => string = (graph) => graph,
  ) {}

  /** Keeps a value. */
  put(name: string, value: Value): void {
    const before = this.slots.get(name);
    if (before && "pinned" in before) before.model.drop([before.pinned]);
    this.slots.set(name, value);
  }

  /** What a generator of requests returns. What was kept is freed. */
  drive<T>(steps: Generator<Request, T, never>): Promise<T> {
    return this.keeping(() =>
      drive(steps as Generator<Request, T, unknown>, (request) => this.answer(request)),
    );
  }

  /** Does work with several generators, and frees what was kept after the last one. */
  async keeping<T>(work: () => Promise<T>): Promise<T> {
    this.hold();
    try {
      return await work();
    } finally {
      this.release();
    }
  }

  /** Keeps slots until `release`. */
  hold(): void {
    this.depth++;
  }

  /** Frees what was kept, unless somebody else holds it. */
  release(): void {
    if (--this.depth) return;
    for (const value of this.slots.values())
      if ("pinned" in value) value.model.drop([value.pinned]);
    this.slots.clear();
  }

  /** Does what a request asks for. */
  async answer(request: Request): Promise<unknown> {
    if (request.kind === "run") return this.run(request);
    if (request.kind === "append") {
      const { to, axis, part } = request;
      const value = cut(await this.value(part.name), part.start, part.count);
      this.add(to, { ...value, dims: part.dims.length ? part.dims : value.dims }, axis);
    } else this.add(request.to, packed(request.numbers, request.numbers.dtype), "last");
    return null;
  }

  private add(to: string, piece: TaskTensor, axis: "last" | "first"): void {
    const list = this.results.get(to) ?? [];
    list.push({ piece, axis });
    this.results.set(to, list);
  }

  private async run({ graph, feeds, keep, read }: Run): Promise<Map<string, Numbers>> {
    if (this.signal.aborted) throw new Aborted("the call was aborted by its signal", graph, "");
    const file = this.file(graph);
    const model = await this.graphs.graph(file);
    const types = new Map(model.info.inputs.map(({ name, dtype }) => [name, dtype]));
    const given: Record<string, WireValue> = {};
    for (const [name, feed] of feeds)
      given[name] = await this.fed(feed, types.get(name) ?? "float32", model);
    const names = [...keep.keys(), ...read];
    const pinned = [...keep.keys()];
    const seed = this.seed === undefined ? undefined : seedOfRun(this.seed, this.runs++);
    const outputs = await this.graphs.run(file, given, names, pinned, seed, this.signal);
    const found = new Map<string, Numbers>();
    for (const [i, name] of names.entries()) {
      const value = tensorOf(outputs[i]!, given, name);
      const slot = keep.get(name);
      if (slot !== undefined && i < pinned.length) {
        this.put(slot, "pinned" in value ? { ...value, model } : value);
        found.set(name, { dims: value.dims, data: [], dtype: "", kind: "numbers" });
      } else found.set(name, numbersOf(value as TaskTensor));
    }
    return found;
  }

  /** The value of an input. */
  private async fed(feed: Feed, type: string, model: InferenceModel): Promise<WireValue> {
    if (feed.kind === "numbers") return packed(feed, type);
    const kept = this.slots.get(feed.name);
    if (feed.kind === "slot" && kept && "pinned" in kept && kept.model === model)
      if (kept.type === type)
        return { type, dims: feed.dims.length ? feed.dims : kept.dims, pinned: kept.pinned };
    const whole = await this.value(feed.name);
    const value = feed.kind === "part" ? cut(whole, feed.start, feed.count) : whole;
    const dims = feed.dims.length ? feed.dims : value.dims;
    return { ...cast(value, type), dims };
  }

  private async value(name: string): Promise<TaskTensor> {
    const found = this.slots.get(name);
    if (!found) {
      // one of the first axis
      const at = name.lastIndexOf("/");
      const { type, dims, data } = await this.value(name.slice(0, at));
      const step = data.byteLength / dims[0]!;
      const start = Number(name.slice(at + 1)) * step;
      return { type, dims: dims.slice(1), data: data.slice(start, start + step) };
    }
    if (!("pinned" in found)) return found;
    const { type, dims, pinned, model } = found;
    return { type, dims, data: await model.read(pinned) };
  }

  /** A result, which then begins anew. */
  take(name: string): TaskTensor | undefined {
    const made = this.result(name);
    this.results.delete(name);
    return made;
  }

  /** A result. Floats become float32. */
  result(name: string): TaskTensor | undefined {
    const pieces = this.results.get(name);
    if (!pieces) return undefined;
    const values = pieces.map(({ piece }) =>
      /^(b?float16|float64)$/.test(piece.type) ? cast(piece, "float32") : piece,
    );
    const { type, dims: first } = values[0]!;
    const whole = pieces[0]!.axis === "first" || first.length < 2;
    const axis = whole ? 0 : first.length - 1;
    const dims = first.slice();
    dims[axis] = values.reduce((n, { dims: of }) => n + of[axis]!, 0);
    const data = new Uint8Array(values.reduce((n, v) => n + v.data.byteLength, 0));
    const rows = whole ? 1 : size(dims.slice(0, -1));
    let at = 0;
    for (let row = 0; row < rows; row++)
      for (const { data: piece } of values) {
        const step = piece.byteLength / rows;
        data.set(piece.subarray(row * step, (row + 1) * step), at);
        at += step;
      }
    return { type, dims, data };
  }
}

/** An output; what was fed and is returned as it is stays what it was. */
function tensorOf(
  output: WireValue,
  given: Record<string, WireValue>,
  name: string,
): TaskTensor | Omit<Pinned, "model"> {
  const value = output && "fed" in output ? given[output.fed] : output;
  if (value && "dims" in value && !("strings" in value)) return value as TaskTensor;
  throw new InputError(`its output '${name}' is no tensor`, "model", "Export the model again.");
}

/** The numbers of a tensor. */
export function numbersOf(value: TaskTensor): Numbers {
  const { type, dims, data } = value;
  const of = arrayOf(type)!;
  const { buffer } = data.slice();
  const elements = new of(buffer as ArrayBuffer);
  const halves = type === "float16" ? Array.from(elements as Uint16Array, fromHalf) : undefined;
  const numbers =
    halves ??
    (type === "float32"
      ? (elements as Float32Array)
      : Array.from(elements as ArrayLike<unknown>, Number));
  return { dims, data: numbers, dtype: type, kind: "numbers" };
}

/** A tensor of numbers; without data zeros. */
export function packed({ dims, data }: Pick<Numbers, "dims" | "data">, type: string): TaskTensor {
  const given = Array.from(data as ArrayLike<number>);
  const numbers = given.length ? given : new Array<number>(size(dims)).fill(0);
  return { type, dims, data: new Uint8Array(elements(numbers, type).buffer as ArrayBuffer) };
}

function elements(numbers: readonly number[], type: string): ArrayBufferView {
  if (type === "int64") return BigInt64Array.from(numbers, BigInt);
  if (type === "uint64") return BigUint64Array.from(numbers, BigInt);
  if (type === "float16") return Uint16Array.from(numbers, toHalf);
  return (arrayOf(type) as Float32ArrayConstructor).from(numbers);
}

function cast(value: TaskTensor, type: string): TaskTensor {
  return value.type === type ? value : packed(numbersOf(value), type);
}

/** A part of the last axis of a value, with zeros beyond its ends. */
function cut(value: TaskTensor, start: number, count: number): TaskTensor {
  const { type, dims, data } = value;
  const length = dims.at(-1) ?? 1;
  if (!start && count === length) return value;
  const rows = size(dims.slice(0, -1));
  const item = rows * length ? data.byteLength / (rows * length) : 0;
  const out = new Uint8Array(rows * count * item);
  const [first, last] = [Math.max(0, start), Math.max(0, Math.min(length, start + count))];
  for (let row = 0; row < rows; row++) {
    const from = row * length;
    const inner = data.subarray((from + first) * item, (from + Math.max(first, last)) * item);
    out.set(inner, (row * count + first - start) * item);
  }
  return { type, dims: [...dims.slice(0, -1), count], data: out };
}
