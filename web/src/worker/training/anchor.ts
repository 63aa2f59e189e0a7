// Trained values that are drawn to their first ones, or kept at them.

import { rank_axis } from "../../logic/training/adapters.ts";
import type { StateInfo } from "../package/manifest.ts";
import type { RunSettings } from "./run-options.ts";
import type { Session } from "./session.ts";

/**
 * Draws values to those of the beginning by a factor, in float32: as `drawn` of
 * python/edgewise/extras/federated/local_training.py.
 */
export function draw(x: Float32Array, first: Float32Array, factor: number): void {
  const f = Math.fround(factor);
  for (let i = 0; i < x.length; i++)
    x[i] = first[i]! + Math.fround(Math.fround(x[i]! - first[i]!) * f);
}

/** The values with which a run begins. */
export class Anchor {
  private readonly first: [StateInfo, Float32Array, frozen: boolean][] = [];

  private constructor(
    private readonly session: Session,
    private readonly mu: number,
  ) {}

  /** Reads the values that options keep something near; undefined if they keep nothing. */
  static async of(session: Session, options: RunSettings): Promise<Anchor | undefined> {
    const { proximal_mu: mu, freeze_A: freeze } = options;
    if (!mu && !freeze) return undefined;
    const anchor = new Anchor(session, mu);
    for (const state of session.results) {
      const frozen = freeze && rank_axis(state.name) !== 1;
      if (frozen || (mu && state.dtype === "float32" && state.kind !== "buffer"))
        anchor.first.push([state, await anchor.read(state), frozen]);
    }
    return anchor;
  }

  private async read(state: StateInfo): Promise<Float32Array> {
    return new Float32Array((await this.session.readState(state)).buffer);
  }

  /** What follows an update with a learning rate. */
  async pull(rate: number): Promise<void> {
    for (const [state, first, frozen] of this.first) {
      const x = frozen ? first : await this.read(state);
      if (!frozen) draw(x, first, 1 / (1 + rate * this.mu));
      this.session.writeState(state, new Uint8Array(x.buffer));
    }
  }
}
