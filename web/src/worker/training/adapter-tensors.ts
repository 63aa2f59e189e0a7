// The tensors of an adapter's file, in PEFT's layout.

import { PREFIX, rank_axis } from "../../logic/training/adapters.ts";
import { is_result } from "../../logic/training/checkpoints.ts";
import type { LoraInfo, ProgramInfo, StateInfo } from "../package/manifest.ts";
import { SCALE } from "./session.ts";

export function resultsOf(program: ProgramInfo): StateInfo[] {
  return [...program.states.values()].filter((s) => s.name !== SCALE && is_result(s.kind));
}

/**
 * The tensors of an adapter's file by name: the state, and the shape in the file, which is smaller
 * than the state's if the adapter has a lower rank.
 */
export function tensorsOf(
  program: ProgramInfo,
  lora: LoraInfo | undefined,
): Map<string, { state: StateInfo; info: { dtype: string; shape: number[]; bytes: number } }> {
  const out = new Map<
    string,
    { state: StateInfo; info: { dtype: string; shape: number[]; bytes: number } }
  >();
  for (const state of resultsOf(program)) {
    const shape = state.shape.slice();
    if (lora) {
      const axis = rank_axis(state.name);
      if (axis !== null) shape[axis] = Math.min(shape[axis]!, lora.r);
    }
    const bytes = shape.reduce((a, b) => a * b, 4);
    out.set((lora ? PREFIX : "") + state.name, {
      state,
      info: { dtype: "float32", shape, bytes },
    });
  }
  return out;
}

/** Copies the leading part of shape `to` from a tensor of shape `from`. */
export function cut(
  bytes: Uint8Array<ArrayBuffer>,
  from: number[],
  to: number[],
): Uint8Array<ArrayBuffer> {
  return from.join() === to.join() ? bytes : corner(bytes, from, to, to);
}

export function padded(
  bytes: Uint8Array<ArrayBuffer>,
  from: number[],
  to: number[],
): Uint8Array<ArrayBuffer> {
  return from.join() === to.join() ? bytes : corner(bytes, from, to, from);
}

/**
 * Copies float32 tensors of shape `from` to zeros of shape `to`, as far as the shape `common`. The
 * shapes differ in one of the first two axes.
 */
function corner(
  bytes: Uint8Array<ArrayBuffer>,
  from: number[],
  to: number[],
  common: number[],
): Uint8Array<ArrayBuffer> {
  const tail = from.slice(2).reduce((a, b) => a * b, 4);
  const [wide, narrow] = [from[1]! * tail, to[1]! * tail];
  const out = new Uint8Array(to[0]! * narrow);
  for (let row = 0; row < common[0]!; row++)
    out.set(bytes.subarray(row * wide, row * wide + common[1]! * tail), row * narrow);
  return out;
}
