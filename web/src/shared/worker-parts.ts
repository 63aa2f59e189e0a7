// The scripts that worker.js loads when it needs them; worker.mjs builds them.

/** Names of the scripts, which are beside worker.js. */
export const WORKER_PARTS = [
  "worker-adapters",
  "worker-candidates",
  "worker-diffusion",
  "worker-generation",
  "worker-heads",
  "worker-images",
  "worker-indexed",
  "worker-inference",
  "worker-moonshine",
  "worker-onnx",
  "worker-pipelines",
  "worker-profile",
  "worker-sounds",
  "worker-speech",
  "worker-storage",
  "worker-templates",
  "worker-texts",
  "worker-training",
  "worker-voices",
  "worker-webgpu",
  "worker-webgpu-choice",
  "worker-webgpu-probe",
  "worker-webgpu-bytes",
  "worker-webgpu-serial",
  "worker-webgpu-images",
  "worker-webgpu-training",
] as const;

/** Name of such a script. */
export type WorkerPart = (typeof WORKER_PARTS)[number];
