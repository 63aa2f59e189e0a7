// The steps of a plan as a GPU runs them: parameters and offsets may be linear in registers. The
// twin of python/edgewise/compiler/gpu/steps.py. The engine has checked the plan.

import { KERNELS } from "../../gen/kernels.ts";
import { BUFFERS, LAYOUT, SLOT_GROWS } from "../../gen/plan_format.ts";
import {
  type ElementType,
  type KernelShaders,
  type OperandContract,
  SHADERS,
  type Values,
} from "../../gen/shaders.ts";
import { strided } from "../../logic/gpu/link.ts";
import {
  follows,
  Linear,
  type Operand,
  type Param,
  type Size,
  type Step,
} from "../../logic/gpu/steps.ts";

/** Where an operand lies, in bytes. `register`: the offset grows by its value * scale; -1: none. */
export interface StepOperand {
  /** BUFFERS.CONST, or BUFFERS.SLOT0 + the number of a slot. */
  buffer: number;
  offset: number;
  register: number;
  scale: number;
}

/** A step of a plan. */
export interface PlanStep {
  kernel: string;
  /** Undefined where the kernel has no shaders. */
  contract: KernelShaders | undefined;
  /** By name; empty without a contract. */
  params: Map<string, Param>;
  /** Names of parameters that are floats. */
  floats: Set<string>;
  /** In the order of the contract; undefined where absent. */
  operands: (StepOperand | undefined)[];
  /** Whether a parameter follows a register. */
  dynamic: boolean;
  /** What has been found out about it, shared by steps that differ in their memory alone. */
  memo: Memo;
}

/** Of steps with the same parameters and operands, wherever these lie. */
export interface Memo {
  /** Values of the parameters, and the registers that they were found for. */
  values?: [registers: readonly number[], values: Values];
  types: (ElementType | undefined)[];
  /** The step as its programs see it. */
  linked?: Step;
  /** By names of parameters that are left out. */
  texts: Map<string, string>;
  /** Of variants.ts and program.ts. */
  stages?: unknown;
  common?: string;
}

const { planHeader, registerEntry, slotEntry, stepHeader, patch, operand } = LAYOUT;

/** A parameter with these registers. */
export function withRegisters(param: Param, registers: readonly number[]): number | number[] {
  const at = (x: Size): number => (x instanceof Linear ? x.at(registers) : x);
  return Array.isArray(param) ? param.map(at) : at(param);
}

/** Of `declarations`: how the engine packs weights here, and whether WGSL has products of bytes. */
export type Packing = [columns: number, together: number, dots: boolean];

/** Whether steps run on a GPU in software, which takes long for barriers. */
export const mode = { serial: false };

/** The parameters with these registers, `has_<operand>` and `serial`. */
export function valuesOf(step: PlanStep, registers: readonly number[]): Values {
  const { memo } = step;
  if (memo.values?.[0] !== registers) memo.values = [registers, withoutMemo(step, registers)];
  return memo.values[1];
}

function withoutMemo(step: PlanStep, registers: readonly number[]): Values {
  const out: Record<string, unknown> = { ...mode };
  for (const [name, x] of step.params) out[name] = withRegisters(x, registers);
  step.contract?.operands.forEach(({ name }, i) => {
    out[`has_${name}`] = step.operands[i] !== undefined;
  });
  return out;
}

/** What a program depends on of a step. without: names of parameters that are left out. */
export function textOf(
  { kernel, params, operands, memo }: PlanStep,
  without: string[] = [],
): string {
  const key = without.join(" ");
  let found = memo.texts.get(key);
  if (found === undefined) {
    const exact = (x: Size): string =>
      x instanceof Linear
        ? `${x.register} ${x.scale} ${x.add}`
        : Object.is(x, -0)
          ? "-0"
          : String(x);
    found = `${kernel};`;
    for (const [name, x] of params)
      if (!without.includes(name))
        found += `${name} ${Array.isArray(x) ? x.map(exact).join() : exact(x)};`;
    for (const v of operands) found += v ? `${v.register} ${v.scale};` : ";";
    memo.texts.set(key, found);
  }
  return found;
}

/** Whether a step with these values of its parameters does nothing. */
export function isEmpty(step: PlanStep, values: Values): boolean {
  return step.contract!.empty.some((name) => {
    const count: unknown = values[name];
    return Array.isArray(count) ? count.includes(0) : count === 0;
  });
}

/** ONNX code of an operand's elements, 0 where they are only moved, and bytes per element. */
export function elementType(step: PlanStep, index: number): ElementType {
  const { type } = step.contract!.operands[index]! as OperandContract;
  if (typeof type !== "function") return type;
  return (step.memo.types[index] ??= type(Object.fromEntries(step.params)));
}

