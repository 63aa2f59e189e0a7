// One step of a plan on a GPU: its programs, what they bind, and their grids. The twin of
// python/edgewise/webgpu/launch.py.

import { BUFFERS } from "../../gen/plan_format.ts";
import { type Arrangement, arrange, isScratch, type Span } from "./arrange.ts";
import type { PlanContext } from "./context.ts";
import type { GpuRange } from "./memory.ts";
import type { Pipeline } from "./pipelines.ts";
import { isEmpty, type PlanStep, valuesOf } from "./steps.ts";
import { gridOf, stagesOf, type Variant } from "./variants.ts";
import {
  BINDING,
  FLOATS,
  floatsOf,
  OFFSETS,
  type Program,
  programOf,
  RECORD_BYTES,
  STEP_WORD,
} from "./wgsl.ts";

/** Kinds of slots whose contents outlive a run. */
const KEPT = ["cache", "state", "computed"];
/** Number of the constants' GPUBuffer. */
const CONSTANTS = -1;
const MAX_GROUPS = 16;

/** For JSON, which has no negative zero. */
const signed = (_: string, x: unknown): unknown => (Object.is(x, -0) ? "-0" : x);

/** How a step is run. */
export class Launch {
  /** Why it cannot run on this GPU; "" if it can. */
  readonly reason: string;
  /** Slots that it binds. */
  readonly slots: ReadonlySet<number>;
  /** Whether a program of it can find an index that is out of range. */
  fails = false;
  programs: Program[] = [];
  pipelines: Pipeline[] = [];
  private readonly stages: Variant[];
  private guarded = false;
  private bindGroups: GPUBindGroup[] = [];
  private readonly groups = new Map<string, GPUBindGroup[]>();
  private arrangement = "";
  private grids: [number, number][] | undefined;

  /** @param failing whether a step before it can find an index that is out of range */
  constructor(
    private readonly plan: PlanContext,
    private readonly index: number,
    private readonly step: PlanStep,
    failing: boolean,
  ) {
    const { registers } = plan.parts;
    this.stages = stagesOf(
      step,
      registers.map(([, high]) => high),
    );
    const slotOf = (buffer: number): number[] =>
      buffer >= BUFFERS.SLOT0 ? [buffer - BUFFERS.SLOT0] : [];
    this.slots = new Set(step.operands.flatMap((v) => (v ? slotOf(v.buffer) : [])));
    this.reason = this.obstacle();
    if (this.reason) return;
    this.guarded =
      failing &&
      step.operands.some((v, i) => {
        const [slot] = v && step.contract!.operands[i]!.output ? slotOf(v.buffer) : [];
        return slot !== undefined && KEPT.includes(plan.kinds[slot] ?? KEPT[0]!);
      });
    this.print(arrange(step, this.spans(false)));
    const lowest = registers.map(([low]) => low);
    if (!step.dynamic)
      this.grids = this.stages.map((stage) => gridOf(stage, valuesOf(step, lowest)));
  }

  private get where(): string {
    return `${this.plan.where}, step ${this.index}, kernel ${this.step.kernel}`;
  }

  private obstacle(): string {
    const { gpu } = this.plan.device;
    if (!this.stages.length) return "no shader for these parameters and types";
    const count = new Set(this.step.operands.flatMap((v) => (v ? [v.buffer] : []))).size + 1;
    if (count > gpu.bindings) return `${count} buffers: this GPU binds ${gpu.bindings}`;
    for (const [i, v] of this.step.operands.entries()) {
      if (v?.buffer === BUFFERS.ARENA && !isScratch(this.step, i))
        return "its values lie in the engine's arena";
      if (!v || v.buffer < BUFFERS.SLOT0) continue;
      const [begin, end] = this.window(i);
      if (end - begin > gpu.bindingBytes)
        return `${end - begin} bytes: this GPU binds ${gpu.bindingBytes}`;
    }
    return "";
  }

  /** The bytes of its slot that an operand binds: all, or of a large slot those it touches. */
  private window(operand: number): [begin: number, end: number] {
    const { plan, step } = this;
    const bytes = plan.parts.slotBytes[step.operands[operand]!.buffer - BUFFERS.SLOT0]!;
    if (bytes <= plan.device.gpu.bindingBytes) return [0, bytes];
    const [resolved] = plan.resolve(this.index, 1);
    const found = resolved!.operands[operand];
    return resolved!.registers || !found ? [0, bytes] : [found.begin, found.end];
  }

