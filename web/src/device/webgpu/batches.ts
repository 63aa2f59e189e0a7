// Which neighbouring steps of a plan run in one dispatch. The twin of
// python/edgewise/compiler/gpu/batches.py: the compiler has put such steps side by side, and they
// are recognised here, so that nothing depends on a package being right.

import { BUFFERS } from "../../gen/plan_format.ts";
import type { End } from "../../gen/shaders.ts";
import type { ResolvedStep } from "../wasm/resolve.ts";
import { isScratch } from "./arrange.ts";
import { isInOrder, MOST } from "./link.ts";
import {
  elementType,
  follows,
  isLinear,
  isPlain,
  mode,
  type PlanStep,
  type StepOperand,
  valuesOf,
} from "./steps.ts";
import { apartOf, countOf, stagesOf, type Variant, variantsOf } from "./variants.ts";

/** Names of the parameters in which steps may differ; none for a step alone. */
export function variedIn(steps: readonly PlanStep[]): string[] {
  return steps.length > 1 ? namesOf(steps[0]!.contract!.alike?.vary) : [];
}

const namesOf = (words = ""): string[] => words.split(" ").filter(Boolean);

/** JSON of parameters; it has no negative zero, no infinities and no NaN. */
export const jsonOf = (x: unknown): string =>
  JSON.stringify(x, (_, y: unknown) =>
    typeof y === "number" && (Object.is(y, -0) || !Number.isFinite(y)) ? `${1 / y} ${y}` : y,
  );

/** Steps first to end - 1, which one dispatch runs. */
export interface Group {
  first: number;
  end: number;
  /** Whether the first one computes an operand of the others. */
  head: boolean;
  /** Whether the last one joins the results of the two before it. */
  tail: boolean;
  /** Behind the steps of each kind, where several have bodies of single elements. */
  ends: number[];
  /** Steps at the end of which each takes the result of one before them (Taker in wgsl.ts). */
  takers: number;
  /** Whether one workgroup runs one kind after the other. */
  chain: boolean;
}

/** Kinds of steps in one program. */
const MOST_KINDS = 4;
/** Steps of one workgroup, and its rounds for a step whose length follows registers. */
const MOST_IN_CHAIN = 16;
const ROUNDS = 32;
/** Workgroups that may have nothing to do. */
const IDLE = 1024;

/** Bytes that a step touches. */
interface Range {
  buffer: number;
  begin: number;
  end: number;
  written: boolean;
  /** Bytes from one row to the next, and those that are touched of each; 0: there are no rows. */
  period: number;
  width: number;
}

function clash(a: Range, b: Range): boolean {
  if (a.buffer !== b.buffer || !(a.written || b.written)) return false;
  if (a.begin >= b.end || b.begin >= a.end) return false;
  const { period } = a;
  if (!period || period !== b.period) return true;
  const behind = (((b.begin - a.begin) % period) + period) % period; // columns of one matrix
  return !(a.width <= behind && behind <= period - b.width);
}

/** Extent and stride of the dimensions of an operand that are not 1, smallest stride first. */
function spansOf(
  step: PlanStep,
  index: number,
  registers: readonly number[],
): (readonly [extent: number, stride: number])[] | undefined {
  const { strided, layout } = step.contract!.operands[index]!;
  if (!strided && !layout) return undefined;
  const values = valuesOf(step, registers);
  const pairs = strided ? [strided] : layout!.split(", ").map((part) => part.split(":"));
  const dims: [number, number][] = [];
  for (const [extent, stride = "1"] of pairs) {
    const [sizes, steps] = [extent!, stride].map((x): unknown => values[x] ?? Number(x));
    if (Array.isArray(sizes) && Array.isArray(steps))
      sizes.forEach((d: number, i) => {
        dims.push([d, steps[i] as number]);
      });
    else if (Array.isArray(sizes) || Array.isArray(steps)) return undefined;
    else dims.push([sizes as number, steps as number]);
  }
  const found = dims.filter(([d]) => d !== 1).sort(([, s], [, t]) => s - t);
  return found.some(([d, s]) => d < 1 || s < 1) ? undefined : found;
}

