// Finds the plans of a model: in a package, or with the part of the worker for other models.

import type { Device } from "../../device/device.ts";
import { checkDTypes } from "./dtypes.ts";
import type { Job } from "./job.ts";
import { absolute, type FoundModel, fromPackage, lasting } from "./packages.ts";

/** Finds a model. */
export async function find(job: Job, device: Promise<Device>): Promise<FoundModel> {
  const { model, base, dtype } = job.request;
  if (typeof model === "string") {
    if (!/^[^?#]*\.edge(?![^?#])/.test(model))
      return (await import("./onnx/index.ts")).fromPlace(job, model, device);
    checkDTypes(dtype);
    const url = absolute(model, base);
    await job.begin(url, () => [url]);
    return fromPackage(await lasting(job, job.http(url)));
  }
  if ("port" in model) return fromPackage(await lasting(job, job.handed(model)));
  const [{ name, blob } = { name: "", blob: new Blob() }, ...others] = model;
  if (!others.length && name.endsWith(".edge")) return fromPackage(job.blob(blob, name));
  return (await import("./onnx/index.ts")).fromChosen(job, model, device);
}
