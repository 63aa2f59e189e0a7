// The worker of a pipeline or session: runs the engine, the tokenizer and the generation loop, so
// that the page's thread only exchanges messages.

import { closeDevices, gpuPart } from "../device/open.ts";
import type { DrawEvent } from "../protocol/drawing.ts";
import { plainError } from "../protocol/errors.ts";
import type { Generated, GenerateRequest } from "../protocol/generation.ts";
import type { Call, FromWorker, ToWorker } from "../protocol/messages.ts";
import type { Methods } from "../protocol/methods.ts";
import type { AdapterInfo } from "../protocol/training.ts";
import { throwIfAborted } from "../shared/abort.ts";
import { InputError } from "../shared/errors.ts";
import { NotFound } from "../shared/files/connection.ts";
import { HttpSource } from "../shared/files/http.ts";
import { toBlob } from "../shared/files/source.ts";
import { holdLife, life } from "../shared/lives.ts";
import { receiveFromPage, spawnByPage } from "../shared/spawn.ts";
import { setStallTimeout } from "../shared/watchdog.ts";
import { compilersEnded } from "./compiler-client.ts";
import { sessionWarnings } from "./files/reports.ts";
import type { Answer, InferenceService } from "./inference/service.ts";
import { loadModel } from "./model/load.ts";
import type { Model } from "./model/model.ts";
import { notThere } from "./model/not-there.ts";
import { generateText } from "./model/text-generation.ts";
import { parts } from "./parts.ts";
import type { DiffusionHost } from "./pipelines/diffusion/index.ts";
import type { TaskHost } from "./pipelines/host.ts";
import type { Recorder } from "./profile/index.ts";
import { working } from "./text/working.ts";
import type { Adapters } from "./training/adapters.ts";
import type { ArtifactSession } from "./training/artifacts.ts";
import type { TrainingRun } from "./training/trainer.ts";

const post = postMessage as (message: FromWorker, transfer?: Transferable[]) => void;
working.report = (what) => post({ working: what });
gpuPart.load = () => import("../device/webgpu/device.ts");
const running = new Map<number, AbortController>();
const models = new Map<number, Model>();
let nextModel = 1;
const trainings = new Map<number, TrainingRun>();

/**
 * The last task of each model. Generations and training steps of a model run one after the other,
 * since they share the arena of its plans. A failed task does not affect the next one.
 */
const turns = new Map<number, Promise<unknown>>();

function turn<T>(id: number, work: () => T | Promise<T>): Promise<T> {
  const mine = (turns.get(id) ?? Promise.resolve()).then(work);
  turns.set(
    id,
    mine.catch(() => undefined),
  );
  return mine;
}

function training(id: number): TrainingRun {
  model(id);
  const found = trainings.get(id);
  if (!found) throw new InputError("no training run is active", "", "Make a Trainer.");
  return found;
}

/** The InferenceSession of this worker, if it has one. */
let inference: InferenceService | undefined;

/** The pipeline of this worker, if it is not one for text generation. */
let task: TaskHost | undefined;

/** The text-to-image pipeline of this worker, if it has one. */
let drawing: DiffusionHost | undefined;

/** The TrainingSession of this worker, if it has one. */
let artifacts: ArtifactSession | undefined;
const ended = new AbortController();

/** Active profiles by model; undefined: of the session. */
const recorders = new Map<number | undefined, Recorder>();

/** A callback that sends a warning as an event of a call. */
function warning(id: number): (text: string) => void {
  return sessionWarnings((progress) => post({ id, progress }));
}

function session(): InferenceService | ArtifactSession {
  const found = inference ?? artifacts;
  if (!found) throw new InputError("this session has been released", "profile", "Make a new one.");
  return found;
}

function opened(): InferenceService {
  if (!inference)
    throw new InputError("this session has been released", "InferenceSession", "Make a new one.");
  return inference;
}

/** Buffers to transfer to the page with a result, instead of copying them. */
const moves = new WeakMap<object, Transferable[]>();