/** Bytes from one row of an operand to the next, and those of a row that it touches. */
function rowsOf(step: PlanStep, index: number): [period: number, width: number] {
  const dims = spansOf(step, index, []) ?? [];
  const [, size] = elementType(step, index);
  let span = 1;
  for (const [i, [d, s]] of dims.entries()) {
    if (i && span <= s && dims.slice(i).every(([, more]) => more % s === 0))
      return [s * size, span * size];
    span += (d - 1) * s;
  }
  return [0, 0];
}

/** Bytes from element 0 that a step touches with any values of the registers; 0: not known. */
function mostBytes(step: PlanStep, index: number, largest: readonly number[]): number {
  const numbers = [...step.params.values()].flat();
  if (numbers.some((x) => isLinear(x) && x.scale < 0)) return 0;
  const dims = spansOf(step, index, largest);
  if (!dims) return 0;
  return elementType(step, index)[1] * dims.reduce((sum, [d, s]) => sum + (d - 1) * s, 1);
}

const same = (a: StepOperand | undefined, b: StepOperand | undefined): boolean =>
  a === b ||
  (!!a &&
    !!b &&
    a.buffer === b.buffer &&
    a.offset === b.offset &&
    a.register === b.register &&
    a.scale === b.scale);

/** Finds the groups of a plan. */
export class Grouping {
  private readonly stages: Variant[][];

  /**
   * @param resolved what the steps touch
   * @param largest highest values of the registers
   * @param temporary whether the contents of a buffer of operands end with the run
   * @param kept whether a run that fails must not change it
   */
  constructor(
    private readonly steps: readonly PlanStep[],
    private readonly resolved: readonly Pick<ResolvedStep, "operands">[],
    private readonly largest: readonly number[],
    private readonly temporary: (buffer: number) => boolean,
    private readonly kept: (buffer: number) => boolean,
  ) {
    this.stages = steps.map((step) => stagesOf(step, largest));
  }

  /** The group that begins with step `first`; `end`: behind its last step at most. */
  at(first: number, end: number): Group {
    let head = this.headReads(first, end);
    let begin = first + +head;
    let behind = this.alike(begin, end);
    if (head && !this.headFits(first, behind)) {
      [head, begin] = [false, first];
      behind = this.alike(first, end);
    }
    const tail = behind < end && behind - begin === 2 && this.tailFits(first, begin, behind);
    const takers = tail ? 0 : this.takers(first, begin, behind, end);
    if (head || tail || takers)
      return { first, end: behind + +tail + takers, head, tail, ends: [], takers, chain: false };
    const [found, chain] = this.kinds(first, behind, end);
    const ends = found.length > 1 ? found : [];
    return { first, end: found.at(-1)!, head, tail, ends, takers, chain };
  }

  /**
   * Behind the steps of each kind that can run at once with steps first to behind - 1; or one after
   * the other, where a workgroup suffices for each.
   */
  private kinds(first: number, behind: number, most: number): [ends: number[], chain: boolean] {
    const ends = [behind];
    let chain = false;
    const rangesIn = (from: number, to: number): Range[] =>
      Array.from({ length: to - from }, (_, i) => this.ranges(from + i)).flat();
    const touched = rangesIn(first, behind);
    const group = this.single(first);
    let fails = this.fails(first);
    const end = Math.min(most, first + MOST.STEPS - 2);
    while (group && ends.at(-1)! < end && ends.length < MOST_KINDS * (1 + +chain)) {
      const begin = ends.at(-1)!;
      const next = this.alike(begin, end);
      const ranges = rangesIn(begin, next);
      if (this.single(begin) !== group) break;
      if (chain || ranges.some((a) => touched.some((b) => clash(a, b)))) {
        if (next - first > MOST_IN_CHAIN) break;
        if (!this.steps.slice(first, next).every((_, i) => this.isSmall(first + i))) break;
        chain = true;
      }
      fails ||= this.fails(begin);
      touched.push(...ranges);
      // states are not written once an index was out of range
      if (fails && touched.some(({ buffer, written }) => written && this.kept(buffer))) break;
      ends.push(next);
    }
    return [ends, chain];
  }

