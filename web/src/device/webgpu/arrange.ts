// How the operands of steps are bound: which of them share a binding, and as what. The twin of
// python/edgewise/compiler/gpu/arrange.py.

import { BUFFERS } from "../../gen/plan_format.ts";
import type { Stored } from "./accessors.ts";
import type { Binding, Role } from "./link.ts";
import { elementType, type PlanStep } from "./steps.ts";

/** Offsets of bindings are multiples of it (minStorageBufferOffsetAlignment). */
export const ALIGNMENT = 256;

/** The memory of an operand. */
export interface Span {
  /** Of its GPUBuffer; until memory is bound, of its slot. */
  number: number;
  /** The bytes of the GPUBuffer that the step may touch, and more where that helps to share. */
  begin: number;
  end: number;
  /** Where element 0 lies, without what follows a register. */
  zero: number;
}

/** What a dispatch binds. */
export interface Arrangement {
  /** Of the operands; for each kernel, in the order in which they come. */
  roles: Role[][];
  bindings: Binding[];
  /** Number and range of each binding; it begins at a multiple of ALIGNMENT. */
  ranges: [number: number, begin: number, end: number][];
  /**
   * Of each step, those of element 0 of its operands from the beginning of their bindings, in
   * elements.
   */
  offsets: number[][];
  /** Of each step, which of the bindings of its role each operand lies in. */
  choices: number[][];
}

/** An operand: number of its step, of itself, and its memory. */
type Member = readonly [m: number, k: number, span: Span];

/**
 * Groups the operands of steps that run in one dispatch into bindings. A GPUBuffer that is written
 * may be bound once: all operands in it share the binding. In one that is only read, each range has
 * a binding of its own; of several steps, each operand has one.
 * @param steps neighbours of one kernel share their bindings
 * @param spans of the operands of each; undefined where absent or not in memory, and for working
 *   memory of the C function
 * @param ends behind the steps of each kind, where neighbours of one kernel may be several
 */
export function arrange(
  steps: readonly PlanStep[],
  spans: readonly (readonly (Span | undefined)[])[],
  ends: readonly number[] = [],
): Arrangement {
  const family = familiesOf(steps, ends);
  const written = new Set<number>();
  for (const [m, of] of spans.entries())
    for (let k = 0; k < of.length; k++)
      if (of[k] && steps[m]!.contract!.operands[k]!.output) written.add(of[k]!.number);
  const groups = new Map<string, Member[]>();
  for (const [m, of] of spans.entries())
    for (let k = 0; k < of.length; k++) {
      const span = of[k];
      if (!span) continue;
      const { number, begin, end } = span;
      const own = steps.length === 1 ? `${begin} ${end}` : `of ${family[m]!} ${k}`;
      const key = written.has(number) ? `${number}` : `${number} ${own}`;
      const group = groups.get(key);
      if (group) group.push([m, k, span]);
      else groups.set(key, [[m, k, span]]);
    }
  const used = new Map<string, number[]>();
  const out: Arrangement = { roles: [], bindings: [], ranges: [], offsets: [], choices: [] };
  for (const { operands } of steps) {
    out.offsets.push(new Array<number>(operands.length).fill(0));
    out.choices.push(new Array<number>(operands.length).fill(0));
  }
  for (const of of groups.values()) {
    const { number } = of[0]![2];
    let [least, most] = [Infinity, 0];
    for (const [, , span] of of)
      [least, most] = [Math.min(least, span.begin), Math.max(most, span.end)];
    const begin = Math.floor(least / ALIGNMENT) * ALIGNMENT;
    const end = Math.ceil(most / 4) * 4;
    const binding = out.bindings.length;
    for (const [m, k, { zero }] of of) {
      const key = `${family[m]!} ${k}`;
      const ways = used.get(key) ?? [];
      if (!ways.includes(binding)) ways.push(binding);
      used.set(key, ways);
      out.choices[m]![k] = ways.indexOf(binding);
      out.offsets[m]![k] = Math.floor((zero - begin) / elementType(steps[m]!, k)[1]);
    }
    out.bindings.push({ written: written.has(number), stored: storedAs(steps, of) });
    out.ranges.push([number, begin, end]);
  }
  for (const [m, f] of family.entries()) {
    if (m && f === family[m - 1]) continue;
    const { operands, contract } = steps[m]!;
    const roles: Role[] = [];
    for (let k = 0; k < operands.length; k++) {
      const bindings = used.get(`${f} ${k}`) ?? [];
      roles.push({ bindings, written: contract!.operands[k]!.output && bindings.length > 0 });
    }
    out.roles.push(roles);
  }
  return out;
}

/** For each step, how many other kinds come before its own. */
export function familiesOf(steps: readonly PlanStep[], ends: readonly number[]): number[] {
  const family: number[] = [];
  steps.forEach(({ kernel }, m) => {
    const other = ends.includes(m) || kernel !== steps[m - 1]?.kernel;
    family.push(m ? family[m - 1]! + +other : 0);
  });
  return family;
}

/** What the operands with one binding are stored as. */
function storedAs(steps: readonly PlanStep[], members: readonly Member[]): Stored {
  let floats = true;
  for (const [m, k] of members) {
    const [dtype, bytes] = elementType(steps[m]!, k);
    if (bytes < 4 && steps[m]!.contract!.operands[k]!.output) return "atomic<u32>";
    floats &&= dtype === 1;
  }
  return floats ? "f32" : "u32";
}

/** Whether an operand is working memory of the C function, in the engine's own arena. */
export function isScratch({ operands, contract }: PlanStep, index: number): boolean {
  const named = contract!.operands[index]!.name;
  return operands[index]?.buffer === BUFFERS.ARENA && named === "scratch";
}
