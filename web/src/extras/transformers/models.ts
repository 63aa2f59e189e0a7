// AutoModel and AutoModelForCausalLM: a session, and text generation from tokens, with the calls of
// transformers.js.

import {
  Tensor as Base,
  InferenceSession,
  InputError,
  type ModelFiles,
  modelFiles,
  type PipelineOptions,
  pipeline,
  type StoppingCriteria,
  type TextGenerationPipeline,
  type TextStreamer,
  type TokenStreamer,
} from "../../page/index.ts";
import type { Tensor } from "./tensor-methods.ts";

type Tensors = Record<string, Tensor>;

/** A model that computes outputs from inputs. Call it with tensors by name. */
export interface PreTrainedModel {
  /** Outputs by name, such as `logits`. Inputs that the model lacks are left out. */
  (inputs: Record<string, unknown>): Promise<Tensors>;
  /** config.json */
  readonly config: Readonly<Record<string, unknown>>;
  /** The session that computes. */
  readonly session: InferenceSession;
  /** Ends the worker and frees all memory. */
  dispose(): Promise<void>;
}

/** Feeds of the inputs that a model has: 32-bit integers become those of 64 bits it declares. */
function feedsOf(session: InferenceSession, given: Record<string, unknown>): Record<string, Base> {
  const feeds: Record<string, Base> = {};
  for (const { name, type } of session.inputMetadata) {
    let value = given[name];
    const { input_ids: ids } = given;
    if (value === undefined && ids instanceof Base) {
      if (name === "attention_mask") value = new Base("int64", ids64(ids.size, 1n), ids.dims);
      if (name === "token_type_ids") value = new Base("int64", ids64(ids.size, 0n), ids.dims);
    }
    if (value instanceof Base && value.type !== type && type === "int64")
      value = (value as Tensor).to("int64");
    if (value !== undefined) feeds[name] = value as Base;
  }
  return feeds;
}

const ids64 = (length: number, value: bigint): BigInt64Array =>
  new BigInt64Array(length).fill(value);

function configOf({ texts }: ModelFiles): Record<string, unknown> {
  const text = texts["config.json"];
  return text === undefined ? {} : (JSON.parse(text) as Record<string, unknown>);
}

/** Makes models of one .onnx file, as in transformers.js. */
export const AutoModel = {
  /**
   * Loads a model.
   * @param model id on a hub, or address of a folder
   * @param options as of `pipeline`: `dtype`, `device`, `revision`, `subfolder`, `signal`, ...;
   *   not those of compiling, `integrity` and `fetch_options`
   * @throws ModelError, InputError, Aborted
   */
  async from_pretrained(model: string, options?: PipelineOptions | null): Promise<PreTrainedModel> {
    const files = await modelFiles(model, options, "session");
    const { device, executionProviders, flavour, threads, cache, cache_files } = options ?? {};
    const { signal, progress_callback } = options ?? {};
    if (!files.onnx)
      throw new InputError("it has no .onnx file of this dtype", model, "Give another dtype.");
    const session = await InferenceSession.create(files.onnx, {
      ...{ device, executionProviders, flavour, threads, cache, cache_files, signal },
      progress_callback:
        progress_callback && ((event) => progress_callback({ ...event, name: model })),
    });
    const config = configOf(files);
    const call = async (inputs: Record<string, unknown>): Promise<Tensors> =>
      (await session.run(feedsOf(session, inputs))) as Tensors;
    const dispose = (): Promise<void> => session.release();
    return Object.assign(call, { config, session, dispose });
  },
};

/** Options of `generate`: the inputs, and the fields of GenerationConfig. */
export interface GenerateInputs {
  /** Prompts: int64 [texts, tokens], with padding on the left. */
  input_ids: Base;
  attention_mask?: Base;
  streamer?: TextStreamer | TokenStreamer | null;
  stopping_criteria?: StoppingCriteria | null;
  /** Return `{ sequences, past_key_values }`. */
  return_dict_in_generate?: boolean;
  /** Taken and ignored: prompts are whole, and what is computed of them stays in the worker. */
  past_key_values?: unknown;
  signal?: AbortSignal;
  [field: string]: unknown;
}

