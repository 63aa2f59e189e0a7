// The context in which the function of a host operator runs: inputs, attributes, and operations.
// Values made through it are released when the node is done, except the node's outputs.

import type { Device } from "../../device/device.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import { ModelError, UnsupportedOp } from "../../shared/errors.ts";
import { type Attribute, type GraphProgram, type NodeUnit, Subgraph } from "./program.ts";
import type { Runner, Scope } from "./runner.ts";
import {
  byteSize,
  elements,
  NumberTensor,
  REFERENCE_BYTES,
  type RunValue,
  release,
  Sequence,
  StringTensor,
  sameDims,
} from "./values.ts";

/** Computes a node; undefined if the function does not handle these inputs. */
export type HostOperator = (
  n: NodeRun,
) => (RunValue | undefined)[] | undefined | Promise<(RunValue | undefined)[] | undefined>;

const CHECK = "Check what is fed; if it is right, export the model again.";

/** The execution of a node. */
export class NodeRun {
  private readonly made: RunValue[] = [];

  constructor(
    readonly driver: Runner,
    readonly program: GraphProgram,
    readonly unit: NodeUnit,
    readonly scope: Scope,
    readonly inputs: readonly (RunValue | undefined)[],
  ) {}

  /** The device. */
  get device(): Device {
    return this.driver.device;
  }

  /** Releases intermediate values. */
  end(): void {
    for (const v of this.made) release(v);
    this.made.length = 0;
  }

  /** Registers a value for release at the end of the node. */
  keep<V extends RunValue>(v: V): V {
    this.made.push(v);
    if ((v.kind === "strings" || v.kind === "sequence" || v.kind === "map") && !v.held)
      v.held = this.driver.pool.hold(v.hostBytes);
    return v;
  }

  async python(): Promise<(RunValue | undefined)[]> {
    const values = new Map<string, RunValue>();
    for (const name of this.unit.reads) {
      const v = this.driver.find(this.program, this.scope, name);
      if (v) values.set(name, v);
    }
    const outs = await this.driver.pythonNode(this.program, this.unit, values);
    return this.unit.outputs.map((name) => outs.get(name) && this.keep(outs.get(name)!));
  }

  /** Executes the node by a plan, with other inputs. */
  async plain(inputs: readonly (RunValue | undefined)[]): Promise<(RunValue | undefined)[]> {
    const { op, domain, outputs, opset, nodes, name } = this.unit;
    const outs = await this.driver.single(
      op,
      domain,
      inputs,
      outputs.map(Boolean),
      {},
      { opset, label: name, like: [this.program.name, nodes[0]!] },
    );
    return outs.map((v) => v && this.keep(v));
  }

  /** Executes any ONNX operator, or one of the engine's own (domain "edgewise"). */
  async ops(
    op: string,
    inputs: readonly RunValue[],
    attrs: Record<string, number | number[]> = {},
    outputs = 1,
    domain = "",
  ): Promise<NumberTensor[]> {
    const outs = await this.driver.single(
      op,
      domain,
      inputs,
      Array.from({ length: outputs }, () => true),
      attrs,
      { label: this.unit.name },
    );
    return outs.map((v) => this.keep(v!) as NumberTensor);
  }

  /** As `ops`, for operators with one output. */
  async op(
    op: string,
    inputs: readonly RunValue[],
    attrs: Record<string, number | number[]> = {},
  ): Promise<NumberTensor> {
    return (await this.ops(op, inputs, attrs))[0]!;
  }

  /** A tensor with the given elements. */
  constant(type: string, dims: readonly number[], numbers: readonly number[]): NumberTensor {
    return this.keep(NumberTensor.of(type, dims, numbers));
  }

  /** @throws OutOfMemory if the memory limit has no room for `bytes` more */
  checkRoom(bytes: number): void {
    this.driver.pool.checkRoom(bytes);
  }