/** A step as its programs see it. */
export const linked = (step: PlanStep): Step => (step.memo.linked ??= link(step));

function link(step: PlanStep): Step {
  const { kernel, params, floats, contract } = step;
  const operands = contract!.operands.map(({ name, output, strided }, i): Operand => {
    const v = step.operands[i];
    const [dims, strides] = strided ?? ["", ""];
    const [dtype, nbytes] = elementType(step, i);
    const { register, scale } = v ?? { register: -1, scale: 0 };
    return { name, output, present: !!v, dims, strides, dtype, nbytes, register, scale };
  });
  return { kernel, params, floats, operands };
}

/** Whether elements of an operand are read by their numbers, one after the other. */
export function isInOrder({ contract, params }: PlanStep, index: number): boolean {
  const [sizes, strides] = contract!.operands[index]!.strided?.map((x) => params.get(x)) ?? [];
  if (!Array.isArray(sizes) || !Array.isArray(strides)) return true;
  return strided(sizes, strides) === strided([2], [1]);
}

/** Whether an operand is working memory of the C function, in the engine's own arena. */
export function isScratch({ operands, contract }: PlanStep, index: number): boolean {
  const named = contract!.operands[index]!.name;
  return operands[index]?.buffer === BUFFERS.ARENA && named === "scratch";
}

/** What a device reads of a plan. */
export interface PlanParts {
  steps: PlanStep[];
  initCount: number;
  constants: Uint8Array;
  /** The byte after the last step. */
  end: number;
  /** Lowest and highest value of each register. */
  registers: [low: number, high: number][];
  /** The highest values. */
  largest: readonly number[];
  /** Sets the registers that follow from others. */
  derive(values: number[]): void;
  /** Bytes of each slot, and whether it may be bound to less memory. */
  slotBytes: number[];
  grows: boolean[];
}

/** The kernels of a plan that the engine has checked, those of init steps included. */
export function kernelsOf(plan: Uint8Array): Set<string> {
  const view = new DataView(plan.buffer, plan.byteOffset, plan.byteLength);
  const { at: head } = planHeader;
  const kernels = new Set<string>();
  let at = Number(view.getBigInt64(head.steps_at, true));
  let left = view.getUint32(head.n_init_steps, true) + view.getUint32(head.n_steps, true);
  for (; left; left--) {
    kernels.add(kernelAt(view, at));
    at += view.getUint32(at + stepHeader.at.step_bytes, true);
  }
  return kernels;
}

const kernelAt = (view: DataView, step: number): string =>
  KERNELS[view.getUint16(step + stepHeader.at.kernel, true)]![0];

/**
 * Reads a plan that the engine has checked.
 * @param tuned values of tunables, which become parameters; others have their defaults
 */
export function partsOf(plan: Uint8Array, tuned: Readonly<Record<string, number>> = {}): PlanParts {
  const view = new DataView(plan.buffer, plan.byteOffset, plan.byteLength);
  const wide = (at: number): number => Number(view.getBigInt64(at, true));
  const { at: head } = planHeader;
  const initCount = view.getUint32(head.n_init_steps, true);
  const count = initCount + view.getUint32(head.n_steps, true);
  const constAt = wide(head.const_at);
  const registersAt = wide(head.registers_at);
  const slotsAt = wide(head.slots_at);
  const steps: PlanStep[] = [];
  const known = new Map<string, PlanStep>();
  let at = wide(head.steps_at);
  for (let i = 0; i < count; i++) {
    steps.push(stepAt(plan, view, at, known, tuned));
    at += view.getUint32(at + stepHeader.at.step_bytes, true);
  }
  const registers = Array.from(
    { length: view.getUint32(head.n_registers, true) },
    (_, i): [number, number] => {
      const entry = registersAt + i * registerEntry.bytes;
      return [wide(entry + registerEntry.at.min), wide(entry + registerEntry.at.max)];
    },
  );
  const slots = Array.from(
    { length: view.getUint32(head.n_slots, true) },
    (_, i) => slotsAt + i * slotEntry.bytes,
  );
  return {
    steps,
    initCount,
    end: at,
    constants: plan.subarray(constAt, constAt + wide(head.const_bytes)),
    registers,
    largest: registers.map(([, high]) => high),
    derive(values) {
      values.forEach((_, i) => {
        const entry = registersAt + i * registerEntry.bytes;
        const of = (name: "of_ab" | "of_a" | "of_b" | "add" | "divisor"): number =>
          wide(entry + registerEntry.at[name]);
        if (!of("divisor")) return;
        const a = values[view.getUint32(entry + registerEntry.at.a, true)]!;
        const b = values[view.getUint32(entry + registerEntry.at.b, true)]!;
        const sum = of("of_ab") * a * b + of("of_a") * a + of("of_b") * b + of("add");
        values[i] = Math.floor(sum / of("divisor"));
      });
    },
    slotBytes: slots.map((at) => wide(at + slotEntry.at.bytes)),
    grows: slots.map((at) => (view.getUint32(at + slotEntry.at.flags, true) & SLOT_GROWS) !== 0),
  };
}

