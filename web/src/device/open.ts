// Opening and closing of devices.

import { EngineError, OutOfMemory, PackageError } from "../shared/errors.ts";
import { platform, WIDE_FLAVOUR } from "../shared/platform.ts";
import { megabytes, message } from "../shared/words.ts";
import { hardware, soon } from "./adapter.ts";
import type { Device } from "./device.ts";
import type { DeviceOptions } from "./options.ts";
import { Engine, MAX_NARROW } from "./wasm/engine.ts";
import { lacking } from "./wasm/failures.ts";
import { closeEngines } from "./wasm/registry.ts";
import type { Work } from "./webgpu/probe.ts";

/**
 * Loads the part for GPUs, and that which chooses between both devices; set by the worker, so that
 * scripts without GPUs do not contain them.
 */
export const gpuPart: {
  load: (() => Promise<typeof import("./webgpu/device.ts")>) | undefined;
  probe: (() => Promise<typeof import("./webgpu/probe.ts")>) | undefined;
} = { load: undefined, probe: undefined };

/**
 * Opens the device that the options request.
 * @throws InputError, EngineError, OutOfMemory
 */
export async function openDevice(options: DeviceOptions): Promise<Device> {
  const { device } = options;
  if (device === "auto" && gpuPart.probe) return openBesideGpu(options);
  if (device !== "webgpu" && device !== "webgpu-or-wasm") return Engine.open(options);
  try {
    if (!gpuPart.load)
      throw new EngineError(
        "the page's own thread does not compute on WebGPU",
        "webgpu",
        "Use the device 'wasm', or a worker (proxy: true).",
      );
    const { GpuDevice } = await gpuPart.load();
    return await GpuDevice.open(options);
  } catch (e) {
    if (device === "webgpu") throw e;
    return onWasm(options, message(e));
  }
}

/** Opens the engine, and finds out whether there is a GPU that may take its place. */
async function openBesideGpu(options: DeviceOptions): Promise<Device> {
  const found = hardware();
  const engine = await Engine.open(options);
  engine.options.adapter = await soon(found);
  return engine;
}

/** Opens WebAssembly in the place of a GPU. */
export function onWasm(options: DeviceOptions, whyNotGpu: string): Promise<Device> {
  return Engine.open({ ...options, device: "wasm", whyNotGpu });
}

/** What plans for a device are compiled for. */
export function targetOf({ info, options }: Device): "cpu" | "webgpu" {
  return info.name === "webgpu" || options.adapter !== undefined ? "webgpu" : "cpu";
}

/**
 * The device for plans of a target: the device itself, or WebAssembly, which runs all plans, in the
 * place of a GPU that was not explicitly asked for.
 * @param where name of the package, for errors
 * @throws PackageError if a GPU was explicitly asked for
 */
export async function forPlans(device: Device, target: string, where: string): Promise<Device> {
  if (device.info.name === "wasm" || target === "webgpu") return device;
  device.close();
  const what = "its plans are for the device 'wasm'";
  if (device.options.device === "webgpu")
    throw new PackageError(
      what,
      where,
      "Build it with `edgewise build --target webgpu`, give the model's .onnx file, or use the " +
        "device 'wasm'.",
    );
  return onWasm(device.options, `${where}: ${what}`);
}

/**
 * Where `auto` was asked for, the faster device for a model's plans for a GPU: the engine, or a GPU
 * beside it. Call it before weights are loaded.
 * @param works returns the plans that decide
 */
export async function fasterOf(
  device: Device,
  works: () => readonly Work[] | Promise<readonly Work[]>,
): Promise<Device> {
  if (!(device instanceof Engine)) return device;
  const { options } = device;
  const { adapter, whyNotGpu } = options;
  if (adapter === undefined || whyNotGpu) return device;
  const open = async () => (await gpuPart.load!()).GpuDevice.beside(device);
  const choose = async () => {
    const plans = await works();
    if (!plans.length) return "it has no plans for a GPU";
    return (await gpuPart.probe!()).faster(device, adapter, plans, open);
  };
  const found = await choose().catch(message);
  if (typeof found !== "string") return found;
  options.whyNotGpu = found;
  return device;
}

/**
 * Ensures that a device has the given kernels: returns it, or, if it lacks some, closes it and
 * opens one with all kernels.
 * @throws EngineError if that cannot be opened
 */
export async function withKernels(
  device: Device,
  kernels: readonly string[],
  where: string,
): Promise<Device> {
  const lacks = device.lacks(kernels);
  if (!lacks.length) return device;
  device.close();
  return openDevice({ ...device.options, full: true }).catch((e: unknown) => {
    if (typeof device.options.engineUrl === "string" || !(e instanceof EngineError))
      throw lacking(lacks, where, message(e));
    throw lacking(lacks, where, e.what, e.remedy);
  });
}

/** Bytes of an engine's memory that weights and caches leave. */
export const BESIDE = 256 * 2 ** 20; // for what is between steps, plans and stacks

/**
 * The device for a model that holds so many bytes: the build with 64-bit addresses where 32 bits
 * may not be enough and the caller has not chosen a build. If that cannot be opened, a model that
 * may do with 32 bits has those.
 * @param least bytes that it needs at least, where memory need not hold all of it
 * @throws OutOfMemory if there is no such build for this browser and 32 bits are not enough
 */
export async function withRoom(
  device: Device,
  bytes: number,
  where: string,
  least = bytes,
): Promise<Device> {
  const { flavour = "auto" } = device.options;
  if (!(device instanceof Engine) || flavour !== "auto" || bytes + BESIDE <= MAX_NARROW)
    return device;
  const narrow = least <= MAX_NARROW;
  if (narrow && !platform().wide) return device;
  device.close();
  return openDevice({ ...device.options, flavour: WIDE_FLAVOUR }).catch((e: unknown) => {
    if (narrow) return openDevice(device.options);
    const { what = message(e), remedy = "" } = e as Partial<EngineError>;
    throw new OutOfMemory(
      `it needs ${megabytes(least)}, more than ${megabytes(MAX_NARROW)}, and ${what}`,
      where,
      remedy,
    );
  });
}

/** Closes all devices of this thread, including those that are still being opened. */
export function closeDevices(): Promise<void> {
  return closeEngines();
}
