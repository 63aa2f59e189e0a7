// What page and worker say to each other. Calls carry an id, replies the same id in any order;
// events of a call (progress, tokens) carry it too. Errors cross as class name, words and fields.

import type { PlainError } from "./errors.ts";
import type { ProgressEvent } from "./loading.ts";
import type { Methods } from "./methods.ts";
import type { StepEvent } from "./training.ts";

/** A call on its way. */
export type Call = {
  [M in keyof Methods]: { id: number; method: M; request: Parameters<Methods[M]>[0] };
}[keyof Methods];
/** What the page posts. */
export type ToWorker =
  | Call
  | { id: number; abort: true; reason: string | undefined }
  /** First of all. `life`: the lock to hold while it lives (lives.ts). */
  | { start: { life: string; stallTimeout: number } }
  /** Last of all: it ends its threads, says that it has, and is ended. */
  | { end: true };
/** What the worker posts. */
export type FromWorker =
  | { started: true }
  | { ended: true }
  /** It holds a lock, or one of its threads does; or that thread is going to be ended. */
  | { life: string; held: boolean }
  | { id: number; value: unknown }
  | { id: number; error: PlainError }
  | { id: number; progress: ProgressEvent }
  | { id: number; step: StepEvent }
  | { id: number; text: string; end: boolean }
  | { id: number; tokens: number[] };
