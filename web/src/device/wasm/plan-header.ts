// What the host reads from a plan that the engine has checked.

import type { PlanInfo } from "../device.ts";
import { KERNELS } from "../../gen/kernels.ts";

/**
 * What stands in a plan that the engine has found to be whole (core/engine.h): its arena, its first
 * register's range, the kernels of the steps after the init steps.
 */
export function stepsOf(
  bytes: Uint8Array,
): Pick<PlanInfo, "arenaBytes" | "initCount" | "kernels" | "range" | "first"> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wide = (at: number) => Number(view.getBigInt64(at, true));
  const [registers, init, steps] = [
    view.getUint32(12, true),
    view.getUint32(20, true),
    view.getUint32(24, true),
  ];
  const kernels: string[] = [];
  for (let i = 0, at = wide(72); i < init + steps; i++, at += view.getUint32(at + 12, true))
    if (i >= init) kernels.push(KERNELS[view.getUint16(at, true)]![0]);
  const range: [number, number] = registers ? [wide(wide(40)), wide(wide(40) + 8)] : [0, 0];
  return { arenaBytes: wide(32), initCount: init, kernels, range, first: range[0] };
}
