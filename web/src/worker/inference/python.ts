// Python as the compiler of one model: programs, plans of parts, and occasionally a single node.
// The other side is python/edgewise/host/session/inference_calls.py. The first request starts
// Python.

import { type Inference, records, type Weight } from "../../gen/schema.ts";
import { Checker } from "../../logic/manifest/checker.ts";
import type { Compiled } from "../../protocol/compiler.ts";
import type { ModelInfo } from "../../protocol/inference.ts";
import { type EdgewiseError, EngineError } from "../../shared/errors.ts";
import { MissingFile } from "../compiler-client.ts";
import type { Json } from "../package/container.ts";
import type { ModelFiles } from "./files.ts";
import { modelOf } from "./manifest.ts";
import {
  type Beyond,
  type GraphProgram,
  type NodeUnit,
  type PartUnit,
  parseBeyond,
  parseProgram,
  parseUnits,
  type Unit,
} from "./program.ts";
import {
  Nothing,
  NumberTensor,
  OnnxMap,
  type Reader,
  type RunValue,
  Sequence,
  StringTensor,
  toHex,
} from "./values.ts";

/** Executes requests: Pyodide in a worker; in tests, another Python. */
export interface PythonHost {
  /** Whether it can still be called. */
  readonly alive: boolean;
  compile(
    files: Map<string, Blob>,
    options: Record<string, unknown>,
    onStage: () => void,
  ): Promise<Compiled>;
  end(): void;
}

/** Remaining limits of a run, for a node that Python executes. */
export interface Left {
  max_memory_bytes: number;
  max_loop_trips: number;
  max_compilations: number;
}

/** Outputs of a node, and how much of `Left` it used. */
export interface NodeReply {
  outputs: Map<string, RunValue>;
  trips: number;
  compilations: number;
}

// Time that Python has to answer after the run has ended. Then it is terminated, and the next
// request starts it again.
const GRACE_MS = 1000;
const LOOK_MS = 50;
// Time without requests after which Python is ended: its memory is 100 MB and more, and starting it
// again for another shape takes a second.
const REST_MS = 30_000;

/** A compiled plan of a part. */
export interface CompiledPart {
  plan: Record<string, Json>;
  needs: number[];
  beyond: Beyond[];
  askers: number[];
  weights: Weight[];
  files: Map<string, Uint8Array<ArrayBuffer>>;
}

/**
 * Python's answer for a part: a plan, the inputs whose contents it needs, or the program's new
 * partition.
 */
export type PartReply =
  | CompiledPart
  | { needs: number[]; beyond: Beyond[] }
  | { program: GraphProgram; rest: Unit[]; weights: Weight[] };

/** Python, with one model. */
export class Python {
  /** Ranges of the model's files read so far. */
  reads: Compiled["reads"] = {};
  /** The reason to end the current run; undefined if there is none. */
  ending: () => EdgewiseError | undefined = () => undefined;
  private host: PythonHost | undefined;
  private opening: Promise<ModelInfo> | undefined;
  /** Requests on their way. */
  private asked = 0;
  private resting: ReturnType<typeof setTimeout> | undefined;
  private readonly checker: Checker;
  /** Distinguishes the models of one Python. */
  private readonly number = Python.count++;
  private static count = 0;

  /**
   * @param start starts Python
   * @param files files of the model
   * @param kept descriptions of stored programs
   * @param target what to compile for
   */
  constructor(
    private readonly start: () => PythonHost,
    private readonly files: ModelFiles,
    private readonly kept: () => Record<string, Json>[] = () => [],
    private readonly target: () => Promise<"cpu" | "webgpu"> = async () => "cpu",
  ) {
    this.checker = new Checker(files.name, records());
  }

  /**
   * Loads the model, once.
   * @throws ModelError, UnsupportedOp, Aborted
   */
  open(): Promise<ModelInfo> {
    return (this.opening ??= this.busy(this.read()).catch((e: unknown) => {
      this.end();
      throw e;
    }));
  }

