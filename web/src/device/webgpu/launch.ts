// One step of a plan on a GPU, or a batch: its programs, what they bind, and their grids. The twin
// of python/edgewise/host/webgpu/launch.py.

import { BUFFERS } from "../../gen/plan_format.ts";
import type { Values } from "../../gen/shaders.ts";
import { type Arrangement, arrange, families_of, type Span } from "../../logic/gpu/arrange.ts";
import {
  CHOICES,
  FLOATS,
  floats_of,
  MAX_CHOICES,
  RECORD_BYTES,
  type Role,
  START,
  STEP_WORD,
  TOTAL,
  VARIED,
} from "../../logic/gpu/link.ts";
import { forms_of } from "../../logic/gpu/self_test.ts";
import { follows, type Param } from "../../logic/gpu/steps.ts";
import { folded } from "../../logic/gpu/variants.ts";
import {
  type Batch,
  FIRST_BINDING,
  type Part,
  type Program,
  program_of,
} from "../../logic/gpu/wgsl.ts";
import type { PlanContext } from "./context.ts";
import { MAX_PROGRAMS, type Pipeline } from "./pipelines.ts";
import { alone, type Group, isSwapped, variedIn } from "./program.ts";
import {
  isEmpty,
  isScratch,
  linked,
  mode,
  type PlanStep,
  textOf,
  valuesOf,
  withRegisters,
} from "./steps.ts";
import {
  apartOf,
  countOf,
  excess,
  shaderOf,
  stagesOf,
  type Variant,
  variantsOf,
} from "./variants.ts";

/** Kinds of slots whose contents outlive a run. */
const KEPT = ["cache", "state", "computed"];
/** Number of the constants' GPUBuffer. */
const CONSTANTS = -1;
const MAX_GROUPS = 16;

/** Numbers of the GPUBuffers that slots are expected to share. */
const SHARED: Readonly<Record<string, number>> = { weight: -2, state: -3 };

/** A dispatch, as a pass takes it; `across` is 0 where there is nothing to do. */
export interface Dispatch {
  readonly program: Pipeline;
  readonly group: GPUBindGroup;
  across: number;
  down: number;
}

/** How neighbouring steps are run: one alone, or several in one dispatch. */
export class Launch {
  /** Why it cannot run on this GPU; "" if it can. */
  readonly reason: string;
  /** Slots that it binds. */
  readonly slots: ReadonlySet<number>;
  /** Its first step, and all of them. */
  readonly index: number;
  readonly steps: readonly PlanStep[];
  /** Whether a program of it can find an index that is out of range. */
  fails = false;
  programs: Program[] = [];
  pipelines: Pipeline[] = [];
  /** What a run encodes, once memory is connected. */
  list: Dispatch[] = [];
  /** Where its memory lies. */
  private placed: Arrangement | undefined;
  /** Instead, one for each step, where the batch needs more bindings than there are. */
  members: Launch[] = [];
  /** The first step that the body runs. */
  private readonly step: PlanStep;
  /** Steps that the body runs. */
  private readonly parts: readonly PlanStep[];
  private readonly stages: readonly Variant[];
  /** The same by kind, and the parameters in which those of a kind differ. */
  private readonly kinds: readonly (readonly PlanStep[])[];
  private readonly varied: readonly string[][];
  private readonly guarded: boolean = false;
  /** As of Group; `ends` from the first step on. */
  private readonly head: boolean;
  private readonly tail: boolean;
  private readonly takers: number;
  private readonly chain: boolean;
  private readonly ends: readonly number[];
  private readonly groups = new Map<string, GPUBindGroup[]>();
  private arrangement = "";
  /** What several steps bind, if memory is bound as it usually is. */
  private expected: Arrangement | undefined;
  private counts: number[] = [];
  private total = 0;
  /** Workgroups of the stages. */
  grids: number[] = [];
  private moves = false;
  /** Parameters that follow registers, and all with their present values. */
  private followed: [name: string, param: Param][] = [];
  private values: Record<string, unknown> = {};