  /**
   * Counts items of sequences that the node copies.
   * @throws ModelError if there are too many
   */
  copies(items: number): void {
    this.driver.copies(items, this.unit.where);
  }

  /** A sequence of values. */
  sequence(items: readonly RunValue[]): Sequence {
    return this.keep(new Sequence(items));
  }

  /** A tensor with the same elements and another shape. */
  reshaped(v: NumberTensor, dims: readonly number[]): NumberTensor {
    return this.keep(v.view(dims));
  }

  /** The first elements of a tensor. A small part of a large block is copied, to free the block. */
  front(v: NumberTensor, dims: readonly number[]): NumberTensor {
    const bytes = byteSize(v.type, dims);
    if (!v.block || 2 * bytes >= v.bytes) return this.keep(v.view(dims));
    const block = this.driver.pool.take(bytes);
    this.device.copy(v.buffer!, block.buffer, bytes);
    return this.keep(new NumberTensor(v.type, dims, undefined, block.buffer, block));
  }

  /** Stacks tensors of equal shape and type along a new first dimension. */
  stack(values: readonly RunValue[]): NumberTensor | StringTensor {
    const first = values[0]!;
    for (const v of values)
      if (
        (v.kind !== "tensor" && v.kind !== "strings") ||
        v.kind !== first.kind ||
        v.type !== (first as NumberTensor).type ||
        !sameDims(v.dims, (first as NumberTensor).dims)
      )
        this.fail(
          `${String(first)} and ${String(v)} cannot be concatenated`,
          "Check the shapes that were fed; if they are right, export the model again.",
        );
    if (first.kind === "strings") {
      this.checkRoom(REFERENCE_BYTES * first.count * values.length);
      return this.keep(
        new StringTensor(
          [values.length, ...first.dims],
          (values as StringTensor[]).flatMap((v) => v.strings),
        ),
      );
    }
    const tensors = values as NumberTensor[];
    const { type, dims } = first as NumberTensor;
    if ((elements(dims) * ELEMENT_BITS[type]!) % 8)
      this.fail(
        `tensors like ${String(first)} do not end at a whole byte`,
        "Export the model with 8-bit elements.",
      );
    const step = byteSize(type, dims);
    const shape = [values.length, ...dims];
    if (tensors.every((v) => v.data)) {
      this.checkRoom(step * tensors.length);
      const data = new Uint8Array(step * tensors.length);
      tensors.forEach((v, i) => data.set(v.data!, i * step));
      return this.keep(new NumberTensor(type, shape, data));
    }
    const block = this.driver.pool.take(step * values.length);
    const made = this.keep(new NumberTensor(type, shape, undefined, block.buffer, block));
    if (step)
      tensors.forEach((v, i) => {
        const row = block.buffer.part(i * step, step);
        if (v.data) this.device.write(row, v.data);
        else this.device.copy(v.buffer!, row, step);
      });
    return made;
  }

  /**
   * A subgraph attribute as a function. It consumes one reference of each argument; its results
   * have one reference each.
   */
  async body(
    attribute: string,
  ): Promise<{ outputs: Subgraph["outputs"]; call(values: RunValue[]): Promise<RunValue[]> }> {
    const graph = this.unit.attrs.get(attribute);
    if (!(graph instanceof Subgraph))
      return this.fail("a subgraph is missing", "Export the model again.");
    const origin = { parent: this.program.name, node: this.unit.nodes[0], body: attribute };
    const program = await this.driver.library.program(JSON.stringify(origin), () => origin);
    const { driver, scope } = this;
    return {
      outputs: graph.outputs,
      call: (values) => {
        if (values.length !== program.inputs.length)
          this.fail(
            `its body takes ${program.inputs.length} inputs, it gives ${values.length}`,
            "Export the model again.",
          );
        const named = new Map<string, RunValue>();
        for (let i = 0; i < values.length; i++) named.set(program.inputs[i]!, values[i]!);
        return driver.call(program, named, scope);
      },
    };
  }