  /** Waits for a request; ends Python when there was none for a while. */
  private async busy<T>(request: Promise<T>): Promise<T> {
    this.asked++;
    try {
      return await request;
    } finally {
      clearTimeout(this.resting);
      if (!--this.asked && this.host) {
        this.resting = setTimeout(() => this.asked || this.end(), REST_MS);
        (this.resting as { unref?(): void }).unref?.(); // Node may end before
      }
    }
  }

  private async read(): Promise<ModelInfo> {
    const host = (this.host = this.start());
    const { files } = this;
    await files.blob(files.name);
    const target = await this.target();
    const { number: model } = this;
    const request = { of: "inference", call: "open", model, model_file: files.name, target };
    for (;;) {
      try {
        const { manifest } = await host.compile(
          new Map(files.blobs),
          { ...request, kept: this.kept() },
          () => undefined,
        );
        const json = { ...(JSON.parse(manifest) as object), plans: [] };
        this.checker.check_record(json, "Inference", "inference");
        return modelOf(json as unknown as Inference);
      } catch (e) {
        if (!(e instanceof MissingFile)) throw e;
        if (files.blobs.has(e.file) || !(await files.blob(e.file))) throw e.error;
      }
    }
  }

  /** Ends Python; the next request starts it again. */
  end(): void {
    clearTimeout(this.resting);
    this.host?.end();
    this.host = this.opening = undefined;
  }

  private ask(
    options: Record<string, unknown>,
    files = new Map<string, Blob>(),
  ): Promise<{ reply: Record<string, Json>; files: Map<string, Uint8Array<ArrayBuffer>> }> {
    return this.busy(this.asking(options, files));
  }

  private async asking(
    options: Record<string, unknown>,
    files: Map<string, Blob>,
  ): Promise<{ reply: Record<string, Json>; files: Map<string, Uint8Array<ArrayBuffer>> }> {
    if (this.host && !this.host.alive) this.end(); // it was another model's, too
    await this.open();
    const end = this.ending();
    if (end) throw end;
    const host = this.host!;
    let answer: Compiled;
    try {
      answer = await this.within(
        host.compile(files, { of: "inference", model: this.number, ...options }, () => undefined),
      );
    } catch (e) {
      if (!host.alive && host === this.host) this.end(); // the next request starts another one
      throw e;
    }
    const { manifest, files: made, reads } = answer;
    this.reads = reads;
    return { reply: JSON.parse(manifest) as Record<string, Json>, files: made };
  }

  /**
   * Waits for an answer, at most until GRACE_MS after the end of the run.
   * @throws Aborted
   */
  private async within<T>(answer: Promise<T>): Promise<T> {
    let timer: ReturnType<typeof setInterval> | undefined;
    let left = GRACE_MS / LOOK_MS;
    const ended = new Promise<never>((_, reject) => {
      timer = setInterval(() => {
        const end = this.ending();
        if (!end || --left > 0) return;
        reject(end);
        this.end();
      }, LOOK_MS);
    });
    try {
      return await Promise.race([answer, ended]);
    } finally {
      clearInterval(timer);
      answer.catch(() => undefined);
    }
  }

  /** Describes the program of an origin, see python/edgewise/host/session/described.py. */
  async program(
    origin: Record<string, unknown>,
  ): Promise<{ program: GraphProgram; weights: Weight[] }> {
    const { reply } = await this.ask({ call: "program", origin });
    const { weights, ...json } = reply;
    return {
      program: parseProgram(this.checker, json, "a program"),
      weights: weights as unknown as Weight[],
    };
  }

