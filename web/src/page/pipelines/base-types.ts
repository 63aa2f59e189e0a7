// What all pipelines, and their calls and streams, have.

import type { TaskInfo } from "../../protocol/tasks.ts";

/** Options of every call. */
export interface CallOptions {
  /** Cancels the call: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
}

/** What all pipelines have. */
export interface PipelineBase {
  /** Name of the task. */
  readonly task: string;
  /** What was loaded, and on which device. */
  readonly info: TaskInfo;
  /** Ends the worker and frees all memory. */
  dispose(): Promise<void>;
}

/** A call with one input, a list, or an async iterable, which gives an async iterable. */
export interface Calls<Input, Options, One, Many = One[]> {
  (input: Input, options?: Options): Promise<One>;
  (inputs: readonly Input[], options?: Options): Promise<Many>;
  (inputs: AsyncIterable<Input>, options?: Options): AsyncIterable<One>;
}
