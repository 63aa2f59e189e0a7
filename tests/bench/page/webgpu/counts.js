// What a worker asks of WebGPU, counted where the browser's objects are called: import it first.
export const counts = {
  dispatches: 0,
  submits: 0,
  maps: 0,
  bytesRead: 0,
  buffers: 0,
  pipelines: 0,
};
const alive = new Map();
let bytes = 0;
let peak = 0;

function watch(type, name, note) {
  const original = globalThis[type]?.prototype[name];
  if (original)
    globalThis[type].prototype[name] = function (...given) {
      const result = original.apply(this, given);
      note(this, given, result);
      return result;
    };
}

watch("GPUComputePassEncoder", "dispatchWorkgroups", () => counts.dispatches++);
watch("GPUComputePassEncoder", "dispatchWorkgroupsIndirect", () => counts.dispatches++);
watch("GPUQueue", "submit", () => counts.submits++);
watch("GPUBuffer", "mapAsync", (buffer, [mode, offset = 0, size = buffer.size - offset]) => {
  if (!(mode & 1)) return;
  counts.maps++;
  counts.bytesRead += size;
});
watch("GPUDevice", "createComputePipeline", () => counts.pipelines++);
watch("GPUDevice", "createComputePipelineAsync", () => counts.pipelines++);
watch("GPUDevice", "createBuffer", (_, __, buffer) => {
  counts.buffers++;
  alive.set(buffer, buffer.size);
  bytes += buffer.size;
  peak = Math.max(peak, bytes);
});
watch("GPUBuffer", "destroy", (buffer) => {
  bytes -= alive.get(buffer) ?? 0;
  alive.delete(buffer);
});

/** Most bytes of GPUBuffers that were alive at once; those that were never destroyed count. */
export const peakBytes = () => peak;

/** The adapter, as the browser describes it, and whether shaders may compute with halves. */
export async function adapter() {
  const found = await navigator.gpu?.requestAdapter();
  const { vendor, architecture, device, description } = found?.info ?? {};
  const words = [vendor, architecture, device, description].filter(Boolean).join(", ");
  return { adapter: words, halves: found?.features.has("shader-f16") ?? false };
}
