// The GPU program of a plan: which of its steps run in one dispatch. The compiler has written it
// (python/edgewise/compiler/gpu/program.py). Here it is read, and checked as far as a package could
// gain from a wrong one: steps that share a body have its parameters, and what one takes from
// another is as long as what that gives, so that a dispatch does the work of its steps and touches
// what they touch, which the engine in C has checked. Whether they may run at once is the
// compiler's to know.

import type { End } from "../../gen/shaders.ts";
import { MAX_STEPS, MAX_VARIED } from "../../logic/gpu/link.ts";
import { follows } from "../../logic/gpu/steps.ts";
import { PlanError } from "../../shared/errors.ts";
import type { ResolvedStep } from "../wasm/resolve.ts";
import {
  elementType,
  isInOrder,
  isPlain,
  isScratch,
  mode,
  type PlanParts,
  type PlanStep,
  type StepOperand,
  textOf,
  valuesOf,
} from "./steps.ts";
import { apartOf, countOf, stagesOf, type Variant, variantsOf } from "./variants.ts";

/** Names of the parameters in which steps may differ; none for a step alone. */
export function variedIn(steps: readonly PlanStep[]): string[] {
  return steps.length > 1 ? namesOf(steps[0]!.contract!.alike?.vary) : [];
}

const namesOf = (words = ""): string[] => words.split(" ").filter(Boolean);

/** Steps first to end - 1, which one dispatch runs. */
export interface Group {
  first: number;
  end: number;
  /** Whether the first one computes an operand of the others. */
  head: boolean;
  /** Whether the last one joins the results of the two before it. */
  tail: boolean;
  /** After the steps of each kind, where several have bodies of single elements. */
  ends: readonly number[];
  /** Steps at the end of which each takes the result of one before them (Taker in wgsl.ts). */
  takers: number;
  /** Whether one workgroup runs one kind after the other. */
  chain: boolean;
}

const MAGIC = "EDGEGPU1";
/** What is said of a plan that has none. */
export const WITHOUT =
  "has no GPU program: its steps run one by one, which takes longer. Build the package again.";
/** Bits of a group's flags. */
const FLAG = { HEAD: 1, TAIL: 2, CHAIN: 4 } as const;
/** Kinds of steps in one program. */
const MAX_KINDS = 4;
/** Steps of one workgroup, and its rounds for a step whose length follows registers. */
const MAX_IN_CHAIN = 16;
const ROUNDS = 32;

/** The group of a step that runs alone. */
export const alone = (step: number): Group => ({
  first: step,
  end: step + 1,
  head: false,
  tail: false,
  ends: [],
  takers: 0,
  chain: false,
});

/**
 * The groups of several steps of a plan, by their first one; undefined where it has no program.
 * @param resolved what the steps touch
 * @throws PlanError the program is damaged
 */
export function readProgram(
  plan: Uint8Array,
  parts: PlanParts,
  resolved: readonly Pick<ResolvedStep, "operands">[],
  where: string,
): Map<number, Group> | undefined {
  const at = Math.ceil(parts.end / 16) * 16;
  const text = new TextDecoder().decode(plan.subarray(at));
  if (!text.startsWith(MAGIC)) return undefined;
  const groups = new Map<number, Group>();
  try {
    const classes = JSON.parse(text.slice(MAGIC.length)) as Record<string, number[][]>;
    const check = new Check(parts, resolved);
    let next = 0;
    const found = classes[mode.serial ? "serial" : "hardware"]!;
    for (const [first, end, flags, takers, ...ends] of found) {
      const group: Group = {
        first: first!,
        end: end!,
        head: (flags! & FLAG.HEAD) > 0,
        tail: (flags! & FLAG.TAIL) > 0,
        ends,
        takers: takers!,
        chain: (flags! & FLAG.CHAIN) > 0,
      };
      if (!(first! >= next && check.holds(group))) throw new RangeError(`step ${String(first)}`);
      groups.set(first!, group);
      next = end!;
    }
  } catch {
    throw new PlanError(
      "its GPU program does not fit its steps",
      where,
      "The package is damaged: build it again.",
    );
  }
  return groups;
}

const same = (a: StepOperand | undefined, b: StepOperand | undefined): boolean =>
  a === b ||
  (!!a &&
    !!b &&
    a.buffer === b.buffer &&
    a.offset === b.offset &&
    a.register === b.register &&
    a.scale === b.scale);

