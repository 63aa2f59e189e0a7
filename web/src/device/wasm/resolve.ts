// Steps of a plan that C has loaded and checked, in a form that another device can run. The twin of
// python/edgewise/host/engine/resolved.py.

import { KERNELS } from "../../gen/kernels.ts";
import { BUFFERS, RESOLVED_LAYOUT, STEP_FLAGS } from "../../gen/plan_format.ts";
import type { PlanHandle } from "../device.ts";
import type { Engine } from "./engine.ts";

/** Where an operand of a step lies, in bytes from the beginning of its buffer. */
export interface ResolvedOperand {
  /** BUFFERS.ARENA or CONST, or BUFFERS.SLOT0 + the number of a slot. */
  buffer: number;
  elementBytes: number;
  /** Of element 0. */
  offset: number;
  /** First byte that the step touches. */
  begin: number;
  /** One past the last byte that the step touches. */
  end: number;
}

/** A step with the registers' present values in its parameters and operands. */
export interface ResolvedStep {
  kernel: string;
  /** The C struct `ew_<kernel>_params`, little-endian. */
  params: DataView<ArrayBuffer>;
  /** In the order of the contract; undefined where absent. */
  operands: (ResolvedOperand | undefined)[];
  /** The step touches no memory and need not run. */
  empty: boolean;
  /** It depends on registers: resolve it again after one of them has changed. */
  registers: boolean;
}

/**
 * Steps as they would run now. The engine has checked them: operands lie inside buffers of the
 * plan's sizes (arena, constants, slots), which must not overlap.
 * @param first number of the first step; init steps come first and are counted
 * @throws PlanError: a step cannot run with these values of the registers. EngineError: there are
 *   no such steps
 */
export function resolveSteps(
  engine: Engine,
  plan: PlanHandle,
  first: number,
  count: number,
  where: string,
): ResolvedStep[] {
  const { host } = engine;
  const cell = host.alloc(8); // a size_t, of 32 bits or 64
  let out = 0;
  const call = () =>
    engine.check(host.call("ew_plan_resolve", plan, first, count, out, cell), where);
  try {
    call();
    const size = new Uint8Array(host.read(cell, 4));
    const bytes = new DataView(size.buffer).getUint32(0, true);
    out = host.alloc(bytes);
    call();
    return parseSteps(host.read(out, bytes));
  } finally {
    host.free(out);
    host.free(cell);
  }
}

/** The records that ew_plan_resolve writes. */
function parseSteps(bytes: Uint8Array<ArrayBuffer>): ResolvedStep[] {
  const { resolvedStep: step, resolvedOperand: operand } = RESOLVED_LAYOUT;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wide = (at: number) => Number(view.getBigInt64(at, true));
  const steps: ResolvedStep[] = [];
  for (let at = 0; at < bytes.length; ) {
    const flags = view.getUint32(at + step.at.flags, true);
    const paramBytes = view.getUint32(at + step.at.param_bytes, true);
    const end = at + view.getUint32(at + step.at.step_bytes, true);
    const count = view.getUint16(at + step.at.n_operands, true);
    const operands = Array.from({ length: count }, (_, i) => {
      const o = end - (count - i) * operand.bytes;
      const buffer = view.getUint32(o + operand.at.buffer, true);
      if (buffer === BUFFERS.NONE) return undefined;
      return {
        buffer,
        elementBytes: view.getUint32(o + operand.at.element_bytes, true),
        offset: wide(o + operand.at.offset),
        begin: wide(o + operand.at.begin),
        end: wide(o + operand.at.end),
      };
    });
    steps.push({
      kernel: KERNELS[view.getUint16(at + step.at.kernel, true)]![0],
      params: new DataView(bytes.buffer, bytes.byteOffset + at + step.bytes, paramBytes),
      operands,
      empty: (flags & STEP_FLAGS.EMPTY) !== 0,
      registers: (flags & STEP_FLAGS.REGISTERS) !== 0,
    });
    at = end;
  }
  return steps;
}