  /**
   * @param group of the plan's steps: one, or several that one dispatch runs
   * @param failing whether a step before it can find an index that is out of range
   */
  constructor(
    private readonly plan: PlanContext,
    group: Group,
    private readonly failing: boolean,
  ) {
    const { head, tail, takers, chain, first } = group;
    const steps = plan.parts.steps.slice(first, group.end);
    [this.head, this.tail, this.takers, this.chain] = [head, tail, takers, chain];
    [this.index, this.steps, this.step] = [first, steps, steps[+head]!];
    this.ends = group.ends.map((end) => end - first);
    this.parts = steps.slice(+head, steps.length - +tail - takers);
    this.kinds = this.ends.length
      ? this.ends.map((end, i) => steps.slice(this.ends[i - 1] ?? 0, end))
      : [this.parts];
    this.varied = this.kinds.map((kind) => (tail ? [] : variedIn(kind)));
    const { largest } = plan.parts;
    this.stages = stagesOf(this.step, largest);
    const slotOf = (buffer: number): number[] =>
      buffer >= BUFFERS.SLOT0 ? [buffer - BUFFERS.SLOT0] : [];
    this.slots = new Set(
      steps.flatMap(({ operands }) => operands.flatMap((v) => (v ? slotOf(v.buffer) : []))),
    );
    this.reason = this.obstacle();
    if (this.reason) return;
    this.guarded =
      failing &&
      steps.some(({ operands, contract }) =>
        operands.some((v, i) => {
          const [slot] = v && contract!.operands[i]!.output ? slotOf(v.buffer) : [];
          return slot !== undefined && KEPT.includes(plan.kinds[slot] ?? KEPT[0]!);
        }),
      );
    if (steps.length > 1) {
      this.expected = this.arranged(false);
      if (!this.fits(this.expected)) {
        this.reason = "more buffers than this GPU binds";
        return;
      }
      this.counts = this.kinds.flatMap((kind) => {
        const stage = stagesOf(kind[0]!, largest).at(-1)!;
        return kind.map((part) => countOf(stage, valuesOf(part, largest)) / (takers ? 2 : 1));
      });
      this.total = tail ? this.counts[0]! : this.counts.reduce((sum, n) => sum + n, 0);
      if (chain) this.total = 1;
      this.grids = [this.total];
    } else if (this.step.dynamic) this.watch();
    else this.grids = this.gridsFor(valuesOf(this.step, largest));
  }

  /** Names of what it runs, as tests of GPUs have them. */
  get forms(): string[] {
    const { steps, kinds, takers } = this;
    const last = steps.slice(steps.length - takers);
    const bodies = [...kinds.map(([step]) => step!), ...last];
    return forms_of(
      bodies.flatMap((step) => stagesOf(step, this.plan.parts.largest).map(({ name }) => name)),
      this.step.kernel,
      this.head ? steps[0]!.kernel : "",
      this.tail ? steps.at(-1)!.kernel : "",
      last.map(({ kernel }) => kernel),
      this.chain,
    );
  }

  /** Finds the grids, and whether one read a parameter that follows registers. */
  private watch(): void {
    const read = new Set<string | symbol>();
    this.values = { ...valuesOf(this.step, this.plan.parts.largest) };
    const get = (of: Record<string, unknown>, name: string): unknown => {
      read.add(name);
      return of[name];
    };
    this.grids = this.gridsFor(new Proxy(this.values, { get }));
    this.followed = [...this.step.params].filter(([, x]) => follows(x));
    this.moves = this.followed.some(([name]) => read.has(name));
  }

  /** Those whose grids follow registers. */
  get movers(): Launch[] {
    if (this.members.length) return this.members.flatMap(({ movers }) => movers);
    return this.moves ? [this] : [];
  }

  /** Sets the grids to those with the plan's registers. */
  move(): void {
    for (const [name, x] of this.followed)
      this.values[name] = withRegisters(x, this.plan.registers);
    this.grids = this.gridsFor(this.values);
    this.list.forEach((one, i) => {
      [one.across, one.down] = folded(this.grids[i]!);
    });
  }