/** Compares groups with the steps of a plan. */
class Check {
  private readonly steps: readonly PlanStep[];
  private readonly largest: readonly number[];

  constructor(
    private readonly parts: PlanParts,
    private readonly resolved: readonly Pick<ResolvedStep, "operands">[],
  ) {
    ({ steps: this.steps, largest: this.largest } = parts);
  }

  /** Whether a program for these steps can be composed, and does what they do. */
  holds(group: Group): boolean {
    const { first, end, head, tail, ends, takers, chain } = group;
    const numbers = [first, end, takers, ...ends];
    if (!numbers.every((x) => Number.isInteger(x) && x >= 0 && x <= this.steps.length))
      return false;
    if (end - first < 2 || end - first > MAX_STEPS) return false;
    if (first < this.parts.initCount && end > this.parts.initCount) return false;
    for (let i = first; i < end; i++)
      if (!stagesOf(this.steps[i]!, this.largest).length) return false;
    const begin = first + +head;
    const behind = end - +tail - takers;
    if (ends.length || chain)
      return !head && !tail && !takers && this.kinds(first, end, ends, chain);
    if (behind <= begin || !this.alike(begin, behind)) return false;
    for (let part = begin; head && part < behind; part++)
      if (!this.reads(part, first)) return false;
    if (tail) return !takers && behind - begin === 2 && this.joins(begin, behind);
    return !takers || (takers === behind - begin && this.taken(begin, behind));
  }

  /** The only shader of a step; undefined where several run it. */
  private stage(index: number): Variant | undefined {
    const [stage, ...more] = stagesOf(this.steps[index]!, this.largest);
    return more.length ? undefined : stage;
  }

  /** Whether one body can run steps. */
  private alike(begin: number, end: number): boolean {
    const stage = this.stage(begin);
    if (!stage) return false;
    if (end - begin === 1) return true;
    const common = this.common(begin);
    if (common === "") return false;
    for (let i = begin + 1; i < end; i++)
      if (this.stage(i) !== stage || this.common(i) !== common) return false;
    return true;
  }

  /** What steps with one body agree in; "" where a step runs alone. */
  private common(index: number): string {
    const step = this.steps[index]!;
    return (step.memo.common ??= this.commonOf(step, this.stage(index)));
  }

  private commonOf(step: PlanStep, stage: Variant | undefined): string {
    const { contract, params, operands } = step;
    const rule = contract!.alike;
    if (!rule || !stage) return "";
    const vary = namesOf(rule.vary);
    const counted = [...namesOf(stage.counted), ...contract!.empty, ...vary];
    if (vary.length > MAX_VARIED || counted.some((name) => follows(params.get(name) ?? 0)))
      return "";
    const values = valuesOf(step, this.largest);
    const types = operands.map((v, i) => v && !isScratch(step, i) && elementType(step, i));
    const same = rule.same.map((condition) => condition(values));
    return `${textOf(step, vary)}${types.join(";")} ${same.join()}`;
  }

  // ---- kinds of steps with bodies of single elements
  private kinds(first: number, end: number, ends: readonly number[], chain: boolean): boolean {
    if (ends.at(-1) !== end || ends.length < 2) return false;
    if (ends.length > MAX_KINDS * (1 + +chain) || (chain && end - first > MAX_IN_CHAIN))
      return false;
    const size = this.stage(first)?.group;
    let begin = first;
    for (const behind of ends) {
      if (behind <= begin || !this.alike(begin, behind)) return false;
      const { threads, group } = this.stage(begin)!;
      if (!threads || group !== size) return false;
      begin = behind;
    }
    for (let i = first; chain && i < end; i++) if (!this.isSmall(i)) return false;
    return true;
  }

  /** Whether one workgroup suffices for a step with a body of single elements. */
  private isSmall(index: number): boolean {
    const stage = this.stage(index)!;
    const most = this.varies(index, stage) ? ROUNDS : 1;
    return !mode.serial && countOf(stage, valuesOf(this.steps[index]!, this.largest)) <= most;
  }

  /** Whether registers decide how many workgroups a step has, or whether it does anything. */
  private varies(index: number, { counted }: Variant): boolean {
    const { params, contract } = this.steps[index]!;
    return [...namesOf(counted), ...contract!.empty].some((name) => follows(params.get(name) ?? 0));
  }

