// The sound that a pipeline was given.

import type { TaskInput, TaskSound } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";

/** @throws InputError if an input is no sound */
export function soundOf(input: TaskInput, task: string): TaskSound {
  if (typeof input === "object" && "sound" in input) return input.sound;
  throw new InputError("the input is no sound", task, "Give a sound.");
}
