// What a client trains: the adapter of a text-generation pipeline, or a training session. Both are
// given by the page, so that this bundle does not contain the library again.

import { check_audit, number_of, SETTINGS, steps_of } from "../../logic/federated/terms.ts";
import {
  asFloat32,
  readSafetensors,
  safetensorsHead,
} from "../../shared/checkpoints/safetensors.ts";
import { InputError } from "../../shared/errors.ts";
import type { Values } from "./codec.ts";

const PREFIX = "base_model.model.";
const STEPS = 10;

/** A task of a round. */
export interface LocalTask {
  round: number;
  /** The same for all clients of the round. */
  seed: number;
  /**
   * The server's settings, such as `local-steps` and `learning-rate`. `proximal-mu` is the weight
   * of FedProx's term; with the `part` "B" LoRA's matrices A are not trained; with `audit`
   * ({batch, sequence}) the data are public texts, and the server makes the same update. With
   * `keep-optimizer` the optimizer goes on where it was; audits begin with a new one.
   */
  config: Record<string, unknown>;
  /** What the last update of this run that counted has kept: {@link LocalResult.kept}. */
  kept?: Uint8Array<ArrayBuffer>;
  /** Aborted at the deadline, and when the client leaves. */
  signal: AbortSignal;
  /** To be called after each update. */
  onStep: (step: number, steps: number, loss: number) => void;
}

/** The result of local training. */
export interface LocalResult {
  /** All parameters afterwards. */
  values: Values;
  /** The weight that the update shall have. */
  examples: number;
  /** Updates made. */
  steps: number;
  /** Numbers for the server, such as the loss. */
  metrics: Record<string, number>;
  /** For the next training, such as the state of the optimizer. It stays with the client. */
  kept?: Uint8Array<ArrayBuffer>;
}

/** What a client trains. With the same arguments `train` must give the same bits. */
export interface LocalTrainer<Data> {
  /**
   * Which of the settings `proximal-mu`, `part`, `audit` and `keep-optimizer` `train` applies:
   * without them, it would train something else than the server asks for. Tasks with others are
   * declined. Default: none.
   */
  readonly settings?: readonly string[];
  /**
   * Names and shapes of the parameters.
   * @throws InputError if the data cannot be used
   */
  shapes(data: Data): Promise<[name: string, shape: readonly number[]][]>;
  /** Takes over what the server says about its rounds. */
  welcome?(terms: Record<string, unknown>): void;
  /** Takes over the weights of a round. */
  load(weights: Values): Promise<void>;
  /**
   * Trains from the weights that were loaded.
   * @throws Aborted if `task.signal` was aborted; other errors decline the task with their text
   */
  train(data: Data, task: LocalTask): Promise<LocalResult>;
}

/** The parts of a text-generation pipeline that are used. */
interface TextModel {
  loadAdapter(name: string, files: File[]): Promise<unknown>;
  saveAdapter(name: string): Promise<File[]>;
  removeAdapter(name: string): Promise<void>;
  setAdapter(name: string | null): Promise<void>;
}
/** The parts of the class Trainer that are used. */
interface TrainerClass<Model> {
  create(
    model: Model,
    texts: string | string[],
    options: Record<string, unknown>,
  ): Promise<{
    info: { blocks: number; batch: number; sequence: number; averages?: boolean };
    run(): Promise<{ losses: number[] }>;
    optimizerState(): Promise<Uint8Array<ArrayBuffer>>;
    close(): Promise<void>;
  }>;
}

/** Options of {@link textTrainer}. */
export interface TextTrainerOptions {
  /** Name of the adapter with the weights of the last round. Default: `federated`. */
  name?: string;
  /** Learning rate, if the server does not set one. Default: the compiled program's. */
  learning_rate?: number;
}

/**
 * Trains the LoRA adapter of a text-generation pipeline on texts. The pipeline generates with the
 * weights of the last round: the adapter `federated`.
 *
 * ```js
 * textTrainer(await pipeline("text-generation", "model.edge"), Trainer)
 * ```
 * @param model the pipeline; its package was compiled with training
 * @param Trainer the library's class of this name
 */
export function textTrainer<Model extends TextModel>(
  model: Model,
  Trainer: TrainerClass<Model>,
  options: TextTrainerOptions = {},
): LocalTrainer<string | string[]> {
  return new TextTrainer(model, Trainer, options);
}

class TextTrainer<Model extends TextModel> implements LocalTrainer<string | string[]> {
  readonly settings: readonly string[] = SETTINGS;
  private readonly name: string;
  /** Name of the adapter that is being trained. */
  private readonly local: string;
  /** PEFT's configuration. */
  private config: Record<string, unknown> = {};
  private known = new Map<string, number[]>();

  constructor(
    private readonly model: Model,
    private readonly Trainer: TrainerClass<Model>,
    private readonly options: TextTrainerOptions,
  ) {
    this.name = options.name ?? "federated";
    this.local = `${this.name} (training)`;
  }

  async shapes(data: string | string[]): Promise<[string, number[]][]> {
    const options = { adapter: "lora", name: this.local, max_steps: 1 };
    const trainer = await this.Trainer.create(this.model, data, options);
    await trainer.close();
    if (trainer.info.averages)
      throw new InputError(
        "rounds send weights, not their averages",
        "ema_decay",
        "Compile the model without: the server averages the weights of clients.",
      );
    const files = await this.model.saveAdapter(this.local);
    await this.model.removeAdapter(this.local);
    this.config = JSON.parse(await files.find((f) => f.name.endsWith(".json"))!.text());
    const { tensors } = await readSafetensors(weightsOf(files), "adapter");
    this.known = new Map(Array.from(tensors, ([key, t]) => [key.replace(PREFIX, ""), t.shape]));
    return [...this.known];
  }

