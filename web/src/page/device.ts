// Options that select the device.

import { InputError } from "../shared/errors.ts";
import { checkDevice, type DeviceName, type DeviceWish } from "../shared/platform.ts";
import { env } from "./env.ts";

/** Options that select the device to compute on. */
export interface DeviceChoice {
  /**
   * Device to compute on: `wasm` (CPU, by WebAssembly), `webgpu` (GPU; there is an error where it
   * cannot be used), or `auto`: the faster of both, as measured with the model's plans when it is
   * first loaded; `wasm` where there is no GPU or only one in software, and for packages without
   * plans for one. The `device` property of the result reports the device in use and the reason.
   * Default: `env.device`, which is `auto`.
   */
  device?: DeviceName | "auto";
  /**
   * The same option in ONNX Runtime Web's form: devices in order of preference, by name or as
   * `{ name }`. `cpu` is an alias of `wasm`; unsupported devices are skipped as long as one
   * remains. With `["webgpu", "wasm"]`, WebAssembly is used where there is no GPU (one in software
   * does not count), where a package has no plans for one, and in the page's own thread
   * (`proxy: false`); `device.why` says why. `["auto"]` is the device `auto`; with others it is an
   * error. Ignored if `device` is given.
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
 * @param worker whether it is used in a worker: elsewhere the device of the whole page, where that
 *   is a GPU, is one that need not be
 * @throws InputError if no requested device is supported
 */
export function deviceOf({ device, executionProviders }: DeviceChoice, worker = true): DeviceWish {
  let wish: unknown = device ?? env.device;
  if (device === undefined && executionProviders?.length) {
    if (!Array.isArray(executionProviders))
      throw new InputError(
        "it is no list",
        "options.executionProviders",
        `Give one, such as ["webgpu", "wasm"].`,
      );
    const names = executionProviders.map((one) => (typeof one === "string" ? one : one?.name));
    if (names.includes("auto")) {
      if (names.length === 1) return "auto";
      throw new InputError(
        "'auto' chooses among all devices, and stands alone",
        "options.executionProviders",
        "Give device: 'auto', or 'webgpu' with 'wasm' behind it.",
      );
    }
    const known = names.flatMap((name) => ALIASES[name] ?? []);
    if (!known.length)
      throw new InputError(
        `there is no device among ${names.map((name) => `'${String(name)}'`).join(", ")}`,
        "options.executionProviders",
        "Add 'wasm'.",
      );
    if (known[0] === "webgpu" && known.includes("wasm")) return "webgpu-or-wasm";
    wish = known[0];
  } else if (device === undefined && wish === "webgpu" && !worker) return "webgpu-or-wasm";
  checkDevice(wish);
  return wish ?? "auto";
}