  /** Where the operands lie. placed: in GPUBuffers; otherwise each slot counts as one. */
  private spans(placed: boolean): (Span | undefined)[] {
    return this.step.operands.map((v, i) => {
      if (!v || isScratch(this.step, i)) return undefined;
      if (v.buffer === BUFFERS.CONST) {
        const end = this.plan.buffers.constants.size;
        return { number: CONSTANTS, begin: 0, end, zero: v.offset };
      }
      const [begin, end] = this.window(i);
      if (!placed) return { number: v.buffer, begin, end, zero: v.offset };
      const { block, offset } = this.bound(v.buffer - BUFFERS.SLOT0);
      return {
        number: block.number,
        begin: offset + begin,
        end: offset + end,
        zero: offset + v.offset,
      };
    });
  }

  private bound(slot: number): GpuRange {
    return this.plan.bufferOf(slot);
  }

  /** Makes the programs for an arrangement, and begins to compile them. */
  private print({ roles, bindings }: Arrangement): void {
    const key = JSON.stringify([roles, bindings]);
    if (key === this.arrangement) return;
    this.arrangement = key;
    const { texts, pipelines } = this.plan.device;
    this.programs = this.stages.map((stage) => {
      const { kernel, params, operands } = this.step;
      const parts = [
        kernel,
        stage.name,
        [...params],
        operands.map((v) => v && [v.register, v.scale]),
      ];
      const of = `${JSON.stringify([parts, this.guarded], signed)}${key}`;
      let program = texts.get(of);
      if (!program) {
        program = programOf(this.step, stage, roles, bindings, this.guarded);
        texts.set(of, program);
      }
      return program;
    });
    this.fails = this.programs.some(({ fails }) => fails);
    this.pipelines = this.programs.map((program) => pipelines.get(program, this.where));
  }

  /** Makes the bind groups for the memory that the slots are bound to, and the record. */
  connect(): void {
    const arrangement = arrange(this.step, this.spans(true));
    this.print(arrangement);
    const key = `${this.arrangement}${JSON.stringify(arrangement.ranges)}`;
    let groups = this.groups.get(key);
    if (!groups) {
      if (this.groups.size >= MAX_GROUPS) this.groups.clear();
      groups = this.programs.map((program, i) =>
        this.group(program, this.pipelines[i]!, arrangement),
      );
      this.groups.set(key, groups);
    }
    this.bindGroups = groups;
    this.plan.device.gpu.device.queue.writeBuffer(
      this.plan.buffers.records,
      RECORD_BYTES * this.index,
      this.record(arrangement),
    );
  }

  private record({ offsets }: Arrangement): ArrayBuffer {
    const view = new DataView(new ArrayBuffer(RECORD_BYTES));
    offsets.slice(0, OFFSETS).forEach((offset, i) => {
      view.setUint32(4 * i, offset, true);
    });
    floatsOf(this.step).forEach((name, i) => {
      view.setFloat32(4 * (FLOATS + i), this.step.params.get(name) as number, true);
    });
    view.setUint32(4 * STEP_WORD, this.index + 1, true);
    return view.buffer;
  }

  private group(program: Program, { layout }: Pipeline, { ranges }: Arrangement): GPUBindGroup {
    const { device, buffers } = this.plan;
    const entry = (
      binding: number,
      buffer: GPUBuffer,
      offset = 0,
      size = buffer.size,
    ): GPUBindGroupEntry => ({ binding, resource: { buffer, offset, size } });
    const entries = [
      entry(BINDING.RECORD, buffers.records, RECORD_BYTES * this.index, RECORD_BYTES),
    ];
    if (program.registers) entries.push(entry(BINDING.REGISTERS, buffers.registers));
    if (program.fails || program.guarded) entries.push(entry(BINDING.ERRORS, buffers.errors));
    const places = new Map([[CONSTANTS, buffers.constants]]);
    for (const slot of this.slots) {
      const { block } = this.bound(slot);
      places.set(block.number, block.gpu);
    }
    ranges.forEach(([number, begin, end], i) => {
      const buffer = places.get(number)!;
      const stop = Math.min(Math.max(end, begin + 4), buffer.size);
      entries.push(entry(BINDING.OPERANDS + i, buffer, begin, stop - begin));
    });
    return device.gpu.device.createBindGroup({ layout, entries });
  }

  /** Adds the step to a compute pass. Its pipelines must have been made. */
  dispatch(pass: GPUComputePassEncoder): void {
    let { grids } = this;
    if (!grids) {
      const values = valuesOf(this.step, this.plan.registers);
      if (isEmpty(this.step, values)) return;
      grids = this.stages.map((stage) => gridOf(stage, values));
    }
    grids.forEach(([across, down], i) => {
      if (!across || !down) return;
      pass.setPipeline(this.pipelines[i]!.pipeline!);
      pass.setBindGroup(0, this.bindGroups[i]!);
      pass.dispatchWorkgroups(across, down);
    });
  }
}