  /** Whether one workgroup suffices for a step with a body of single elements. */
  private isSmall(index: number): boolean {
    const values = valuesOf(this.steps[index]!, this.largest);
    const most = this.varies(index) ? ROUNDS : 1;
    return !mode.serial && countOf(this.stages[index]![0]!, values) <= most;
  }

  /** Whether registers decide how many workgroups a step has, or whether it does anything. */
  private varies(index: number): boolean {
    const { params, contract } = this.steps[index]!;
    const counted = [...namesOf(this.stages[index]![0]!.counted), ...contract!.empty];
    return counted.some((name) => follows(params.get(name)));
  }

  /**
   * Invocations in a workgroup of a step whose body computes single elements; 0 for others. Where
   * registers decide how many there are, the dispatch has workgroups for the most.
   */
  private single(index: number): number {
    const step = this.steps[index]!;
    const [stage, ...more] = this.stages[index]!;
    if (!stage?.threads || more.length) return 0;
    if (this.varies(index) && countOf(stage, valuesOf(step, this.largest)) > IDLE) return 0;
    return stage.group;
  }

  /** Whether the body of a step can find an index that is out of range. */
  private fails(index: number): boolean {
    return this.stages[index]![0]?.body.includes("fail(") ?? false;
  }

  /** The step behind neighbours that one body can run. */
  private alike(first: number, end: number): number {
    const common = this.common(first);
    if (common === undefined) return first + 1;
    const touched: Range[] = [];
    const stages = this.stages[first]!;
    let last = first;
    while (last < Math.min(end, first + MOST.STEPS - 2)) {
      const its = this.stages[last]!;
      const fits = its.length === stages.length && its.every((stage, i) => stage === stages[i]);
      if (last > first && (!fits || this.common(last) !== common)) break;
      const ranges = this.ranges(last);
      if (ranges.some((a) => touched.some((b) => clash(a, b)))) break;
      touched.push(...ranges);
      last++;
    }
    return Math.max(last, first + 1);
  }

  /** What steps of a batch agree in; undefined where a step runs alone. */
  private common(index: number): string | undefined {
    const step = this.steps[index]!;
    const [stage, ...more] = this.stages[index]!;
    const { kernel, contract, params, operands } = step;
    const rule = contract?.alike;
    if (!rule || !stage || more.length) return undefined;
    const vary = namesOf(rule.vary);
    const counted = [...namesOf(stage.counted), ...contract.empty, ...vary];
    if (counted.some((name) => follows(params.get(name)))) return undefined;
    const values = valuesOf(step, this.largest);
    return jsonOf([
      kernel,
      [...params].filter(([name]) => !vary.includes(name)),
      rule.same.map((condition) => condition(values)),
      operands.map(
        (v, i) => v && !isScratch(step, i) && [elementType(step, i), v.register, v.scale],
      ),
    ]);
  }

  /**
   * What a step touches, all of a buffer where that follows registers.
   * @param without name of an operand that is left out
   */
  private ranges(index: number, without = ""): Range[] {
    const step = this.steps[index]!;
    const resolved = this.resolved[index]!.operands;
    return step.operands.flatMap((v, i): Range[] => {
      const { name, output } = step.contract!.operands[i] ?? { name: "", output: false };
      const found = resolved[i];
      if (!v || !found || isScratch(step, i) || name === without) return [];
      const [buffer, written] = [v.buffer, output];
      if (!step.dynamic && v.register < 0) {
        const [period, width] = rowsOf(step, i);
        return [{ buffer, begin: found.begin, end: found.end, written, period, width }];
      }
      const bytes = v.register < 0 ? mostBytes(step, i, this.largest) : 0;
      const [begin, end] = bytes ? [v.offset, v.offset + bytes] : [0, Infinity];
      return [{ buffer, begin, end, written, period: 0, width: 0 }];
    });
  }

  // ---- a step that computes an operand of those behind it
  /** Whether a step can be computed within the body of the one behind it. */
  private headReads(first: number, end: number): boolean {
    return first + 1 < end && this.operandFrom(first + 1, first) !== undefined;
  }

