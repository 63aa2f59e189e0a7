// The tensors of an adapter's file, in PEFT's layout.

import { half_of, name_of_saved, PREFIX, rank_axis } from "../../logic/training/adapters.ts";
import { is_result } from "../../logic/training/checkpoints.ts";
import { rank_in } from "../../logic/training/lora.ts";
import type { LoraInfo, ProgramInfo, StateInfo } from "../package/manifest.ts";
import { SCALE } from "./session.ts";

export function resultsOf(program: ProgramInfo): StateInfo[] {
  return [...program.states.values()].filter((s) => s.name !== SCALE && is_result(s.kind));
}

/** A tensor of an adapter's file. */
export interface FileTensor {
  state: StateInfo;
  /** Its name without PEFT's prefix. */
  name: string;
  /** As in the file; smaller than the state's if the adapter has a lower rank. */
  shape: number[];
  /** Whether the file has the transpose of the state. */
  transposed: boolean;
}

/**
 * The tensors of an adapter.
 * @param lora its configuration; undefined: it is a set of all parameters
 */
export function tensorsIn(program: ProgramInfo, lora: LoraInfo | undefined): FileTensor[] {
  return resultsOf(program).flatMap((state): FileTensor[] => {
    const { name } = state;
    if (program.lora && state.kind === "parameter")
      return program.saved
        .filter((s) => s.parameter === name)
        .map((s) => {
          const shape = s.transposed ? [...state.shape].reverse() : state.shape;
          return { state, name: s.name, shape, transposed: s.transposed };
        });
    const shape = state.shape.slice();
    const axis = lora ? rank_axis(name) : null;
    if (lora && axis !== null)
      shape[axis] = Math.min(shape[axis]!, rank_in(lora, half_of(name)!.module));
    const magnitude = name.endsWith(".lora_magnitude_vector");
    return magnitude && !lora?.use_dora ? [] : [{ state, name, shape, transposed: false }];
  });
}

/** The modules of an adapter, which its file names. */
export function modulesOf(tensors: readonly FileTensor[]): string[] {
  return [...new Set(tensors.flatMap(({ name }) => half_of(name)?.module ?? []))];
}

/** The tensors of an adapter's file by name. */
export function tensorsOf(
  program: ProgramInfo,
  lora: LoraInfo | undefined,
): Map<string, FileTensor & { info: { dtype: string; shape: number[]; bytes: number } }> {
  const tensors = tensorsIn(program, lora);
  const modules = modulesOf(tensors);
  return new Map(
    tensors.map((t) => {
      const bytes = t.shape.reduce((a, b) => a * b, 4);
      const whole = lora && t.state.kind === "parameter";
      const name = whole ? name_of_saved(t.name, modules) : t.name;
      return [
        lora ? PREFIX + name : name,
        { ...t, info: { dtype: "float32", shape: t.shape, bytes } },
      ];
    }),
  );
}

/** The bytes of a tensor in the file, from those of its state. */
export function toFile(
  bytes: Uint8Array<ArrayBuffer>,
  { state, shape, transposed }: FileTensor,
): Uint8Array<ArrayBuffer> {
  if (transposed) return turned(bytes, state.shape);
  return state.shape.join() === shape.join() ? bytes : corner(bytes, state.shape, shape, shape);
}

/** The bytes of a state, from those of its tensor, which has the shape `from` in the file. */
export function fromFile(
  bytes: Uint8Array<ArrayBuffer>,
  { state, transposed }: FileTensor,
  from: number[],
): Uint8Array<ArrayBuffer> {
  if (transposed) return turned(bytes, from);
  return state.shape.join() === from.join() ? bytes : corner(bytes, from, state.shape, from);
}

/** The transpose of a float32 matrix of this shape. */
function turned(bytes: Uint8Array<ArrayBuffer>, shape: number[]): Uint8Array<ArrayBuffer> {
  const [rows, columns] = shape as [number, number];
  const from = new Float32Array(bytes.buffer, bytes.byteOffset, rows * columns);
  const to = new Float32Array(from.length);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j]!;
  return new Uint8Array(to.buffer);
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
