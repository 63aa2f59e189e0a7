// Options that select the device.

import { InputError } from "../shared/errors.ts";
import { checkDevice, type DeviceName } from "../shared/platform.ts";
import { env } from "./env.ts";

/** Options that select the device to compute on. */
export interface DeviceChoice {
  /**
   * Device to compute on: `wasm` (CPU, by WebAssembly) or `auto`, the fastest device that is
   * available, currently always `wasm`. `webgpu` is not supported by this version and throws
   * InputError. The `device` property of the result reports the device in use and the reason.
   * Default: `env.device`, which is `auto`.
   */
  device?: DeviceName | "auto";
  /**
   * The same option in ONNX Runtime Web's form: devices in order of preference, by name or as
   * `{ name }`. `cpu` is an alias of `wasm`; unsupported devices are skipped as long as one
   * remains. Ignored if `device` is given.
   */
  executionProviders?: readonly (string | { readonly name: string })[];
}

const ALIASES: Readonly<Record<string, DeviceName>> = {
  wasm: "wasm",
  cpu: "wasm",
  webgpu: "webgpu",
};

/**
 * Resolves the device that options request.
 * @throws InputError if no requested device is supported
 */
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