async function moving<T extends object>(answer: Answer<T> | Promise<Answer<T>>): Promise<T> {
  const { value, transfer } = await answer;
  moves.set(value, transfer);
  return value;
}

function inTurn<T>(
  work: (artifacts: ArtifactSession) => T | Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  return turn(0, () => {
    throwIfAborted(signal);
    if (!artifacts)
      throw new InputError("this session has been released", "TrainingSession", "Make a new one.");
    return work(artifacts);
  });
}

/** Changes the adapters of a model in its turn, and returns the updated list. */
function adapters(
  id: number,
  change: (adapters: Adapters, model: Model) => unknown,
): Promise<AdapterInfo[]> {
  return turn(id, async () => {
    const one = model(id);
    const { adaptersOf } = await import("./training/index.ts");
    const all = adaptersOf(one);
    await change(all, one);
    return all.list();
  });
}

function model(id: number): Model {
  const found = models.get(id);
  if (!found) throw new InputError("this pipeline has been disposed of", "", "Make a new one.");
  return found;
}

const methods: {
  [M in keyof Methods]: (
    request: Parameters<Methods[M]>[0],
    id: number,
    signal: AbortSignal,
  ) => ReturnType<Methods[M]> | Promise<ReturnType<Methods[M]>>;
} = {
  async load(request, id, signal) {
    // The page will train: it needs no network for that later. A failure is reported then.
    const trains = request.programs && import("./training/index.ts").catch(() => undefined);
    const loaded = await loadModel(request, signal, (progress) => post({ id, progress }));
    await trains;
    models.set(nextModel, loaded);
    return { model: nextModel++, info: loaded.info };
  },
  async find(request, id, signal) {
    const { modelFiles } = await import("./model/onnx/index.ts");
    return modelFiles(request, signal, (progress) => post({ id, progress }));
  },
  generate: (request, id, signal) => turn(request.model, () => run(request, id, signal)),
  encode: ({ model: id, text, add_special_tokens }) =>
    model(id).tokenizer.encode(text, add_special_tokens),
  decode: ({ model: id, ids, options }) => model(id).tokenizer.decode(ids, options),
  chat: ({ model: id, messages, options }) =>
    model(id).tokenizer.applyChatTemplate(messages, options),
  unload({ model: id }) {
    trainings.delete(id);
    models.get(id)?.device.close();
    models.delete(id);
  },

  train: ({ model: id, texts, fields }, _, signal) =>
    turn(id, async () => {
      if (trainings.has(id))
        throw new InputError(
          "another training run is active",
          "",
          "Wait for it, or close its Trainer.",
        );
      const { TrainingRun } = await import("./training/index.ts");
      const run = await TrainingRun.open(model(id), texts, fields, signal);
      trainings.set(id, run);
      return run.info;
    }),
  train_fit: ({ model: id }, call, signal) =>
    training(id).fit(
      (work) => turn(id, work),
      (step) => post({ id: call, step }),
      signal,
    ),
  train_step: ({ model: id }) => turn(id, () => training(id).advance()),
  train_pause: ({ model: id, paused }) => training(id).pause(paused),
  train_evaluate: ({ model: id }) => turn(id, () => training(id).evaluate()),
  train_optimizer: ({ model: id }) => turn(id, () => training(id).optimizerState()),
  train_save: ({ model: id }) => turn(id, () => training(id).save()),
  train_result: ({ model: id }) => training(id).result(),
  train_close: ({ model: id }) =>
    adapters(id, async () => {
      const run = trainings.get(id);
      trainings.delete(id);
      await run?.close();
    }),

  adapters: ({ model: id }) => turn(id, () => model(id).adapters?.list() ?? []),
  adapter_load: ({ model: id, files, name }) =>
    adapters(id, async (all, one) => {
      const { readKept } = await import("./training/index.ts");
      return all.load(files ?? (await readKept(one, name)), name);
    }),
  adapter_use: ({ model: id, name, scale }) => adapters(id, (all) => all.use(name, scale)),
  adapter_save: ({ model: id, name }) =>
    turn(id, async () => {
      const { adaptersOf } = await import("./training/index.ts");
      return adaptersOf(model(id)).save(name);
    }),
  adapter_rename: ({ model: id, name, to }) => adapters(id, (all) => all.rename(name, to)),
  adapter_remove: ({ model: id, name }) => adapters(id, (all) => all.remove(name)),
  adapter_keep: ({ model: id, name }) =>
    turn(id, async () => {
      const { adaptersOf, keep } = await import("./training/index.ts");
      const one = model(id);
      return keep({ key: one.key, adapters: adaptersOf(one) }, name);
    }),
  async adapter_kept({ model: id }) {
    const { listKept } = await import("./training/index.ts");
    return listKept(model(id));
  },
  async adapter_forget({ model: id, name }) {
    const { forget } = await import("./training/index.ts");
    return forget(model(id), name);
  },
  async adapter_merge({ model: id, name, files }, _, signal) {
    const { mergedOnnx } = await import("./training/index.ts");
    return mergedOnnx(model(id), name, files, signal);
  },

  async profile_start({ model: id }) {
    const { device } = id === undefined ? session() : model(id);
    const { Recorder } = await import("./profile/index.ts");
    recorders.set(id, new Recorder(device));
  },
  async profile_stop({ model: id, wanted }) {
    const recorder = recorders.get(id);
    if (!recorder) throw new InputError("no profile is active", "profile", "Begin one.");
    recorders.delete(id);
    if (wanted) return recorder.stop();
    recorder.release();
    return undefined;
  },
  async profile_trace({ data }) {
    const { traceOf } = await import("./profile/index.ts");
    return new Blob([JSON.stringify(traceOf(data))], { type: "application/json" });
  },

  async task_open(request, id, signal) {
    const { openTask } = await import("./pipelines/index.ts");
    throwIfAborted(signal);
    task = await openTask(request, signal, (progress) => post({ id, progress }));
    task.on.moved = (device) => post({ device });
    return task.info;
  },
  task_call: (request, id, signal) =>
    moving(
      turn(0, async () => {
        throwIfAborted(signal);
        const { runTask } = await import("./pipelines/index.ts");
        return runTask(task!, request, signal, {
          streams: request.streams,
          text: (text, end) => post({ id, text, end }),
          send: (name, value) => post({ id, event: { name, value } }),
        });
      }),
    ),
  async task_feed(request, _, signal) {
    const { feedTask } = await import("./pipelines/index.ts");
    return feedTask(task!, request, (work) => turn(0, work), signal);
  },

  async draw_open(request, id, signal) {
    const { DiffusionHost } = await import("./pipelines/diffusion/index.ts");
    throwIfAborted(signal);
    drawing = await DiffusionHost.load(request, signal, (progress) => post({ id, progress }));
    drawing.moved = (device) => post({ device });
    return drawing.info;
  },
  draw_call: (request, id, signal) =>
    turn(0, async () => {
      throwIfAborted(signal);
      const { draw } = await import("./pipelines/diffusion/index.ts");
      const send = (progress: DrawEvent) => post({ id, progress });
      const made = await draw(drawing!, request, signal, send);
      moves.set(made, [...made.pictures.map(({ data }) => data.buffer)]);
      return made;
    }),

  task_head: (request, _, signal) =>
    turn(0, async () => {
      throwIfAborted(signal);
      const { runHead } = await import("./pipelines/heads/index.ts");
      return runHead(task!, request, signal);
    }),

  async inference_open(request, id, signal) {
    const { InferenceService } = await import("./inference/service.ts");
    throwIfAborted(signal);
    inference = new InferenceService();
    return inference.open(request, (progress) => post({ id, progress }), signal);
  },
  inference_run: (request, id, signal) => moving(opened().run(request, signal, warning(id))),
  inference_read: ({ id }) => moving(opened().read(id)),
  inference_drop: ({ ids }) => opened().drop(ids),

  async artifacts_open({ files, urls, device, flavour, threads }, _, signal) {
    const read = async (file: Blob | string) =>
      typeof file !== "string"
        ? file
        : toBlob(new HttpSource(file, { signal })).catch((e: unknown) =>
            Promise.reject(e instanceof NotFound ? notThere(e) : e),
          );
    const given = new Map(
      await Promise.all(
        Object.entries(files).map(
          async ([name, file]): Promise<[string, Blob]> => [name, await read(file)],
        ),
      ),
    );
    const { ArtifactSession } = await import("./training/index.ts");
    artifacts = await ArtifactSession.open(given, urls, { device, flavour, threads }, ended.signal);
    return artifacts.info;
  },
  artifacts_run: ({ kind, feeds }, _, signal) => inTurn((a) => a.run(kind, feeds, signal), signal),
  artifacts_update: (_request, _, signal) => inTurn((a) => a.update(), signal),
  artifacts_reset: () => inTurn((a) => a.reset()),
  artifacts_rate: ({ rate }) => inTurn((a) => a.learningRate(rate)),
  artifacts_seed: ({ seed }) => inTurn((a) => a.setSeed(seed)),
  artifacts_read: ({ names }) => inTurn((a) => a.read(names)),
  artifacts_write: ({ values }) => inTurn((a) => a.write(values)),
  artifacts_save: ({ optimizer }, _, signal) => inTurn((a) => a.save(optimizer), signal),
  artifacts_export: ({ outputs }, _, signal) => inTurn((a) => a.export(outputs), signal),

  async storage({ call, args }) {
    const work: object = /checkpoint/i.test(call)
      ? (await import("./training/index.ts")).storage
      : (await import("./storage/index.ts")).storage;
    return (work as Record<string, (...args: unknown[]) => unknown>)[call]!(...args);
  },
};

