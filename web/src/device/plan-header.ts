// The parts of plans that the host reads itself: the slot table, and the kernels of the steps. The
// layout is generated (gen/plan_format.ts). Plans are validated by the engine, not here.

import { KERNELS } from "../gen/kernels.ts";
import { BUFFERS, LAYOUT } from "../gen/plan_format.ts";
import type { PlanInfo } from "./device.ts";

const { operand, patch, planHeader, registerEntry, slotEntry, stepHeader } = LAYOUT;

const viewOf = (plan: Uint8Array): DataView =>
  new DataView(plan.buffer, plan.byteOffset, plan.byteLength);

/**
 * Reads the slots of a plan, which need not have been validated.
 * @returns undefined if the table exceeds the plan
 */
export function slotsOfPlan(plan: Uint8Array): { bytes: number; flags: number }[] | undefined {
  if (plan.length < planHeader.at.slots_at + 8) return undefined;
  const view = viewOf(plan);
  const count = view.getUint32(planHeader.at.n_slots, true);
  const table = Number(view.getBigUint64(planHeader.at.slots_at, true));
  if (table + slotEntry.bytes * count > plan.length) return undefined;
  return Array.from({ length: count }, (_, i) => {
    const at = table + slotEntry.bytes * i;
    return {
      bytes: Number(view.getBigUint64(at + slotEntry.at.bytes, true)),
      flags: view.getUint32(at + slotEntry.at.flags, true),
    };
  });
}

/** Reads the arena size, the first register's range and the steps' kernels of a validated plan. */
export function stepsOf(
  plan: Uint8Array,
): Pick<PlanInfo, "arenaBytes" | "initCount" | "kernels" | "range" | "first"> {
  const view = viewOf(plan);
  const wide = (at: number) => Number(view.getBigInt64(at, true));
  const { at: head } = planHeader;
  const init = view.getUint32(head.n_init_steps, true);
  const steps = init + view.getUint32(head.n_steps, true);
  const kernels: string[] = [];
  let at = wide(head.steps_at);
  for (let i = 0; i < steps; i++) {
    if (i >= init) kernels.push(KERNELS[view.getUint16(at + stepHeader.at.kernel, true)]![0]);
    at += view.getUint32(at + stepHeader.at.step_bytes, true);
  }
  let range: [number, number] = [0, 0];
  if (view.getUint32(head.n_registers, true)) {
    const register = wide(head.registers_at);
    range = [wide(register + registerEntry.at.min), wide(register + registerEntry.at.max)];
  }
  return { arenaBytes: wide(head.arena_bytes), initCount: init, kernels, range, first: range[0] };
}

/** The slots that each step of a validated plan reads or writes; without init steps. */
export function slotsOfSteps(plan: Uint8Array): number[][] {
  const view = viewOf(plan);
  const { at: head } = planHeader;
  const init = view.getUint32(head.n_init_steps, true);
  const count = init + view.getUint32(head.n_steps, true);
  const found: number[][] = [];
  let at = Number(view.getBigInt64(head.steps_at, true));
  for (let i = 0; i < count; i++) {
    const slots: number[] = [];
    let to =
      at +
      stepHeader.bytes +
      Math.ceil(view.getUint32(at + stepHeader.at.param_bytes, true) / 8) * 8 +
      view.getUint16(at + stepHeader.at.n_patches, true) * patch.bytes;
    for (let k = view.getUint16(at + stepHeader.at.n_operands, true); k; k--) {
      const buffer = view.getUint32(to + operand.at.buffer, true);
      if (buffer !== BUFFERS.NONE && buffer >= BUFFERS.SLOT0) slots.push(buffer - BUFFERS.SLOT0);
      to += operand.bytes;
    }
    if (i >= init) found.push(slots);
    at += view.getUint32(at + stepHeader.at.step_bytes, true);
  }
  return found;
}