  /** Begins to compile the programs, as far as it is known what they will bind. */
  prepare(): void {
    this.print(this.expected ?? this.arranged(false));
    this.expected = undefined;
  }

  /** Dispatches of a run. */
  get dispatches(): number {
    return this.members.reduce((sum, one) => sum + one.dispatches, 0) || this.programs.length;
  }

  /** Adds what resolves when its pipelines have been made. */
  wait(out: Promise<void>[]): void {
    for (const { pipeline, made } of this.pipelines)
      if (!pipeline && !this.members.length) out.push(made);
    for (const member of this.members) member.wait(out);
  }

  private get where(): string {
    return `${this.plan.where}, step ${this.index}, kernel ${this.step.kernel}`;
  }

  private gridsFor(values: Values): number[] {
    const idle = this.step.dynamic && isEmpty(this.step, values);
    return this.stages.map((stage) => (idle ? 0 : countOf(stage, values)));
  }

  private arranged(placed: boolean): Arrangement {
    return arrange(
      this.steps.map(linked),
      this.steps.map((_, member) => this.spans(member, placed)),
      this.ends,
    );
  }

  /** Whether several steps with this arrangement can run. */
  private fits({ bindings, roles, ranges }: Arrangement): boolean {
    const { gpu } = this.plan.device;
    const most = mode.serial ? 1 : MAX_CHOICES;
    return (
      bindings.length < gpu.bindings &&
      roles.flat().every((role) => role.bindings.length <= most) &&
      ranges.every(([, begin, end]) => end - begin <= gpu.bindingBytes)
    );
  }

  private obstacle(): string {
    const { gpu, refused } = this.plan.device;
    if (!this.stages.length) return "no shader for these parameters and types";
    if (refused.size) {
      const names = [...this.steps.map(({ kernel }) => kernel), ...this.forms];
      const wrong = names.find((name) => refused.has(name));
      if (wrong) return refused.get(wrong)!;
    }
    const work = this.plan.operations.slice(this.index, this.index + this.steps.length);
    const reason = excess(this.steps, work, this.plan.parts.largest);
    if (reason || this.steps.length > 1) return reason; // each alone can run
    const { operands } = this.step;
    const count = new Set(operands.flatMap((v) => (v ? [v.buffer] : []))).size + 1;
    if (count > gpu.bindings) return `${count} buffers: this GPU binds ${gpu.bindings}`;
    for (const [i, v] of operands.entries()) {
      if (v?.buffer === BUFFERS.ARENA && !isScratch(this.step, i))
        return "its values lie in the engine's arena";
      if (!v || v.buffer < BUFFERS.SLOT0) continue;
      const [begin, end] = this.window(0, i);
      if (end - begin > gpu.bindingBytes)
        return `${end - begin} bytes: this GPU binds ${gpu.bindingBytes}`;
    }
    return "";
  }

  /** The bytes of its slot that an operand binds: all, or of a large slot those it touches. */
  private window(member: number, operand: number): [begin: number, end: number] {
    const { plan } = this;
    const { buffer } = this.steps[member]!.operands[operand]!;
    const bytes = plan.parts.slotBytes[buffer - BUFFERS.SLOT0]!;
    const { bindingBytes } = plan.device.gpu;
    // memory of a slot that grows may be smaller, and is when it is bound
    if (plan.parts.grows[buffer - BUFFERS.SLOT0]) return [0, Math.min(bytes, bindingBytes)];
    if (bytes <= bindingBytes) return [0, bytes];
    const [resolved] = plan.resolve(this.index + member, 1);
    const found = resolved!.operands[operand];
    return resolved!.registers || !found ? [0, bytes] : [found.begin, found.end];
  }

