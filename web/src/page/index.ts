/**
 * Edgewise: run and train ONNX models in a web page.
 *
 * ```html
 * <script type="module">
 *   import { pipeline } from "./edgewise.js";
 *   const write = await pipeline("text-generation", "model.edge");
 *   const [{ generated_text }] = await write("Once upon a time", { max_new_tokens: 50 });
 * </script>
 * ```
 *
 * `pipeline`, `TextStreamer` and `env` mirror transformers.js; generation options mirror
 * transformers' GenerationConfig. {@link fineTune} and {@link Trainer} train a loaded model.
 * {@link InferenceSession} (any model) and {@link TrainingSession} mirror ONNX Runtime Web.
 * Everything runs in a worker, so the page's main thread is never blocked.
 * @module
 */

export { word_error_rate as wordErrorRate } from "../logic/speech/word_errors.ts";
export type { FinishReason, GenerationFields, Message } from "../protocol/generation.ts";
export type { GpuCase, GpuComparison, GpuReport } from "../protocol/gpu-report.ts";
export type { HeadInfo, Measures } from "../protocol/heads.ts";
export type {
  CacheDType,
  DType,
  ModelFiles,
  ModelInfo,
  ProgressEvent,
} from "../protocol/loading.ts";
export type { Limits } from "../protocol/profile.ts";
export type { CachedFile, CachedModel } from "../protocol/storage.ts";
export type { TaskInfo } from "../protocol/tasks.ts";
export type {
  AdapterInfo,
  DataReport,
  KeptAdapter,
  SeenToken,
  StepEvent,
  TrainingEstimate,
  TrainingInfo,
  TrainingRecord,
  TrainingResult,
} from "../protocol/training.ts";
export type { CheckpointInfo } from "../shared/checkpoints/checkpoint.ts";
export * from "../shared/errors.ts";
export type { DeviceInfo, DeviceName, Flavour } from "../shared/platform.ts";
export type { Priority } from "../shared/priority.ts";
export type { DeviceChoice } from "./device.ts";
export { type Env, env } from "./env.ts";
export type { EnvAliases, LogLevel, WasmFlags } from "./env-aliases.ts";
export { type GpuReportOptions, gpuReport } from "./gpu-report.ts";
export type { Fetches } from "./inference/fetches.ts";
export {
  InferenceSession,
  type RunOptions,
  type SessionOptions,
  type ValueMetadata,
} from "./inference/session.ts";
export {
  type CachedModelOptions,
  cacheBytes,
  checkpoints,
  clearCache,
  deleteCheckpoint,
  models,
} from "./models.ts";
export {
  codec,
  type Info,
  info,
  modelFiles,
  type PipelineOf,
  type PipelineTask,
  pipeline,
} from "./pipeline.ts";
export type {
  AudioCodes,
  Codec,
  CodecOptions,
  CodesInput,
  DecodedSound,
} from "./pipelines/codec.ts";
export type {
  DrawStep,
  TextToImageOptions,
  TextToImagePipeline,
  TextToImageResult,
} from "./pipelines/drawing.ts";
export { type MicrophoneOptions, microphone, type RecordedPiece } from "./pipelines/microphone.ts";
export {
  type ExamplesOf,
  type InputOf,
  type LoraTraining,
  type PersonalCallOptions,
  type Personalizable,
  type PersonalizeOptions,
  type PersonalPipeline,
  personalize,
} from "./pipelines/personal.ts";
export { type ImageInput, type Pixels, RawImage } from "./pipelines/pictures.ts";
export type { SoundPiece, SoundSource, SoundStream, Streams } from "./pipelines/sound-streams.ts";
export type { RawSound, Samples, SoundInput } from "./pipelines/sounds.ts";
export type {
  Phonemes,
  SpeechSound,
  TextToSpeechOptions,
  TextToSpeechPipeline,
} from "./pipelines/speaking.ts";
export type * from "./pipelines/types.ts";
export {
  type IndexMethods,
  type IndexPrecision,
  type IndexSource,
  type SearchOptions,
  TextIndex,
  type TextIndexOptions,
  type TextMatch,
  VectorIndex,
  type VectorIndexOptions,
  type VectorMatch,
  type VectorsInput,
} from "./pipelines/vectors.ts";
export {
  type MemoryRow,
  type NodeRow,
  type OpRow,
  type PlanRow,
  Profile,
  type ProfileRow,
} from "./profile.ts";
export {
  InterruptableStoppingCriteria,
  type StoppingCriteria,
  StoppingCriteriaList,
} from "./stopping.ts";
export {
  type Halves,
  type OnnxValue,
  Tensor,
  type TensorData,
  type TensorLocation,
  type Tensors,
  type TensorType,
} from "./tensor.ts";
export type {
  ChannelOrder,
  FromImageOptions,
  PictureSource,
  ToImageOptions,
} from "./tensor-images.ts";
export {
  type GenerateOptions,
  type MessageDelta,
  type ModelSource,
  type PipelineOptions,
  type PrefixInput,
  type PrefixOptions,
  type Stats,
  type StreamerOptions,
  type TextGenerationOutput,
  type TextGenerationPipeline,
  TextStreamer,
  type TokenStreamer,
  type Tool,
  type ToolCall,
  type ToolCallChunk,
  type ToolExecute,
  type ToolRun,
  type ToolRunOptions,
  type TrainingPrograms,
} from "./text-generation.ts";
export type {
  AdapterExportOptions,
  AdapterMethods,
  CardOptions,
  ModelExportOptions,
} from "./training/adapter-methods.ts";
export {
  previewData,
  previewHTML,
  previewText,
  readData,
  type TrainingData,
} from "./training/data.ts";
export { type FineTuneOptions, fineTune, Trainer } from "./training/fine-tune.ts";
export {
  LinearLRScheduler,
  type StepOptions,
  type TrainingParameter,
  TrainingSession,
  type TrainingSessionCreateOptions,
  type TrainingSessionOptions,
} from "./training/ort.ts";
