// The adapters of a loaded model, which are made when they are first needed.

import { InputError } from "../../shared/errors.ts";
import type { Model } from "../model/model.ts";
import { Adapters } from "./adapters.ts";

/**
 * The adapters of a model.
 * @throws InputError if it is on a GPU
 */
export function adaptersOf(model: Model): Adapters {
  const { device, weights, decoder, programs: training } = model;
  if (device.info.name === "webgpu")
    throw new InputError(
      "models on WebGPU are neither trained nor adapted in this version",
      "options.device",
      "Load the model on the device 'wasm'.",
    );
  return (model.adapters ??= new Adapters(device, weights, decoder, { training }));
}