function run(request: GenerateRequest, id: number, signal: AbortSignal): Promise<Generated> {
  throwIfAborted(signal);
  const sink = {
    text: (text: string, end: boolean) => (text || end) && post({ id, text, end }),
    tokens: (tokens: number[]) => post({ id, tokens }),
  };
  const one = model(request.model);
  one.adapters?.refresh();
  one.decoder.signal = signal;
  return generateText(one, request, sink, signal).finally(() => {
    one.decoder.signal = undefined;
  });
}

async function answer(call: Call): Promise<void> {
  const { id } = call;
  const controller = new AbortController();
  running.set(id, controller);
  try {
    const method = methods[call.method] as (
      request: unknown,
      id: number,
      signal: AbortSignal,
    ) => unknown;
    const value = await method(call.request, id, controller.signal);
    const transfer = typeof value === "object" && value !== null ? moves.get(value) : undefined;
    if (transfer) post({ id, value }, transfer);
    else post({ id, value });
  } catch (e) {
    post({ id, error: plainError(e) });
  } finally {
    running.delete(id);
  }
}

/**
 * Time for ended threads to disappear; Chromium leaks a thread if the worker that ended it is
 * itself ended meanwhile.
 */
const THREADS_END_MS = 200;

/** Ends all threads and Python, then notifies the page. */
async function end(): Promise<void> {
  ended.abort();
  for (const controller of running.values()) controller.abort();
  inference?.close(); // ends its Python before compilersEnded is awaited
  await Promise.all([closeDevices(), compilersEnded()]);
  setTimeout(() => post({ ended: true }), THREADS_END_MS);
}

/** Serves the pipeline or session that this worker is made for. */
export function serveWorker(): void {
  spawnByPage(post);
  addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
    if ("start" in data) {
      setStallTimeout(data.start.stallTimeout);
      parts.urls = data.start.parts;
      life.name = data.start.life;
      life.report = (name, held) => post({ life: name, held });
      holdLife(life.name, (watched) => watched && life.report(life.name, true));
      post({ started: true });
    } else if ("child" in data) receiveFromPage(data);
    else if ("end" in data) void end();
    else if ("abort" in data)
      running.get(data.id)?.abort(data.reason === undefined ? undefined : new Error(data.reason));
    else void answer(data);
  });
}