  /** What a shader of a step declares under a key; undefined where none does, or does not apply. */
  private declares(index: number, key: "computes" | "joins"): string | undefined {
    const step = this.steps[index]!;
    if (step.dynamic) return undefined;
    const values = step.contract && valuesOf(step, this.largest);
    return variantsOf(step.kernel).find(
      (variant) => variant[key] !== undefined && (variant.when?.(values!) ?? true),
    )?.[key];
  }

  /** The operand of step `part` that step `head` computes; undefined where it cannot. */
  private operandFrom(part: number, head: number): string | undefined {
    const made = this.declares(head, "computes");
    const [stage, ...more] = this.stages[part]!;
    if (made === undefined || !stage?.before || more.length) return undefined;
    if (!this.holds(part, stage.before)) return undefined;
    const [name] = stage.before;
    const read = this.operand(part, name);
    return read && same(read, this.operand(head, made)) && read.register < 0 ? name : undefined;
  }

  private indexOf(step: number, name: string): number {
    return this.steps[step]!.contract!.operands.findIndex((operand) => operand.name === name);
  }

  private operand(step: number, name: string): StepOperand | undefined {
    return this.steps[step]!.operands[this.indexOf(step, name)];
  }

  private holds(index: number, [, when]: End): boolean {
    const step = this.steps[index]!;
    return !step.dynamic && when(valuesOf(step, this.largest));
  }

  /** Whether step `head` need not be run if the steps behind it, up to `end`, compute it. */
  private headFits(head: number, end: number): boolean {
    const touched = this.ranges(head).filter(({ written }) => !written);
    for (let part = head + 1; part < end; part++) {
      const name = this.operandFrom(part, head);
      if (name === undefined) return false;
      if (this.ranges(part, name).some((a) => touched.some((b) => clash(a, b)))) return false;
    }
    return this.unread(head, this.declares(head, "computes")!, end);
  }

  /** Whether nothing from step `end` on reads what a step writes. */
  private unread(index: number, name: string, end: number): boolean {
    const found = this.resolved[index]!.operands[this.indexOf(index, name)]!;
    if (!this.temporary(found.buffer)) return false;
    for (let later = end; later < this.steps.length; later++) {
      const { contract, operands } = this.steps[later]!;
      const hits = this.resolved[later]!.operands.flatMap((r, i) => {
        const v = operands[i];
        if (!v || !r || r.buffer !== found.buffer) return [];
        // what follows registers may be longer, but begins in the tensor that it reads
        const from = v.offset - found.begin;
        const overlaps = r.begin < found.end && found.begin < r.end;
        if (!overlaps && !(from >= 0 && from < found.end - found.begin)) return [];
        const operand = contract?.operands[i];
        return [!!operand?.output && !operand.updated];
      });
      if (hits.length) return hits.every(Boolean); // what is written there next is another tensor
    }
    return true;
  }

  // ---- a step that joins the results of two
  /** Whether step `tail` only joins the results of steps `begin` and `begin` + 1. */
  private tailFits(first: number, begin: number, tail: number): boolean {
    const joined = this.declares(tail, "joins")?.split(" ");
    const rule = this.stages[begin]![0]?.after;
    if (!joined || !rule || !this.holds(begin, rule)) return false;
    const paramsOf = (index: number): string => jsonOf([...this.steps[index]!.params]);
    if (paramsOf(begin) !== paramsOf(begin + 1) || !isPlain(this.steps[tail]!)) return false;
    const [name] = rule;
    const [a, b, y] = joined as [string, string, string];
    const results = [begin, begin + 1].map((part) => this.operand(part, name));
    const inputs = [this.operand(tail, a), this.operand(tail, b)];
    const fit = ([p, q]: (StepOperand | undefined)[]): boolean =>
      same(p, inputs[0]) && same(q, inputs[1]);
    if (same(results[0], results[1])) return false;
    if (!fit(results) && !fit([results[1], results[0]])) return false;
    const one = this.resolved[begin]!.operands[this.indexOf(begin, name)];
    const all = this.resolved[tail]!.operands[this.indexOf(tail, y)];
    if (!one || !all || one.end - one.begin !== all.end - all.begin) return false;
    const out = this.ranges(tail).filter(({ written }) => written);
    return this.replaced(name, [first, begin, tail, tail + 1], [], out);
  }

