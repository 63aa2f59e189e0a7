// Options that select the device.

import { InputError } from "../shared/errors.ts";
import { checkDevice, type DeviceName, type DeviceWish } from "../shared/platform.ts";
import { env } from "./env.ts";

/** Options that select the device to compute on. */
export interface DeviceChoice {
  /**
   * Device to compute on: `wasm` (CPU, by WebAssembly), `webgpu` (GPU, for text generation; there
   * is an error where it cannot be used), or `auto`, currently always `wasm`. The `device` property
   * of the result reports the device in use and the reason. Default: `env.device`, which is `auto`;
   * if that is `webgpu`, only text generation takes it.
   */
  device?: DeviceName | "auto";
  /**
   * The same option in ONNX Runtime Web's form: devices in order of preference, by name or as
   * `{ name }`. `cpu` is an alias of `wasm`; unsupported devices are skipped as long as one
   * remains. With `["webgpu", "wasm"]`, WebAssembly is used where there is no GPU (one in software
   * does not count), where a package has no plans for one, and for anything but text generation;
   * `device.why` says why. Ignored if `device` is given.
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
 * @param gpu whether what is opened can compute on a GPU
 * @throws InputError if no requested device is supported
 */
export function deviceOf({ device, executionProviders }: DeviceChoice, gpu = false): DeviceWish {
  let listed: DeviceName | undefined;
  if (device === undefined && executionProviders?.length) {
    const names = executionProviders.map((one) => (typeof one === "string" ? one : one?.name));
    const known = names.flatMap((name) => ALIASES[name] ?? []);
    if (!known.length)
      throw new InputError(
        `there is no device among ${names.map((name) => `'${String(name)}'`).join(", ")}`,
        "options.executionProviders",
        "Add 'wasm'.",
      );
    listed = known[0];
    if (listed === "webgpu" && known.includes("wasm")) return gpu ? "webgpu-or-wasm" : "no-webgpu";
  }
  const asked: unknown = device ?? listed;
  const wish: unknown = asked ?? env.device;
  checkDevice(wish);
  if (gpu || wish !== "webgpu") return wish ?? "auto";
  if (asked === undefined) return "no-webgpu"; // for the whole page, where it can be used
  throw new InputError(
    "this version of Edgewise computes on WebGPU for text generation only",
    "options.device",
    "Give 'wasm' or 'auto'.",
  );
}