/** A language model. */
export interface CausalLM {
  /**
   * Generates tokens.
   * @returns int64 [texts, tokens], prompts included; after the end of a text stands padding
   */
  generate(
    inputs: GenerateInputs & { return_dict_in_generate: true },
  ): Promise<{ sequences: Tensor; past_key_values: null }>;
  generate(inputs: GenerateInputs): Promise<Tensor>;
  /** config.json */
  readonly config: Readonly<Record<string, unknown>>;
  /** The pipeline that generates, with `stats`, adapters and `profile`. */
  readonly pipeline: TextGenerationPipeline;
  /** Ends the worker and frees all memory. */
  dispose(): Promise<void>;
}

/** Token ids of each prompt, without padding. */
function promptsOf(ids: Base, mask: Base | undefined): number[][] {
  const length = ids.dims.at(-1) ?? 0;
  const all = Array.from(ids.data as ArrayLike<unknown>, Number);
  const kept = mask ? Array.from(mask.data as ArrayLike<unknown>, Number) : undefined;
  return Array.from({ length: all.length / length }, (_, i) =>
    all.slice(i * length, (i + 1) * length).filter((_id, j) => kept?.[i * length + j] !== 0),
  );
}

/** Sequences as one tensor; after the shorter ones stands padding. */
function sequencesOf(lists: readonly number[][], pad: number): Tensor {
  const length = Math.max(...lists.map((list) => list.length));
  const rows = lists.map((list) => [...list, ...Array(length - list.length).fill(pad)]);
  const data = BigInt64Array.from(rows.flat(), BigInt);
  return new Base("int64", data, [lists.length, length]) as Tensor;
}

/** Makes language models, as in transformers.js. */
export const AutoModelForCausalLM = {
  /**
   * Loads a language model; it generates as `pipeline("text-generation", ...)` does.
   * @param model id on a hub, or address of a folder
   * @param options see PipelineOptions
   */
  async from_pretrained(model: string, options?: PipelineOptions | null): Promise<CausalLM> {
    const config = configOf(await modelFiles(model, options, "pipeline"));
    const pipe = await pipeline("text-generation", model, options ?? {});
    const pad = [config.pad_token_id, config.eos_token_id].flat().find(Number.isInteger) ?? 0;
    const generate = async (inputs: GenerateInputs): Promise<never> => {
      const { input_ids, attention_mask, return_dict_in_generate: dict, ...given } = inputs;
      const {
        streamer,
        stopping_criteria,
        past_key_values: _,
        token_type_ids: __,
        ...fields
      } = given;
      if (!(input_ids instanceof Base))
        throw new InputError("there are no input_ids", "generate", "Pass {...tokenizer(text)}.");
      const whole = promptsOf(input_ids, undefined);
      const prompts = promptsOf(input_ids, attention_mask).map((input_ids) => ({ input_ids }));
      const results = await pipe(prompts as never, {
        ...fields,
        streamer: streamer ?? undefined,
        stopping_criteria: stopping_criteria ?? undefined,
        return_tensors: true,
      });
      // prompts as they were given, so that what is new begins at one place
      const lists = results.flatMap((of, i) =>
        [of]
          .flat()
          .map(({ generated_token_ids: ids }) => [
            ...whole[i]!,
            ...ids!.slice(prompts[i]!.input_ids.length),
          ]),
      );
      const sequences = sequencesOf(lists, pad as number);
      return (dict ? { sequences, past_key_values: null } : sequences) as never;
    };
    return { generate, config, pipeline: pipe, dispose: () => pipe.dispose() };
  },
};

/** Makes processors of pictures, as in transformers.js: the part of a pipeline before its model. */
export const AutoProcessor = {
  /**
   * Loads the processor of a model that classifies pictures or computes their features.
   * @param model id on a hub, or address of a folder or a package
   * @param options see PipelineOptions
   * @returns a function from a picture to the inputs of the model
   */
  async from_pretrained(
    model: string,
    options?: PipelineOptions | null,
  ): Promise<((picture: never) => Promise<Tensors>) & { dispose(): Promise<void> }> {
    const pipe = await pipeline("image-feature-extraction", model, options ?? {});
    const call = async (picture: never): Promise<Tensors> =>
      (await pipe.processor(picture)) as Tensors;
    return Object.assign(call, { dispose: () => pipe.dispose() });
  },
};

/** As {@link AutoProcessor}. */
export const AutoImageProcessor = AutoProcessor;
