// The highest logit, found on the GPU, so that a token reads back 4 bytes. The twin of
// python/edgewise/webgpu/choice.py.

import { ARGMAX } from "../../gen/shaders.ts";
import { COMPUTE_STAGE, type Gpu } from "./gpu.ts";
import type { GpuRange } from "./memory.ts";
import { refused } from "./pipelines.ts";

/** Logits that a workgroup of the first level reads, as in core/sampling/argmax.wgsl. */
const CHUNK = 4096;
/** Bytes of what a workgroup leaves for the next level: a rank and a token. */
const PAIR = 8;
/** The token where a logit is NaN or +infinity, or all are -infinity. */
export const NONE = 0xffffffff;

/** What one buffer is searched with. */
export interface Search {
  /** The token is at its beginning. */
  result: GPUBuffer;
  /** What the levels leave for the next one. */
  pairs: GPUBuffer;
  levels: { group: GPUBindGroup; groups: number }[];
}

/** Finds the highest of the float32 values of buffers. */
export class Highest {
  /** Resolves when the programs have been compiled; rejects with EngineError. */
  readonly made: Promise<void>;
  private pipelines: GPUComputePipeline[] = [];
  private readonly layout: GPUBindGroupLayout;

  constructor(private readonly gpu: Gpu) {
    const { device } = gpu;
    const entry = (binding: number, type: GPUBufferBindingType): GPUBindGroupLayoutEntry => ({
      binding,
      visibility: COMPUTE_STAGE,
      buffer: { type },
    });
    this.layout = device.createBindGroupLayout({
      entries: [entry(0, "read-only-storage"), entry(1, "storage")],
    });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [this.layout] });
    const make = (level: number): Promise<GPUComputePipeline> => {
      const module = device.createShaderModule({ code: `const LEVEL = ${level}u;${ARGMAX}` });
      return device.createComputePipelineAsync({ layout, compute: { module, entryPoint: "main" } });
    };
    this.made = Promise.all([make(0), make(1)]).then(
      (pipelines) => {
        this.pipelines = pipelines;
      },
      (e: unknown) => {
        throw refused(gpu, e, "the search for the highest logit");
      },
    );
    this.made.catch(() => undefined); // whoever uses it hears of it
  }

  /** The search of a buffer, which begins at a multiple of 256 bytes. */
  search({ block, offset, bytes }: GpuRange): Search {
    const groups = Math.ceil(bytes / 4 / CHUNK);
    const [pairs, result] = [this.gpu.buffer(PAIR * groups), this.gpu.buffer(4)];
    const group = (source: GPUBufferBinding, sink: GPUBuffer): GPUBindGroup =>
      this.gpu.device.createBindGroup({
        layout: this.layout,
        entries: [
          { binding: 0, resource: source },
          { binding: 1, resource: { buffer: sink } },
        ],
      });
    return {
      result,
      pairs,
      levels: [
        { group: group({ buffer: block.gpu, offset, size: bytes }, pairs), groups },
        { group: group({ buffer: pairs, size: PAIR * groups }, result), groups: 1 },
      ],
    };
  }

  /** Submits a search, after what was submitted before. */
  run({ levels }: Search): void {
    const encoder = this.gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    levels.forEach(({ group, groups }, i) => {
      pass.setPipeline(this.pipelines[i]!);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(groups);
    });
    pass.end();
    this.gpu.device.queue.submit([encoder.finish()]);
  }
}

/** Frees the memory of a search. */
export function ended({ result, pairs }: Search): void {
  result.destroy();
  pairs.destroy();
}
