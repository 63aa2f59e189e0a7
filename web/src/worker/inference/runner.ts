// Interfaces between the driver and the nodes that it executes.

import type { Buffer, Device } from "../../device/device.ts";
import type { Pool } from "./memory.ts";
import type { LoadedPlan, Part } from "./part.ts";
import type { Constant, GraphProgram, NodeUnit, PartUnit, Unit } from "./program.ts";
import type { Left, NodeReply } from "./python.ts";
import { type NumberTensor, type RunValue, release } from "./values.ts";

/** Values by name; other names are looked up in the enclosing scope. */
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

  /** Sets a value, consuming a reference. */
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

/** Provides programs, plans and constants to a driver. */
export interface Library {
  readonly device: Device;
  readonly pool: Pool;
  /** The part of this name, with its plans. */
  part(name: string): Part;
  /** Compiles a part; if the program is repartitioned instead, returns the remaining units. */
  compile(
    program: GraphProgram,
    unit: PartUnit,
    values: readonly RunValue[],
    done: () => number[],
    run: number,
  ): Promise<LoadedPlan | Unit[]>;
  /** The program of an origin (python/edgewise/host/session/described.py), identified by `key`. */
  program(key: string, origin: () => Record<string, unknown>): Promise<GraphProgram>;
  /** A constant that is stored as a weight. */
  weight(constant: Extract<Constant, { weight: string }>): NumberTensor;
  /** Executes a node in Python. */
  pythonNode(
    program: GraphProgram,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
    left: Left,
  ): Promise<NodeReply>;
}

/** Limits of a run. */
export interface Bounds {
  maxLoopTrips: number;
  maxCompilations: number;
  maxRunSeconds: number | undefined;
  signal: { readonly aborted: boolean } | undefined;
  seed: bigint | undefined;
  /** How many plans have drawn with the seed before. */
  drawn?: number | undefined;
}

/** The part of the driver that nodes use. */
export interface Runner {
  readonly device: Device;
  readonly pool: Pool;
  readonly library: Library;
  /** Copies a tensor to the device, if it is not there, and returns its buffer. */
  readonly place: (v: NumberTensor, where?: string) => Buffer;
  /** The value of a name, from the run or from the program's constants. */
  find(program: GraphProgram, scope: Scope, name: string): RunValue | undefined;
  /** Executes a program and returns its outputs, one reference each. Consumes `values`. */
  call(
    program: GraphProgram,
    values: Map<string, RunValue>,
    around: Scope | undefined,
  ): Promise<RunValue[]>;
  /**
   * Executes a node as a program of its own. Its outputs have one reference each.
   * @param more `like`: program and node whose attributes are used
   */
  single(
    op: string,
    domain: string,
    inputs: readonly (RunValue | undefined)[],
    wanted: readonly boolean[],
    attrs: Record<string, unknown>,
    more?: { opset?: number; dtype?: string; label?: string; like?: [string, number] },
  ): Promise<(RunValue | undefined)[]>;
  /** Executes a node in Python, within the remaining limits of this run. */
  pythonNode(
    program: GraphProgram,
    unit: NodeUnit,
    values: ReadonlyMap<string, RunValue>,
  ): Promise<Map<string, RunValue>>;
  /**
   * Counts an iteration of a loop.
   * @throws ModelError if there are too many
   * @throws Aborted
   */
  trip(where: string): Promise<void> | undefined;
  /**
   * Counts copied items of sequences.
   * @throws ModelError if there are too many
   */
  copies(items: number, where: string): void;
}
