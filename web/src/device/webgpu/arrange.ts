// How the operands of a step are bound: which of them share a binding, and as what. The twin of
// python/edgewise/webgpu/arrange.py.

import { BUFFERS } from "../../gen/plan_format.ts";
import type { Stored } from "./accessors.ts";
import { elementType, type PlanStep } from "./steps.ts";
import type { Binding, Role } from "./wgsl.ts";

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

/** What a step binds. */
export interface Arrangement {
  roles: Role[];
  bindings: Binding[];
  /** Number and range of each binding; it begins at a multiple of ALIGNMENT. */
  ranges: [number: number, begin: number, end: number][];
  /** Of element 0 of each operand from the beginning of its binding, in elements. */
  offsets: number[];
}

/**
 * Groups the operands of a step into bindings. A GPUBuffer that is written may be bound once: all
 * operands in it share the binding. In one that is only read, each range has a binding of its own.
 * @param spans of the operands; undefined where absent, and for working memory of the C function
 */
export function arrange(step: PlanStep, spans: readonly (Span | undefined)[]): Arrangement {
  const operands = step.contract!.operands;
  const written = new Set(
    spans.flatMap((span, i) => (span && operands[i]!.output ? [span.number] : [])),
  );
  const groups = new Map<string, number[]>();
  spans.forEach((span, i) => {
    if (!span) return;
    const { number, begin, end } = span;
    const own = written.has(number) ? `${number}` : `${number} ${begin} ${end}`;
    const members = groups.get(own);
    if (members) members.push(i);
    else groups.set(own, [i]);
  });
  const out: Arrangement = {
    roles: spans.map(() => ({ binding: -1, written: false })),
    bindings: [],
    ranges: [],
    offsets: spans.map(() => 0),
  };
  for (const members of groups.values()) {
    const of = members.map((i) => spans[i]!);
    const { number } = of[0]!;
    const least = Math.min(...of.map(({ begin }) => begin));
    const begin = Math.floor(least / ALIGNMENT) * ALIGNMENT;
    const end = Math.ceil(Math.max(...of.map((span) => span.end)) / 4) * 4;
    for (const i of members) {
      out.roles[i] = { binding: out.bindings.length, written: operands[i]!.output };
      out.offsets[i] = Math.floor((spans[i]!.zero - begin) / elementType(step, i)[1]);
    }
    out.bindings.push({ written: written.has(number), stored: storedAs(step, members) });
    out.ranges.push([number, begin, end]);
  }
  return out;
}

/** What the operands with one binding are stored as. */
function storedAs(step: PlanStep, members: readonly number[]): Stored {
  const types = members.map((i) => elementType(step, i));
  const narrow = members.some((i, n) => step.contract!.operands[i]!.output && types[n]![1] < 4);
  if (narrow) return "atomic<u32>";
  return types.every(([dtype]) => dtype === 1) ? "f32" : "u32";
}

/** Whether an operand is working memory of the C function, in the engine's own arena. */
export function isScratch({ operands, contract }: PlanStep, index: number): boolean {
  const named = contract!.operands[index]!.name;
  return operands[index]?.buffer === BUFFERS.ARENA && named === "scratch";
}
