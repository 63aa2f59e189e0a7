/**
 * Edgewise: ONNX models in a web page.
 *
 * ```html
 * <script type="module">
 *   import { pipeline } from "./edgewise.js";
 *   const write = await pipeline("text-generation", "model.edge");
 *   const [{ generated_text }] = await write("Once upon a time", { max_new_tokens: 50 });
 * </script>
 * ```
 *
 * The API is that of transformers.js: `pipeline`, `TextStreamer`, `env`; what is generated and how
 * is that of transformers' GenerationConfig. {@link fineTune} and {@link Trainer} train what runs;
 * {@link InferenceSession} (for any model) and {@link TrainingSession} are ONNX Runtime Web's.
 * Everything runs in a worker: the page's thread is never blocked.
 * @module
 * /
 */

export * from "../shared/errors.ts";
export { env, type Env } from "./env.ts";
export { cacheBytes, clearCache } from "../shared/files/cached.ts";
export { fineTune, Trainer, type FineTuneOptions } from "./training/fine-tune.ts";
export type { AdapterMethods } from "./training/adapter-methods.ts";
export {
  type CheckpointInfo,
  deleteCheckpoint,
  checkpoints,
} from "../shared/checkpoints/checkpoint.ts";
export type {
  AdapterInfo,
  KeptAdapter,
  TrainingResult,
  TrainingInfo,
  StepEvent,
} from "../protocol/training.ts";
export { InferenceSession, type SessionOptions, type ValueMetadata } from "./inference/session.ts";
export {
  Profile,
  type MemoryRow,
  type NodeRow,
  type OpRow,
  type PlanRow,
  type ProfileRow,
} from "./profile.ts";
export type { Limits } from "../protocol/profile.ts";
export {
  Tensor,
  type OnnxValue,
  type TensorData,
  type TensorLocation,
  type Tensors,
  type TensorType,
} from "./tensor.ts";
export {
  LinearLRScheduler,
  TrainingSession,
  type StepOptions,
  type TrainingParameter,
  type TrainingSessionCreateOptions,
  type TrainingSessionOptions,
} from "./training/ort.ts";
export type { Message, GenerationFields } from "../protocol/generation.ts";
export type { DeviceChoice } from "./device.ts";
export type { DeviceInfo, DeviceName, Flavour } from "../shared/platform.ts";
export type { DType, CacheDType, ProgressEvent, ModelInfo } from "../protocol/loading.ts";
export { pipeline, info, type Info } from "./pipeline.ts";
export {
  TextStreamer,
  type PipelineOptions,
  type TrainingPrograms,
  type StreamerOptions,
  type TokenStreamer,
  type GenerateOptions,
  type TextGenerationOutput,
  type Stats,
  type TextGenerationPipeline,
  type ModelSource,
} from "./text-generation.ts";