  /** Counts an iteration of a loop. */
  trip(): Promise<void> | undefined {
    return this.driver.trip(this.unit.where);
  }

  /** Whether input i is present. */
  has(i: number): boolean {
    return this.inputs[i] !== undefined;
  }

  /**
   * Input i.
   * @throws ModelError if it is absent
   */
  input(i: number): RunValue {
    return this.inputs[i] ?? this.fail(`its input ${i} is missing`, "Export the model again.");
  }

  /** Input i as a numeric tensor. */
  tensor(i: number): NumberTensor {
    const v = this.input(i);
    return v.kind === "tensor"
      ? v
      : this.fail(`its input ${i} is ${String(v)}; a tensor of numbers is expected`, CHECK);
  }

  /** Input i as a string tensor. */
  strings(i: number): StringTensor {
    const v = this.input(i);
    return v.kind === "strings"
      ? v
      : this.fail(`its input ${i} is ${String(v)}; strings are expected`, CHECK);
  }

  /** The elements of input i. */
  numbers(i: number): Promise<number[]> {
    return this.tensor(i).numbers(this.device);
  }

  /** The single element of input i. */
  async number(i: number): Promise<number> {
    const numbers = await this.numbers(i);
    return numbers.length === 1
      ? numbers[0]!
      : this.fail(
          `its input ${i} is ${String(this.inputs[i])}; a single number is expected`,
          CHECK,
        );
  }

  /** An integer attribute. */
  int(name: string, otherwise: number): number {
    const v = this.attribute(name);
    if (v === undefined) return otherwise;
    return typeof v === "number" && Number.isInteger(v)
      ? v
      : typeof v === "bigint"
        ? Number(v)
        : this.wrongKind(name);
  }

  /** A float attribute. */
  float(name: string, otherwise: number): number {
    const v = this.attribute(name);
    return v === undefined ? otherwise : typeof v === "number" ? v : this.wrongKind(name);
  }

  /** A string attribute. */
  text(name: string, otherwise: string): string {
    const v = this.attribute(name);
    return v === undefined ? otherwise : typeof v === "string" ? v : this.wrongKind(name);
  }

  /** An attribute that is a list of integers; undefined if absent. */
  ints(name: string): number[] | undefined {
    const v = this.attribute(name);
    return v === undefined
      ? undefined
      : Array.isArray(v) && v.every((x) => typeof x === "number" && Number.isInteger(x))
        ? (v as number[])
        : this.wrongKind(name);
  }

  /** An attribute that is a list of strings; undefined if absent. */
  texts(name: string): string[] | undefined {
    const v = this.attribute(name);
    return v === undefined
      ? undefined
      : Array.isArray(v) && v.every((x) => typeof x === "string")
        ? (v as string[])
        : this.wrongKind(name);
  }

  /** The raw value of an attribute. */
  attribute(name: string): Attribute {
    return this.unit.attrs.get(name);
  }

  private wrongKind(name: string): never {
    return this.fail(
      `its attribute '${name}' is of the wrong kind`,
      "The file is damaged or not valid ONNX; export it again.",
    );
  }

  /** Normalizes an axis. `extra`: how much larger than the rank it may be. */
  axis(axis: number, rank: number, extra = 0): number {
    if (!(axis >= -rank && axis < rank + extra))
      this.fail(
        `axis ${axis} does not exist in a tensor of ${rank} dimensions`,
        "Check the shapes that were fed; if they are right, export the model again.",
      );
    return axis < 0 ? axis + rank : axis;
  }

  fail(
    what: string,
    remedy = "Check the shapes that were fed; if they are right, export the model again.",
  ): never {
    throw new ModelError(what, this.unit.where, remedy);
  }

  unsupported(
    what: string,
    remedy = "Export the model with another opset or another exporter, or run it on a desktop " +
      "runtime.",
  ): never {
    throw new UnsupportedOp(what, this.unit.where, remedy);
  }
}