  welcome({ lora }: Record<string, unknown>): void {
    const alpha = (lora as { lora_alpha?: number } | null | undefined)?.lora_alpha;
    if (alpha !== undefined) this.config.lora_alpha = alpha;
  }

  async load(weights: Values): Promise<void> {
    const infos = Array.from(weights, ([key, x]): [string, TensorFields] => [
      PREFIX + key,
      { dtype: "float32", shape: this.known.get(key)!, bytes: x.byteLength },
    ]);
    const { head, order } = safetensorsHead(new Map(infos), { format: "pt" });
    const parts = order.map((key) => weights.get(key.replace(PREFIX, ""))!);
    await this.model.loadAdapter(this.name, [
      new File([head, ...parts], "adapter_model.safetensors"),
      new File([JSON.stringify(this.config)], "adapter_config.json"),
    ]);
    await this.model.setAdapter(this.name);
  }

  async train(data: string | string[], task: LocalTask): Promise<LocalResult> {
    const steps = steps_of(task.config, STEPS);
    const rate = number_of(task.config, "learning-rate", this.options.learning_rate ?? 0);
    const { audit } = task.config as { audit?: { batch: unknown; sequence: unknown } | null };
    const keeps = !audit && Boolean(task.config["keep-optimizer"]);
    const options = {
      adapter: "lora",
      name: this.local,
      initial: this.name,
      max_steps: steps,
      seed: task.seed,
      learning_rate: rate || undefined,
      proximal_mu: number_of(task.config, "proximal-mu", 0),
      freeze_A: task.config.part === "B",
      signal: task.signal,
      onStep: (e: { step: number; total: number; loss: number }) =>
        task.onStep(e.step, e.total, e.loss),
    };
    const from = (state?: Uint8Array) =>
      this.Trainer.create(this.model, data, { ...options, optimizer_state: state });
    const run = await from(keeps ? task.kept : undefined).catch((e) => {
      // the package was compiled anew, with another optimizer
      if (!(e instanceof InputError && e.where === "options.optimizer_state")) throw e;
      return from();
    });
    try {
      const { batch, sequence } = run.info;
      if (audit) check_audit({ ...audit }, batch, sequence);
      const { losses } = await run.run();
      const loss = losses.reduce((a, b) => a + b, 0) / losses.length;
      const values = await this.read();
      const kept = keeps ? await run.optimizerState() : undefined;
      return { values, examples: run.info.blocks, steps: losses.length, metrics: { loss }, kept };
    } finally {
      await run.close();
      await this.model.removeAdapter(this.local);
      await this.model.setAdapter(this.name);
    }
  }

  /** The adapter that was trained. */
  private async read(): Promise<Values> {
    const file = weightsOf(await this.model.saveAdapter(this.local));
    const { tensors } = await readSafetensors(file, file.name);
    const bytes = new Uint8Array(await file.arrayBuffer());
    const values: Values = new Map();
    for (const [key, t] of tensors) {
      const own = bytes.slice(t.offset, t.offset + t.bytes);
      values.set(key.replace(PREFIX, ""), asFloat32(own, t.dtype, key));
    }
    return values;
  }
}

function weightsOf(files: File[]): File {
  return files.find((f) => f.name.endsWith(".safetensors"))!;
}

interface TensorFields {
  dtype: string;
  shape: number[];
  bytes: number;
}

/** The parts of a TrainingSession that are used. */
interface Session {
  readonly parameters: { name: string; dims: readonly number[]; requires_grad: boolean }[];
  getContiguousParameters(trainableOnly?: boolean): Promise<{ data: unknown }>;
  loadParametersBuffer(buffer: Float32Array, trainableOnly?: boolean): Promise<void>;
}

/**
 * Trains the parameters of a TrainingSession with a function of the page.
 * @param session made by TrainingSession.create
 * @param train makes the updates of a round: as many as `task.config["local-steps"]` says
 * @param settings see {@link LocalTrainer.settings}
 */
export function sessionTrainer<Data>(
  session: Session,
  train: (data: Data, task: LocalTask) => Promise<Omit<LocalResult, "values">>,
  settings?: readonly string[],
): LocalTrainer<Data> {
  const trained = session.parameters.filter((p) => p.requires_grad);
  return {
    ...(settings && { settings }),
    shapes: async () => trained.map((p) => [p.name, p.dims]),
    async load(weights) {
      const all = await new Blob(trained.map((p) => weights.get(p.name)!)).arrayBuffer();
      await session.loadParametersBuffer(new Float32Array(all), true);
    },
    async train(data, task) {
      const result = await train(data, task);
      const all = (await session.getContiguousParameters(true)).data as Float32Array;
      const values: Values = new Map();
      let at = 0;
      for (const { name, dims } of trained) {
        const count = dims.reduce((a, b) => a * b, 1);
        values.set(name, all.slice(at, at + count) as Float32Array<ArrayBuffer>);
        at += count;
      }
      return { ...result, values };
    },
  };
}