  /**
   * Whether steps can write `out` while others run, which need not write their results `name`.
   * @param places of the first step, of the first with a result, behind these, and of the next one
   * @param more that is read
   */
  private replaced(
    name: string,
    [first, begin, behind, next]: readonly [number, number, number, number],
    more: readonly Range[],
    out: readonly Range[],
  ): boolean {
    const virtual = first < begin ? this.ranges(first).filter(({ written }) => written) : [];
    const isVirtual = (r: Range): boolean =>
      virtual.some((v) => v.buffer === r.buffer && v.begin === r.begin && v.end === r.end);
    const read = [...more];
    for (let part = first; part < behind; part++)
      read.push(...this.ranges(part).filter((r) => !r.written && !isVirtual(r)));
    if (out.some((x) => read.some((r) => clash(x, r)))) return false;
    for (let part = begin; part < behind; part++) {
      const written = this.ranges(part).filter((r) => r.written);
      const inPlace = written.some((r) => out.some((x) => clash(x, r)));
      if (!inPlace && !this.unread(part, name, next)) return false;
    }
    return true;
  }

  // ---- steps that take the results of as many products
  /** Number of steps behind steps `begin` to `behind` - 1 that take their results; 0: none. */
  private takers(first: number, begin: number, behind: number, end: number): number {
    const count = behind - begin;
    const { after, columns } = this.stages[begin]![0] ?? {};
    const next = behind + count;
    if (next > Math.min(end, first + MOST.STEPS) || !after || !columns) return 0;
    const [name] = after;
    const apart = new Set<number>();
    const more: Range[] = [];
    const out: Range[] = [];
    for (let part = begin; part < behind; part++) {
      const taker = part + count;
      const x = this.holds(part, after) && this.taken(part, name, taker);
      if (!x) return 0;
      apart.add(apartOf(this.steps[taker]!, this.largest));
      for (const r of this.ranges(taker, x)) {
        if (r.written && out.some((one) => clash(one, r))) return 0;
        (r.written ? out : more).push(r);
      }
    }
    for (let part = first; part < next; part++) {
      // states are not written once an index was out of range, and results of products never
      if (part >= behind && this.fails(part) && out.some(({ buffer }) => this.kept(buffer)))
        return 0;
      const made = part < behind ? this.ranges(part).filter(({ written }) => written) : [];
      if (made.some((x) => more.some((r) => clash(x, r)))) return 0;
    }
    apart.delete(0);
    const [half] = apart as Iterable<number>;
    if (apart.size !== 1 || half! % columns(valuesOf(this.steps[begin]!, this.largest))) return 0;
    for (let part = begin; part < behind; part++)
      if (this.elements(part, name) % (2 * half!)) return 0;
    return this.replaced(name, [first, begin, behind, next], more, out) ? count : 0;
  }

  /** The operand of step `taker` that is the result `name` of step `part`. */
  private taken(part: number, name: string, taker: number): string | undefined {
    const step = this.steps[taker]!;
    const [stage, ...more] = this.stages[taker]!;
    if (!stage?.takes || more.length) return undefined;
    if (this.varies(taker)) return undefined;
    const [operand, when] = stage.takes;
    const read = this.operand(taker, operand);
    const values = valuesOf(step, []); // without what follows registers
    if (!read || !same(read, this.operand(part, name)) || read.register >= 0) return undefined;
    const index = this.indexOf(taker, operand);
    const all = stage.count(values) * (stage.apart ? 2 : 1) === this.elements(part, name);
    return all && when(values) && isInOrder(step, index) && elementType(step, index)[1] === 4
      ? operand
      : undefined;
  }

  /** Number of float32 elements of a result. */
  private elements(part: number, name: string): number {
    const { begin, end } = this.resolved[part]!.operands[this.indexOf(part, name)]!;
    return (end - begin) / 4;
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

/** Whether a buffer of operands is a slot of one of some kinds. */
export const kindIn =
  (kinds: readonly string[], ...these: string[]) =>
  (buffer: number): boolean =>
    these.includes(kinds[buffer - BUFFERS.SLOT0] ?? "");
