// Opening and closing of devices.

import { checkDevice } from "../shared/platform.ts";
import { message } from "../shared/words.ts";
import type { Device } from "./device.ts";
import type { DeviceOptions } from "./options.ts";
import { Engine } from "./wasm/engine.ts";
import { lacking } from "./wasm/failures.ts";
import { closeEngines } from "./wasm/registry.ts";

/**
 * Opens the device that the options request.
 * @throws InputError, EngineError, OutOfMemory
 */
export async function openDevice(options: DeviceOptions): Promise<Device> {
  checkDevice(options.device);
  return Engine.open(options);
}

/**
 * Ensures that a device has the given kernels: returns it, or, if it lacks some, closes it and
 * opens one with all kernels.
 * @throws EngineError if that cannot be opened
 */
export async function withKernels(
  device: Device,
  options: DeviceOptions,
  kernels: readonly string[],
  where: string,
): Promise<Device> {
  const lacks = device.lacks(kernels);
  if (!lacks.length) return device;
  device.close();
  return openDevice({ ...options, full: true }).catch((e: unknown) => {
    throw lacking(lacks, where, message(e));
  });
}

/** Closes all devices of this thread, including those that are still being opened. */
export function closeDevices(): Promise<void> {
  return closeEngines();
}