  // ---- a step that computes an operand of those after it
  /** What a shader of a step declares under a key; undefined where none does, or does not apply. */
  private declares(index: number, key: "computes" | "joins"): string | undefined {
    const step = this.steps[index]!;
    if (step.dynamic) return undefined;
    const values = valuesOf(step, this.largest);
    return variantsOf(step.kernel).find(
      (variant) => variant[key] !== undefined && (variant.when?.(values) ?? true),
    )?.[key];
  }

  /** Whether step `head` computes an operand of step `part`. */
  private reads(part: number, head: number): boolean {
    const made = this.declares(head, "computes");
    const before = this.stage(part)?.before;
    if (made === undefined || !before || !this.applies(part, before)) return false;
    const read = this.operand(part, before[0]);
    if (!read || !same(read, this.operand(head, made)) || read.register >= 0) return false;
    return this.bytes(part, before[0]) === this.bytes(head, made);
  }

  private indexOf(step: number, name: string): number {
    return this.steps[step]!.contract!.operands.findIndex((operand) => operand.name === name);
  }

  private operand(step: number, name: string): StepOperand | undefined {
    return this.steps[step]!.operands[this.indexOf(step, name)];
  }

  /** Bytes that a step touches of an operand. */
  private bytes(step: number, name: string): number {
    const { begin, end } = this.resolved[step]!.operands[this.indexOf(step, name)]!;
    return end - begin;
  }

  private applies(index: number, [, when]: End): boolean {
    const step = this.steps[index]!;
    return !step.dynamic && when(valuesOf(step, this.largest));
  }

  // ---- a step that joins the results of two
  /** Whether step `tail` joins the results of steps `begin` and `begin` + 1. */
  private joins(begin: number, tail: number): boolean {
    const joined = this.declares(tail, "joins")?.split(" ");
    const rule = this.stage(begin)?.after;
    if (!joined || !rule || !this.applies(begin, rule) || !isPlain(this.steps[tail]!)) return false;
    if (textOf(this.steps[begin]!) !== textOf(this.steps[begin + 1]!)) return false;
    if (this.bytes(begin, rule[0]) !== this.bytes(tail, joined[2]!)) return false;
    const [a, b] = joined.map((name) => this.operand(tail, name));
    const [p, q] = [begin, begin + 1].map((part) => this.operand(part, rule[0]));
    return !same(p, q) && ((same(p, a) && same(q, b)) || (same(p, b) && same(q, a)));
  }

  // ---- steps that take the results of as many products
  /** Whether the steps after steps `begin` to `after` - 1 take their results. */
  private taken(begin: number, behind: number): boolean {
    const { after, columns } = this.stage(begin) ?? {};
    if (!after || !columns) return false;
    const apart = new Set<number>();
    for (let part = begin; part < behind; part++) {
      const taker = part + behind - begin;
      if (!this.applies(part, after) || !this.takes(part, after[0], taker)) return false;
      apart.add(apartOf(this.steps[taker]!, this.largest));
    }
    apart.delete(0);
    const [half] = apart as Iterable<number>;
    if (apart.size !== 1 || half! % columns(valuesOf(this.steps[begin]!, this.largest)))
      return false;
    for (let part = begin; part < behind; part++)
      if (this.bytes(part, after[0]) % (8 * half!)) return false;
    return true;
  }

  /** Whether step `taker` takes the float32 numbers that step `part` writes to an operand. */
  private takes(part: number, name: string, taker: number): boolean {
    const step = this.steps[taker]!;
    const stage = this.stage(taker);
    if (!stage?.takes || !stage.threads || this.varies(taker, stage)) return false;
    const [operand, when] = stage.takes;
    const read = this.operand(taker, operand);
    if (!read || !same(read, this.operand(part, name)) || read.register >= 0) return false;
    const index = this.indexOf(taker, operand);
    const values = valuesOf(step, this.largest);
    const all = 4 * stage.count(values) * (stage.apart ? 2 : 1) === this.bytes(part, name);
    return all && when(values) && isInOrder(step, index) && elementType(step, index)[1] === 4;
  }
}

/** Whether the last step, which joins the results of the two before it, has them in reverse. */
export function isSwapped(steps: readonly PlanStep[]): boolean {
  const [part, , tail] = steps.slice(-3) as [PlanStep, PlanStep, PlanStep];
  const [a] = variantsOf(tail.kernel)
    .find(({ joins }) => joins)!
    .joins!.split(" ");
  const joined = tail.operands[tail.contract!.operands.findIndex(({ name }) => name === a)];
  return !part.operands.some((v, i) => part.contract!.operands[i]!.output && same(v, joined));
}
