// The methods of the worker that a page can call.

import type { DeviceWish, Flavour } from "../shared/platform.ts";
import type { ArtifactsAnswer, ArtifactsInfo, PlainTensor } from "./artifacts.ts";
import type { DrawCall, Drawn } from "./drawing.ts";
import type { Generated, GenerateRequest, Message, PrefixRequest } from "./generation.ts";
import type { GpuReport, GpuReportRequest } from "./gpu-report.ts";
import type { GraphsAnswer, GraphsCall, GraphsInfo } from "./graphs.ts";
import type { HeadAnswer, HeadCall } from "./heads.ts";
import type { OpenInfo, OpenRequest, RunAnswer, RunRequest } from "./inference.ts";
import type { Loaded, LoadRequest, ModelFiles, Urls } from "./loading.ts";
import type { ProfileData } from "./profile.ts";
import type { StorageCall } from "./storage.ts";
import type { TaskCall, TaskFeed, TaskInfo } from "./tasks.ts";
import type {
  AdapterExport,
  AdapterInfo,
  KeptAdapter,
  SeenToken,
  StepEvent,
  TrainingEstimate,
  TrainingFields,
  TrainingInfo,
  TrainingRecord,
  TrainingResult,
} from "./training.ts";
import type { Matches, Rows, VectorsInfo, VectorsRequest } from "./vectors.ts";

/** Methods of the worker. `model`: the number returned by `load`. */
export interface Methods {
  load(request: LoadRequest): Loaded;
  /** Files of a model in a folder or on a hub. */
  find(request: LoadRequest): ModelFiles;
  generate(request: GenerateRequest): Generated;
  encode(request: {
    model: number;
    text: string;
    add_special_tokens: boolean | undefined;
  }): number[];
  decode(request: {
    model: number;
    ids: number[];
    options: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean };
  }): string;
  chat(request: {
    model: number;
    messages: Message[];
    options: Record<string, unknown>;
  }): string | number[];
  /** Frees the states of earlier generations. */
  clear(request: { model: number }): void;
  save_prefix(request: PrefixRequest): Blob;
  /** Returns the tokens of the file. */
  load_prefix(request: { model: number; file: Blob }): number;
  unload(request: { model: number }): void;

  /** Prepares a training run. A model has at most one. */
  train(request: {
    model: number;
    texts: (string | TrainingRecord)[];
    fields: TrainingFields;
  }): TrainingInfo;
  /** Memory and time of a run. */
  train_estimate(request: {
    model: number;
    texts: (string | TrainingRecord)[];
    fields: TrainingFields;
    measure: boolean;
  }): TrainingEstimate;
  /** What the model will see of the first texts or records. */
  train_preview(request: {
    model: number;
    data: (string | TrainingRecord)[];
    count: number;
    adapter: "lora" | "full" | undefined;
  }): SeenToken[][];
  /** Runs to the end or to an abort, sending each step as an event. */
  train_fit(request: { model: number }): TrainingResult;
  train_step(request: { model: number }): StepEvent;
  train_pause(request: { model: number; paused: boolean }): void;
  train_evaluate(request: { model: number }): number;
  train_optimizer(request: { model: number }): Uint8Array<ArrayBuffer>;
  train_save(request: { model: number }): number;
  train_result(request: { model: number }): TrainingResult;
  /** Ends the run; the trained adapter stays. */
  train_close(request: { model: number }): AdapterInfo[];

  adapters(request: { model: number }): AdapterInfo[];
  adapter_load(request: {
    model: number;
    files: { name: string; blob: Blob }[] | undefined;
    name: string;
  }): AdapterInfo[];
  adapter_use(request: { model: number; name: string | null; scale: number }): AdapterInfo[];
  adapter_save(request: { model: number; name: string }): { name: string; blob: Blob }[];
  adapter_rename(request: { model: number; name: string; to: string }): AdapterInfo[];
  adapter_remove(request: { model: number; name: string }): AdapterInfo[];
  adapter_keep(request: { model: number; name: string }): number;
  adapter_kept(request: { model: number }): KeptAdapter[];
  adapter_forget(request: { model: number; name: string }): void;
  adapter_merge(request: {
    model: number;
    name: string;
    files: { name: string; blob: Blob }[] | string | undefined;
  }): Blob;
  /** Files of another library: of a model with an adapter merged into it, or of an adapter. */
  adapter_export(request: AdapterExport): { name: string; blob: Blob }[];

  /** Starts recording the engine of a model, or of the worker's session (undefined). */
  profile_start(request: { model: number | undefined }): void;
  profile_stop(request: { model: number | undefined; wanted: boolean }): ProfileData | undefined;
  profile_trace(request: { data: ProfileData }): Blob;

  /** Loads the pipeline of this worker, for a task other than text generation. */
  task_open(request: LoadRequest): TaskInfo;
  /** One result for each input, as src/worker/pipelines describes them. */
  task_call(request: TaskCall): unknown[];
  /** What happened in the next samples of a stream of sound. */
  task_feed(request: TaskFeed): unknown[];

  /** Loads a model of several graphs: its `task` is a kind of sessions/graphs.ts. */
  graphs_open(request: LoadRequest): GraphsInfo;
  graphs_call(request: GraphsCall): GraphsAnswer;

  /** Loads text-to-image. */
  draw_open(request: LoadRequest): TaskInfo;
  /** Makes pictures, sending each step as an event. */
  draw_call(request: DrawCall): Drawn;
  /** A method of a personal pipeline that is made of this worker's pipeline. */
  task_head(request: HeadCall): HeadAnswer;

  inference_open(request: OpenRequest): OpenInfo;
  inference_run(request: RunRequest): RunAnswer;
  /** Bytes of an output that stayed in the engine. */
  inference_read(request: { id: number }): Uint8Array<ArrayBuffer>;
  inference_drop(request: { ids: number[] }): void;

  artifacts_open(request: {
    files: Record<string, Blob | string>;
    urls: Urls;
    device: DeviceWish;
    flavour: Flavour | "auto";
    threads: number | undefined;
  }): ArtifactsInfo;
  artifacts_run(request: {
    kind: "train" | "eval";
    feeds: Record<string, PlainTensor>;
  }): ArtifactsAnswer;
  artifacts_update(request: Record<string, never>): void;
  artifacts_reset(request: Record<string, never>): void;
  artifacts_rate(request: { rate: number | undefined }): number;
  artifacts_seed(request: { seed: bigint }): void;
  artifacts_read(request: { names: string[] }): Record<string, PlainTensor>;
  artifacts_write(request: { values: Record<string, Uint8Array<ArrayBuffer>> }): void;
  artifacts_save(request: { optimizer: boolean }): Uint8Array<ArrayBuffer>;
  artifacts_export(request: { outputs: string[] }): Uint8Array<ArrayBuffer>;

  /** Opens an index of vectors. */
  vectors_open(request: VectorsRequest): { info: VectorsInfo; texts: string[] | undefined };
  vectors_add(request: Rows): VectorsInfo;
  /** One result for each query. `within`: of the first vectors, so many are compared. */
  vectors_search(request: { queries: Rows; top_k: number; within?: number }): Matches[];
  vectors_save(request: { texts: string[] | undefined }): Blob;

  /** Measures the GPU. */
  gpu_report(request: GpuReportRequest): GpuReport;

  /** A call of `StorageCalls`. */
  storage(request: StorageCall): unknown;
}