/**
 * The step at a byte.
 * @param known steps that were read before, one of those that are alike
 */
function stepAt(
  plan: Uint8Array,
  view: DataView,
  at: number,
  known: Map<string, PlanStep>,
  tuned: Readonly<Record<string, number>>,
): PlanStep {
  const wide = (byte: number): number => Number(view.getBigInt64(byte, true));
  const kernel = kernelAt(view, at);
  const paramsAt = at + stepHeader.bytes;
  const patchesAt =
    paramsAt + Math.ceil(view.getUint32(at + stepHeader.at.param_bytes, true) / 8) * 8;
  const operandsAt = patchesAt + view.getUint16(at + stepHeader.at.n_patches, true) * patch.bytes;
  const operands: (StepOperand | undefined)[] = [];
  let form = `${kernel} ${plan.subarray(paramsAt, operandsAt).join()}`;
  for (let i = view.getUint16(at + stepHeader.at.n_operands, true), o = operandsAt; i; i--) {
    const buffer = view.getUint32(o + operand.at.buffer, true);
    if (buffer === BUFFERS.NONE) {
      operands.push(undefined);
      form += " -";
    } else {
      const offset = wide(o + operand.at.offset);
      const register = view.getInt32(o + operand.at.reg, true) - 1;
      const scale = wide(o + operand.at.scale);
      operands.push({ buffer, offset, register, scale });
      form += ` ${offset % 4} ${register} ${scale}`;
    }
    o += operand.bytes;
  }
  const alike = known.get(form);
  if (alike) return { ...alike, operands };
  const patches = new Map<number, Linear>();
  for (let p = patchesAt; p < operandsAt; p += patch.bytes)
    patches.set(
      view.getUint32(p + patch.at.field, true),
      new Linear(
        view.getUint32(p + patch.at.reg, true),
        wide(p + patch.at.scale),
        wide(p + patch.at.add),
      ),
    );
  const contract = SHADERS[kernel];
  const [params, floats] = paramsOf(contract, view, paramsAt, patches);
  for (const [name, values] of Object.entries(contract?.tune ?? {}))
    params.set(name, tuned[name] ?? values[0]!);
  const dynamic = [...params.values()].some(follows);
  const memo: Memo = { types: [], texts: new Map() };
  const step = { kernel, contract, params, floats, operands, dynamic, memo };
  known.set(form, step);
  return step;
}

/** The parameters of a step, and the names of those that are floats. */
function paramsOf(
  contract: KernelShaders | undefined,
  view: DataView,
  at: number,
  patches: ReadonlyMap<number, Linear>,
): [params: Map<string, Param>, floats: Set<string>] {
  const params = new Map<string, Param>();
  const floats = new Set<string>();
  let field = 0;
  for (const word of contract?.params.split(" ") ?? []) {
    const [, name, float, size] = /^(\w+)(:f32)?(?:\[(\d+)\])?$/.exec(word)!;
    const numbers = Array.from(
      { length: size === undefined ? 1 : +size },
      (_, i): Size => patches.get(field + i) ?? view.getInt32(at + 4 * (field + i), true),
    );
    if (float) {
      floats.add(name!);
      params.set(name!, view.getFloat32(at + 4 * field, true));
    } else params.set(name!, size === undefined ? numbers[0]! : numbers);
    field += numbers.length;
  }
  return [params, floats];
}

/** Whether a step reads and writes float32 one after the other. */
export function isPlain(step: PlanStep): boolean {
  return step.contract!.operands.every(({ strided }, i) => {
    if (!strided) return false;
    const [sizes, strides] = strided.map((name) => step.params.get(name)) as [Param, Param];
    if (!Array.isArray(sizes) || !Array.isArray(strides)) return false;
    return (
      sizes.slice(0, -1).every((x) => x === 1) &&
      strides.at(-1) === 1 &&
      elementType(step, i)[0] === 1
    );
  });
}
