// The host of logic/training/preferences.py: runs rows of preferences forward and backward.

import { batch_of, type Row } from "../../logic/training/data.ts";
import {
  refer as log_probabilities,
  type PreferenceRequest,
  type Score,
} from "../../logic/training/preferences.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { drive } from "../../shared/drive.ts";
import { pace } from "../../shared/share.ts";
import type { Data } from "./read-data.ts";
import type { RunSettings } from "./run-options.ts";
import type { Session } from "./session.ts";

/** Ids and labels of rows as int64, with padding up to a batch of `size` rows. */
export function batchOf(
  rows: readonly Row[],
  size: number,
  pad: number,
): { ids: BigInt64Array; labels: BigInt64Array } {
  const [ids, labels] = batch_of(rows, size, pad).map((x) => BigInt64Array.from(x, BigInt));
  return { ids: ids!, labels: labels! };
}

/** Does what requests ask for. */
export function preferenceAnswers(
  session: Session,
  pad: number,
): (request: PreferenceRequest) => unknown {
  const { batch, sequence } = session.program;
  return async (request) => {
    switch (request.kind) {
      case "reset":
        return session.reset();
      case "apply":
        return session.update(request.rate, request.scale);
      case "score": {
        const losses = await session.score(batchOf(request.rows, batch, pad));
        return Array.from(losses.subarray(0, request.rows.length * sequence));
      }
      case "backward": {
        const weights = new Float32Array(batch * sequence);
        weights.set(request.weights);
        return session.accumulate({ ...batchOf(request.rows, batch, pad), weights });
      }
    }
  };
}

/**
 * Computes the log-probabilities of the reference: the model as it is.
 * @throws Aborted
 */
export async function refer(
  session: Session,
  { preference }: RunSettings,
  { units, heldUnits, pad }: Data,
  signal: AbortSignal,
): Promise<void> {
  const { batch } = session.program;
  const answers = preferenceAnswers(session, pad);
  const answer = async (request: Score) => {
    await pace.breathe(); // an abort is a message
    throwIfAborted(signal);
    return answers(request);
  };
  for (const some of [units, heldUnits])
    if (some) await drive(log_probabilities(some, preference!, batch, batch), answer);
}
