// The index of the highest logit, found on the GPU: eight bytes come back instead of all logits.

import { COMPUTE_STAGE, type Gpu } from "./gpu.ts";
import type { GpuRange } from "./memory.ts";
import { refused } from "./pipelines.ts";

const GROUPS = 64;
const GROUP = 256;
/** Bytes of a candidate: the bits of its value, and its index. */
const CANDIDATE = 8;

// NaN is greater than any number, so that it is noticed; ties go to the lower index. The second
// program continues with the candidates of the first one's workgroups.
const TEXT = `
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> candidates: array<vec2u>;
var<workgroup> values: array<f32, ${GROUP}>;
var<workgroup> places: array<u32, ${GROUP}>;
fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
fn before(u: f32, i: u32, v: f32, j: u32) -> bool {
  if (i == 0xffffffffu) { return false; }
  if (j == 0xffffffffu) { return true; }
  if (is_nan(u) != is_nan(v)) { return is_nan(u); }
  if (u > v) { return true; }
  if (v > u) { return false; }
  return i < j;
}
fn reduced(group: u32, lane: u32, u: f32, i: u32) {
  values[lane] = u;
  places[lane] = i;
  for (var half = ${GROUP / 2}u; half > 0u; half /= 2u) {
    workgroupBarrier();
    let other = lane + half;
    if (lane < half && before(values[other], places[other], values[lane], places[lane])) {
      values[lane] = values[other];
      places[lane] = places[other];
    }
  }
  if (lane == 0u) { candidates[group] = vec2u(bitcast<u32>(values[0]), places[0]); }
}
@compute @workgroup_size(${GROUP})
fn first(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  var value = 0f;
  var place = 0xffffffffu;
  let count = arrayLength(&logits);
  for (var i = group.x * ${GROUP}u + lane; i < count; i += ${GROUPS * GROUP}u) {
    let v = logits[i];
    if (before(v, i, value, place)) { value = v; place = i; }
  }
  reduced(group.x, lane, value, place);
}
@compute @workgroup_size(${GROUP})
fn second(@builtin(local_invocation_index) lane: u32) {
  var c = vec2u(0u, 0xffffffffu);
  if (lane < ${GROUPS}u) { c = candidates[lane]; }
  workgroupBarrier();
  reduced(0u, lane, bitcast<f32>(c.x), c.y);
}
`;

/** What one buffer is searched with. */
export interface Search {
  /** The result is at its beginning: bits of the value, and the index. */
  result: GPUBuffer;
  group: GPUBindGroup;
}

/** Finds the highest of the float32 values of buffers. */
export class Argmax {
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
    const module = device.createShaderModule({ code: TEXT });
    this.made = Promise.all(
      ["first", "second"].map((entryPoint) =>
        device.createComputePipelineAsync({ layout, compute: { module, entryPoint } }),
      ),
    ).then(
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
    const result = this.gpu.buffer(GROUPS * CANDIDATE);
    const group = this.gpu.device.createBindGroup({
      layout: this.layout,
      entries: [
        { binding: 0, resource: { buffer: block.gpu, offset, size: Math.ceil(bytes / 4) * 4 } },
        { binding: 1, resource: { buffer: result } },
      ],
    });
    return { result, group };
  }

  /** Submits a search, after what was submitted before. */
  run({ group }: Search): void {
    const encoder = this.gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setBindGroup(0, group);
    this.pipelines.forEach((pipeline, i) => {
      pass.setPipeline(pipeline);
      pass.dispatchWorkgroups(i ? 1 : GROUPS);
    });
    pass.end();
    this.gpu.device.queue.submit([encoder.finish()]);
  }
}