  /**
   * Where the operands of a step lie.
   * @param placed in GPUBuffers; otherwise those that share one are guessed: weights, and states
   */
  private spans(member: number, placed: boolean): (Span | null)[] {
    const { plan, steps } = this;
    const step = steps[member]!;
    const out: (Span | null)[] = [];
    for (const [i, v] of step.operands.entries()) {
      if (!v || isScratch(step, i) || this.isVirtual(member, i)) {
        out.push(null);
      } else if (v.buffer === BUFFERS.CONST) {
        const end = plan.buffers.constants.size;
        out.push({ number: CONSTANTS, begin: 0, end, zero: v.offset });
      } else {
        const [begin, end] = this.window(member, i);
        const slot = v.buffer - BUFFERS.SLOT0;
        let [number, at] = [v.buffer, 0];
        if (placed) {
          const { block, offset } = plan.bufferOf(slot);
          [number, at] = [block.number, offset];
        } else if (steps.length > 1) number = SHARED[plan.kinds[slot]!] ?? number;
        out.push({ number, begin: at + begin, end: at + end, zero: at + v.offset });
      }
    }
    return out;
  }

  /** Whether an operand is computed where it is used, so that its memory is not touched. */
  private isVirtual(member: number, index: number): boolean {
    const { name, output } = this.steps[member]!.contract!.operands[index]!;
    if (this.steps.length === 1) return false;
    if (this.head && member === 0) return output;
    if (this.tail && member === this.steps.length - 1) return !output;
    if (member >= this.steps.length - this.takers)
      return name === stagesOf(this.steps[member]!, this.plan.parts.largest)[0]!.takes![0];
    const { before, after } = this.stages[0]!;
    return (
      (this.head && name === before?.[0]) || ((this.tail || this.takers > 0) && name === after?.[0])
    );
  }

  /** Makes the programs for an arrangement, and begins to compile them. */
  private print({ roles, bindings }: Arrangement): void {
    const key = JSON.stringify([roles, bindings]);
    if (key === this.arrangement) return;
    this.arrangement = key;
    const { texts, pipelines, machine } = this.plan.device;
    const batch = this.steps.length > 1 ? this.batchOf(roles) : undefined;
    const { varied, steps, head, tail } = this;
    const ends = [head && textOf(steps[0]!), tail && textOf(steps.at(-1)!)];
    const others = this.kinds.map(([first], i) => textOf(first!, varied[i]));
    const taken = steps.slice(steps.length - this.takers).map((step) => textOf(step));
    const ways = [
      this.guarded,
      steps.length,
      this.ends,
      this.chain,
      batch?.swapped,
      batch?.columns,
    ];
    const all = `${[textOf(this.step, varied[0]), ends, others, taken, varied].join("\n")}${key}`;
    this.programs = this.stages.map((stage) => {
      const of = `${stage.name} ${ways.join(" ")}\n${all}`;
      let program = texts.get(of);
      if (!program) {
        const { step, guarded } = this;
        const shader = shaderOf(stage, step);
        program = program_of(
          linked(step),
          shader,
          roles[+head]!,
          bindings,
          guarded,
          batch ?? null,
          machine,
        );
        if (texts.size === MAX_PROGRAMS) texts.clear();
        texts.set(of, program);
      }
      return program;
    });
    this.fails = this.programs.some(({ fails }) => fails);
    this.pipelines = this.programs.map((program) => pipelines.get(program, this.where));
  }

  /** What a dispatch of several steps runs. */
  private batchOf(roles: Arrangement["roles"]): Batch {
    const { steps, varied, takers, ends } = this;
    const { largest } = this.plan.parts;
    const families = families_of(
      steps.map(({ kernel }) => kernel),
      ends,
    );
    const part = (step: PlanStep, variant: Variant, its: Role[]): Part => {
      return {
        step: linked(step),
        shader: shaderOf(variant, step),
        roles: its,
        varied: [],
        first: 0,
      };
    };
    const own = (i: number): Part =>
      part(steps[i]!, stagesOf(steps[i]!, largest)[0]!, roles[families[i]!]!);
    const end = (step: PlanStep, key: "computes" | "joins", its: Role[]): Part =>
      part(step, variantsOf(step.kernel).find((variant) => variant[key] !== undefined)!, its);
    const last = steps.map((_, i) => i).slice(steps.length - takers);
    return {
      records: steps.length,
      varied: varied[0]!,
      head: this.head ? end(steps[0]!, "computes", roles[0]!) : null,
      tail: this.tail ? end(steps.at(-1)!, "joins", roles.at(-1)!) : null,
      swapped: this.tail && isSwapped(steps),
      takers: last.map(own),
      apart: Math.max(...last.map((i) => apartOf(steps[i]!, largest))),
      chain: this.chain,
      columns: this.stages[0]!.columns?.(valuesOf(this.step, largest)) ?? 0,
      others: this.kinds.slice(1).map((_, i) => {
        const first = ends[i]!;
        return { ...own(first), first, varied: varied[i + 1]! };
      }),
    };
  }

