// The interface of tasks.

import type { Pair, PairKind } from "../../logic/training/pairs.ts";
import type { TaskInput, TaskTensor } from "../../protocol/tasks.ts";
import type { Asked, Encoded, FeedFeatures } from "../model/model.ts";
import type { Ending, TaskHost } from "./host.ts";
import type { Options } from "./options.ts";
import type { Numbers } from "./outputs.ts";

/** What a call sends to the page while it runs. */
export interface Events {
  /** Whether the caller has a streamer. */
  streams: boolean;
  /** Sends text for the streamer. */
  text(piece: string, end: boolean): void;
  /** Sends a value for a callback of the call. */
  send(name: string, value: unknown): void;
}

/** Of calls that send nothing. */
export const SILENT: Events = { streams: false, text: () => undefined, send: () => undefined };

/** A task: the names of its options, and what it does with one input. */
export interface TaskRunner {
  options: readonly string[];
  /** Options are read once for all inputs of a call. */
  prepare(
    host: TaskHost,
    options: Options,
    events: Events,
  ): (input: TaskInput, ending: Ending) => unknown | Promise<unknown>;
  /** The inputs of the model, where they are a prompt: `input_ids`. Options are its own. */
  prompt?(
    host: TaskHost,
    options: Readonly<Record<string, unknown>>,
  ): (input: TaskInput, ending: Ending) => Promise<Record<string, TaskTensor>>;
  /**
   * For sound that arrives in pieces, where the task takes it.
   * @param voice finds speech, where the caller gave a pipeline that does
   */
  stream?(host: TaskHost, options: Options, voice?: Voice): TaskStream | Promise<TaskStream>;
  /** The names of a stream's options. Default: those of a call. */
  streamOptions?: readonly string[];
  /**
   * The features of an input, where the task can be personal.
   * @param pooled the vector of the outputs of the graph "model" that the package describes
   */
  features?(
    host: TaskHost,
    input: TaskInput,
    pooled: (outputs: Record<string, Numbers>) => number[] | Float32Array,
    ending: Ending,
  ): Promise<number[] | Float32Array>;
  /** Where the model learns from pairs: what their sources are, and how one is read. */
  pairs?: {
    kind: PairKind;
    prepare(
      host: TaskHost,
      given: Readonly<Record<string, unknown>>,
    ): (pair: Pair, ending: Ending) => Promise<Encoded | Asked>;
    feeds?: FeedFeatures;
  };
  /** How `features` makes vectors of states, where it does not take those of the package. */
  embedding?(host: TaskHost): Embedding;
}

/** How a vector is made of the states of tokens. */
export interface Embedding {
  /** The output that they are. */
  tensor: string;
  pooling: string;
  /** Whether its length is 1. */
  normalize: boolean;
}

/** The tasks of a part of the worker. */
export type Tasks = Readonly<Record<string, TaskRunner>>;

/** A stream of sound. */
export interface TaskStream {
  /** Hz of the samples that it takes. */
  readonly sampling_rate: number;
  /** What happens in the next samples. */
  feed(samples: Float32Array<ArrayBuffer>, ending: Ending): Promise<unknown[]>;
  /** What is known when no more samples come. */
  end(ending: Ending): Promise<unknown[]>;
  /** Frees what it keeps. */
  close?(): void;
}

/** Speech begins or ends at a sample. */
export interface VoiceEvent {
  start?: number;
  end?: number;
}

/** Finds speech in a stream. */
export interface Voice {
  /** Whether the stream is within speech. */
  readonly speaking: boolean;
  /** What happens in the next samples. */
  feed(samples: Float32Array<ArrayBuffer>, ending: Ending): Promise<VoiceEvent[]>;
}
