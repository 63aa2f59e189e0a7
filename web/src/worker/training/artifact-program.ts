// What Python says of ONNX Runtime Training's artifacts that it has compiled for some shapes.

import type { ManifestSlot, Weight } from "../package/checker.ts";
import type { ProgramInfo, StateInfo } from "../package/manifest.ts";

/** A compiled model. */
export interface Described {
  plans: Record<string, { file: string; slots: ManifestSlot[]; arena_bytes: number }>;
  weights: Weight[];
  states: StateInfo[];
  moments: Record<string, string>;
  step: number;
}

/** A compiled model as a training program, whose batches have no fixed meaning. */
export function programOf(kind: string, { plans, states }: Described, rate: number): ProgramInfo {
  return {
    name: kind,
    batch: 0,
    sequence: 0,
    lora: null,
    optimizer: { type: "", lr: rate },
    maxGradNorm: null,
    padTokenId: undefined,
    eosTokenId: undefined,
    plans: new Map(
      Object.entries(plans).map(([k, p]) => [
        k as "train",
        { file: p.file, slots: p.slots, arenaBytes: p.arena_bytes },
      ]),
    ),
    states: new Map(states.map((s) => [s.name, s])),
  };
}