  /** Makes the bind groups for the memory that the slots are bound to, and the records. */
  connect(): void {
    const arrangement = this.arranged(true);
    if (this.steps.length > 1) {
      this.divide(!this.fits(arrangement));
      this.list = this.members.flatMap(({ list }) => list);
      if (this.members.length) return;
    }
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
    this.list = groups.map((group, i) => {
      const [across, down] = folded(this.grids[i]!);
      return { program: this.pipelines[i]!, group, across, down };
    });
    this.placed = arrangement;
    this.start(0);
  }

  /** Has the next dispatches run workgroups from `first` on. */
  start(first: number): void {
    const { device, buffers } = this.plan;
    device.gpu.write(buffers.records, RECORD_BYTES * this.index, this.records(first));
  }

  /** Runs the steps one by one, or again in one dispatch. */
  private divide(apart: boolean): void {
    if (!apart) this.members = [];
    else if (!this.members.length)
      this.members = this.steps.map(
        (_, i) => new Launch(this.plan, alone(this.index + i), this.failing),
      );
    for (const member of this.members) member.connect();
  }

  /** @param start workgroups that earlier dispatches have run */
  private records(start: number): ArrayBuffer {
    const { steps, head, index, total } = this;
    const { offsets, choices } = this.placed!;
    const varied = this.kinds.flatMap((kind, i) => kind.map(() => this.varied[i]!));
    const view = new DataView(new ArrayBuffer(RECORD_BYTES * steps.length));
    let first = -start;
    steps.forEach((step, m) => {
      const put = (word: number, value: number): void =>
        view.setUint32(RECORD_BYTES * m + 4 * word, value >>> 0, true);
      offsets[m]!.forEach((offset, i) => {
        put(i, offset);
      });
      floats_of(linked(step)).forEach((name, i) => {
        const at = RECORD_BYTES * m + 4 * (FLOATS + i);
        view.setFloat32(at, step.params.get(name) as number, true);
      });
      put(STEP_WORD, index + m + 1);
      put(START, first);
      put(TOTAL, Math.max(total - start, 0));
      put(
        CHOICES,
        choices[m]!.reduce((sum, way, k) => sum | (way << (2 * k)), 0),
      );
      const count = this.counts[m - +head];
      if (count === undefined) return;
      first += count;
      varied[m - +head]!.forEach((name, i) => {
        put(VARIED + i, step.params.get(name) as number);
      });
    });
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
      entry(0, buffers.records, RECORD_BYTES * this.index, RECORD_BYTES * this.steps.length),
    ];
    if (program.registers) entries.push(entry(1, buffers.registers));
    if (program.fails || program.guarded) entries.push(entry(2, buffers.errors));
    const places = new Map([[CONSTANTS, buffers.constants]]);
    for (const slot of this.slots) {
      const { block } = this.plan.bufferOf(slot);
      places.set(block.number, block.gpu);
    }
    ranges.forEach(([number, begin, end], i) => {
      const buffer = places.get(number)!;
      const stop = Math.min(Math.max(end, begin + 4), buffer.size);
      entries.push(entry(FIRST_BINDING + i, buffer, begin, stop - begin));
    });
    return device.gpu.device.createBindGroup({ layout, entries });
  }
}
