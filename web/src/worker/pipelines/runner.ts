// The interface of tasks.

import type { TaskInput } from "../../protocol/tasks.ts";
import type { Ending, TaskHost } from "./host.ts";
import type { Options } from "./options.ts";

/** A task: the names of its options, and what it does with one input. */
export interface TaskRunner {
  options: readonly string[];
  /** Options are read once for all inputs of a call. */
  prepare(
    host: TaskHost,
    options: Options,
  ): (input: TaskInput, ending: Ending) => unknown | Promise<unknown>;
}