  /**
   * Compiles a plan of a part.
   * @param values inputs of the part
   * @param known contents of inputs that shapes depend on
   * @param done indices of the nodes that this run has executed
   * @param run number of the run
   * @param file name of the plan
   * @param fixed compile for these shapes only, not for a range of lengths
   */
  async part(
    program: GraphProgram,
    unit: PartUnit,
    values: readonly RunValue[],
    known: ReadonlyMap<string, Uint8Array>,
    done: number[],
    run: number,
    file: string,
    fixed: boolean,
  ): Promise<PartReply> {
    const described = Object.fromEntries(
      unit.inputs.map((name, i) => {
        const v = values[i]!;
        const bytes = known.get(name);
        return [
          name,
          v.kind === "tensor" ? [v.type, v.dims, ...(bytes ? [toHex(bytes)] : [])] : null,
        ];
      }),
    );
    const { reply, files } = await this.ask({
      call: "part",
      program: program.name,
      part: unit.part,
      values: described,
      done,
      run,
      file,
      fixed,
    });
    const weights = (reply.weights ?? []) as unknown as Weight[];
    if (reply.split)
      return {
        program: parseProgram(this.checker, reply.split, "a program"),
        rest: parseUnits(this.checker, reply.rest, "the rest"),
        weights,
      };
    const needs = reply.needs as number[];
    const beyond = parseBeyond(this.checker, reply.beyond!, "beyond", unit.inputs.length);
    if (!reply.plan) return { needs, beyond };
    return {
      plan: reply.plan as Record<string, Json>,
      needs,
      beyond,
      askers: reply.askers as number[],
      weights,
      files,
    };
  }

  /** Executes a node without an implementation here. `values`: everything that it reads. */
  async node(
    program: GraphProgram,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
    left: Left,
    device: Reader,
  ): Promise<NodeReply> {
    const blobs = new Map<string, Blob>();
    const described: Record<string, unknown> = {};
    for (const [name, v] of values) described[name] = await encoded(v, blobs, device);
    const { reply, files } = await this.ask(
      { call: "node", program: program.name, node: unit.nodes[0], values: described, left },
      blobs,
    );
    const outputs = new Map(
      Object.entries(reply.outputs as Record<string, Json>).map(([name, v]) => [
        name,
        decoded(v, files),
      ]),
    );
    return { outputs, trips: reply.trips as number, compilations: reply.compilations as number };
  }
}

/** Serializes a value for `_decoded` in page.py. */
async function encoded(v: RunValue, blobs: Map<string, Blob>, device: Reader): Promise<unknown> {
  switch (v.kind) {
    case "nothing":
      return null;
    case "strings":
      return { strings: v.strings, shape: v.dims };
    case "sequence": {
      const sequence: unknown[] = [];
      for (const x of v.items) sequence.push(await encoded(x, blobs, device));
      return { sequence };
    }
    case "map":
      return {
        map: Array.from(v.entries, ([k, x]) => [String(k), typeof x === "bigint" ? String(x) : x]),
        key: v.key,
        value: v.value,
      };
    default: {
      const bytes = await v.read(device);
      const file = bytes.length ? String(blobs.size) : null;
      if (file !== null) blobs.set(file, new Blob([bytes]));
      return { tensor: [v.type, v.dims, file] };
    }
  }
}

function decoded(json: Json, files: Map<string, Uint8Array<ArrayBuffer>>): RunValue {
  if (json === null) return new Nothing();
  const v = json as {
    tensor?: [string, number[], string | null];
    strings?: string[];
    shape?: number[];
    sequence?: Json[];
    map?: [string, string][];
    key?: string;
    value?: string;
  };
  if (v.tensor) {
    const [type, dims, file] = v.tensor;
    const data = file === null ? new Uint8Array(0) : files.get(file);
    if (!data)
      throw new EngineError(
        "Python's answer lacks bytes",
        "",
        "This is a bug in Edgewise; please report it.",
      );
    return new NumberTensor(type, dims, data);
  }
  if (v.strings) return new StringTensor(v.shape!, v.strings);
  if (v.sequence) {
    const items = v.sequence.map((x) => decoded(x, files));
    const s = new Sequence(items);
    for (const x of items) x.refs--; // the sequence holds the only references
    return s;
  }
  const number = (x: string): string | number | bigint =>
    v.value === "string"
      ? x
      : /^b?float/.test(v.value!)
        ? x === "nan"
          ? NaN
          : x === "inf"
            ? Infinity
            : x === "-inf"
              ? -Infinity
              : Number(x)
        : BigInt(x);
  return new OnnxMap(
    new Map(v.map!.map(([k, x]) => [v.key === "string" ? k : BigInt(k), number(x)])),
    v.key!,
    v.value!,
  );
}
