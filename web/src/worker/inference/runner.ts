// What the driver and the nodes that it runs have in common.

import type { Buffer, Device } from "../../device/device.ts";
import type { Pool } from "./memory.ts";
import type { LoadedPlan, Part } from "./part.ts";
import type { Constant, NodeUnit, PartUnit, Program, Unit } from "./program.ts";
import type { Left, NodeReply } from "./python.ts";
import { type NumberTensor, type RunValue, release } from "./values.ts";

/** Names and their values; what is not here is in the scope around a subgraph. */
export class Scope {
  constructor(
    readonly values: Map<string, RunValue>,
    readonly parent: Scope | undefined,
  ) {}

  find(name: string): RunValue | undefined {
    for (let s: Scope | undefined = this; s; s = s.parent) {
      const v = s.values.get(name);
      if (v) return v;
    }
    return undefined;
  }

  /** Takes over a reference. */
  set(name: string, v: RunValue): void {
    const before = this.values.get(name);
    this.values.set(name, v);
    if (before) release(before);
  }

  drop(name: string): void {
    const v = this.values.get(name);
    if (v && this.values.delete(name)) release(v);
  }
}

/** What a driver asks for: where programs, plans and constants come from. */
export interface Library {
  readonly device: Device;
  readonly pool: Pool;
  /** The part of this name, with its plans. */
  part(name: string): Part;
  /** Compiles a part, or cuts the program anew: then what is left of this run. */
  compile(
    program: Program,
    unit: PartUnit,
    values: readonly RunValue[],
    done: () => number[],
    run: number,
  ): Promise<LoadedPlan | Unit[]>;
  /**
   * A program by its origin (python/edgewise/session/described.py); `key` stands for the origin.
   */
  program(key: string, origin: () => Record<string, unknown>): Promise<Program>;
  /** A constant that lies among the model's weights. */
  weight(constant: Extract<Constant, { weight: string }>): NumberTensor;
  /** Lets Python run a node. */
  pythonNode(
    program: Program,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
    left: Left,
  ): Promise<NodeReply>;
}

/** Bounds of a run. */
export interface Bounds {
  maxLoopTrips: number;
  maxCompilations: number;
  maxRunSeconds: number | undefined;
  signal: { readonly aborted: boolean } | undefined;
  seed: bigint | undefined;
}

/** What a node asks of the driver that runs it. */
export interface Runner {
  readonly device: Device;
  readonly pool: Pool;
  readonly library: Library;
  /** Copies a tensor to the device where it is not there yet. Returns its memory. */
  readonly place: (v: NumberTensor, where?: string) => Buffer;
  /** The value of a name: of the run, else one of the program's constants. */
  find(program: Program, scope: Scope, name: string): RunValue | undefined;
  /** The outputs of a program, one reference each. Takes over the references of `values`. */
  call(
    program: Program,
    values: Map<string, RunValue>,
    around: Scope | undefined,
  ): Promise<RunValue[]>;
  /**
   * Runs one node as a program of its own. Its outputs have one reference each.
   * @param more `like`: the program and the node whose attributes it has
   */
  single(
    op: string,
    domain: string,
    inputs: readonly (RunValue | undefined)[],
    wanted: readonly boolean[],
    attrs: Record<string, unknown>,
    more?: { opset?: number; dtype?: string; label?: string; like?: [string, number] },
  ): Promise<(RunValue | undefined)[]>;
  /** Lets Python run a node, with what this run has left. */
  pythonNode(
    program: Program,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
  ): Promise<Map<string, RunValue>>;
  /** Counts one more round of a loop. @throws ModelError: too many. Aborted */
  trip(where: string): Promise<void> | undefined;
  /** Counts copied items of sequences. @throws ModelError: too many */
  copies(items: number, where: string): void;
}
