// The adapters of a loaded model, which are made when they are first needed.

import type { Learner } from "../model/model.ts";
import { Adapters } from "./adapters.ts";

/** The adapters of a model. */
export function adaptersOf(model: Learner): Adapters {
  const { device, weights, decoder, programs: training } = model;
  const isPart = model.pairs !== undefined;
  return (model.adapters ??= new Adapters(device, weights, decoder, { training, isPart }));
}
