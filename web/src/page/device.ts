// The options that choose a device.

import { InputError } from "../shared/errors.ts";
import { checkDevice, type DeviceName } from "../shared/platform.ts";
import { env } from "./env.ts";

/** Options that choose what computes. */
export interface DeviceChoice {
  /**
   * What computes: `wasm`, the processor by WebAssembly; `webgpu`, which this version of Edgewise
   * does not have: an InputError; `auto`, the fastest that can be used, today always `wasm`. What
   * was taken and why is told by `device` of the result. Default: `env.device`, which is `auto`.
   */
  device?: DeviceName | "auto";
  /**
   * ONNX Runtime Web's name for it: devices in order of preference, by name or as `{ name }`. `cpu`
   * means `wasm`; others that Edgewise does not have are skipped as long as one is left. Ignored
   * where `device` is given.
   */
  executionProviders?: readonly (string | { readonly name: string })[];
}

const ALIASES: Readonly<Record<string, DeviceName>> = {
  wasm: "wasm",
  cpu: "wasm",
  webgpu: "webgpu",
};

/** The device that options ask for. @throws InputError: it cannot be used */
export function deviceOf({ device, executionProviders }: DeviceChoice): "wasm" | "auto" {
  let asked: unknown = device;
  if (asked === undefined && executionProviders?.length) {
    const names = executionProviders.map((one) => (typeof one === "string" ? one : one?.name));
    const known = names.flatMap((name) => ALIASES[name] ?? []);
    if (!known.length)
      throw new InputError(
        `there is no device among ${names.map((name) => `'${String(name)}'`).join(", ")}`,
        "options.executionProviders",
        "Add 'wasm'.",
      );
    asked = known[0] === "webgpu" && known.includes("wasm") ? "auto" : known[0];
  }
  asked ??= env.device;
  checkDevice(asked);
  return asked ?? "auto";
}
