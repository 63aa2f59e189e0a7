// The adapter: which GPU there is, its limits, and what is said where none can be used.

import { type EdgewiseError, EngineError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { type NamedAdapter, namedAdapter } from "../adapter.ts";

const REMEDY =
  "Use the device 'wasm', or 'auto'. WebGPU needs a secure context (https or localhost), and a " +
  "browser that has it in workers: Chrome 113, Safari 26, or Firefox 141 on Windows and 145 on " +
  "macOS.";

/** Flags of WebGPU, as its specification numbers them. */
export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 } as const;
export const COMPUTE_STAGE = 4;
export const MAP_READ = 1;

/** What is asked for of the adapter's own limits, since more is better. */
const WANTED = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
] as const;

/** Whether the browser's WGSL has products of four packed bytes. */
export const hasDots = (): boolean =>
  !!navigator.gpu.wgslLanguageFeatures?.has("packed_4x8_integer_dot_product");

/** A device of WebGPU. */
export class Gpu {
  /** Why it can no longer be used, once it was lost. */
  lost: EdgewiseError | undefined;
  /** Whether it was not lost, but given back. */
  closed = false;
  /** Largest range of a buffer that a step can bind. */
  readonly bindingBytes: number;
  /** Buffers that a step can bind, besides uniforms. */
  readonly bindings: number;
  /** Largest buffer. */
  readonly bufferBytes: number;
  /** Whether programs use subgroups. */
  readonly subgroups: boolean;
  /** Commands that were encoded and not submitted yet: a token takes few submits. */
  private open: GPUCommandEncoder | undefined;
  /** Commands before these. */
  private ready: GPUCommandBuffer[] = [];

  private constructor(
    readonly device: GPUDevice,
    /** The adapter, for `info`. */
    readonly name: string,
    /** Whether it is one in software. */
    readonly software: boolean,
  ) {
    const { features, limits } = device;
    this.subgroups = features.has("subgroups");
    this.bindingBytes = limits.maxStorageBufferBindingSize;
    this.bindings = limits.maxStorageBuffersPerShaderStage;
    this.bufferBytes = limits.maxBufferSize;
    void device.lost.then(({ reason, message: words }) => {
      this.lost ??= new EngineError(
        `the GPU was lost (${words || reason})`,
        "webgpu",
        "Call again: what is on it is loaded elsewhere; outputs that stayed there are lost.",
      );
    });
  }

  /** Gives it back. */
  close(): void {
    this.closed = true;
    this.device.destroy();
  }

  /**
   * Opens the browser's GPU.
   * @param software whether it may be one in software
   * @throws EngineError there is no WebGPU, no adapter, or no device
   */
  static async open(software: boolean): Promise<Gpu> {
    const { gpu } = navigator;
    if (!gpu) throw new EngineError("this browser has no WebGPU here", "webgpu", REMEDY);
    let found: NamedAdapter | null;
    try {
      found = await namedAdapter();
    } catch (e) {
      throw new EngineError(`the browser gives no GPU (${message(e)})`, "webgpu", REMEDY);
    }
    if (!found)
      throw new EngineError("the browser finds no GPU that WebGPU can use", "webgpu", REMEDY);
    const { adapter } = found;
    if (!software && found.software)
      throw new EngineError("the browser's GPU is one in software", "webgpu", REMEDY);
    const language = gpu.wgslLanguageFeatures as ReadonlySet<string> | undefined;
    const asked = language?.has("subgroup_id") && adapter.features?.has("subgroups");
    const requiredFeatures: GPUFeatureName[] = asked ? ["subgroups"] : [];
    if (adapter.features?.has("timestamp-query")) requiredFeatures.push("timestamp-query");
    const requiredLimits = Object.fromEntries(WANTED.map((n) => [n, adapter.limits[n]]));
    try {
      const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
      return new Gpu(device, found.name, found.software);
    } catch (e) {
      throw new EngineError(`the GPU gives no device (${message(e)})`, "webgpu", REMEDY);
    }
  }

  /**
   * Takes commands for the next submit, which comes before other work of the GPU's queue, and at
   * the latest when the calls of now have returned.
   */
  encoder(): GPUCommandEncoder {
    if (!this.open) {
      this.open = this.device.createCommandEncoder();
      queueMicrotask(() => this.submit());
    }
    return this.open;
  }

  /** Takes commands for the next submit that were encoded before. */
  take(commands: GPUCommandBuffer): void {
    this.submit();
    this.ready.push(commands);
    this.encoder();
  }

  /** Submits what was encoded. */
  submit(): void {
    const { open, ready } = this;
    if (!open) return;
    this.open = undefined;
    this.ready = [];
    this.device.queue.submit([...ready, open.finish()]);
  }

  /** Writes whole words, after what was encoded. */
  write(to: GPUBuffer, offset: number, words: ArrayBuffer | ArrayBufferView<ArrayBuffer>): void {
    this.submit();
    this.device.queue.writeBuffer(to, offset, words);
  }

  /** Frees a GPUBuffer, after what was encoded. */
  free(buffer: GPUBuffer): void {
    this.submit();
    buffer.destroy();
  }

  /** A new zeroed GPUBuffer. Without memory for it, `device` reports an error later. */
  buffer(bytes: number, uniform = false): GPUBuffer {
    return this.device.createBuffer({
      size: Math.ceil(Math.max(bytes, 16) / 16) * 16,
      usage: (uniform ? USAGE.UNIFORM : USAGE.STORAGE) | USAGE.COPY_SRC | USAGE.COPY_DST,
    });
  }
}
