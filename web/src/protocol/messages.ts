// Messages between page and worker. A call carries an id; its reply and its events (progress,
// tokens) carry the same id. Replies come in any order. Errors are sent as plain data.

import type { OwnFile } from "../shared/files/own.ts";
import type { DeviceInfo } from "../shared/platform.ts";
import type { FromParent, ToParent } from "../shared/spawn.ts";
import type { DrawEvent } from "./drawing.ts";
import type { PlainError } from "./errors.ts";
import type { ProgressEvent } from "./loading.ts";
import type { Methods } from "./methods.ts";
import type { StepEvent } from "./training.ts";

/** A method call. */
export type Call = {
  [M in keyof Methods]: {
    id: number;
    method: M;
    request: Parameters<Methods[M]>[0];
    /** Its place among calls that wait: less is earlier. Default: 0. */
    order?: number;
  };
}[keyof Methods];
/** Messages from the page. */
export type ToWorker =
  | Call
  | FromParent
  | { id: number; abort: true; reason: string | undefined }
  /**
   * The first message. `life`: the lock that the worker holds while it lives (lives.ts). `parts`:
   * the worker's other scripts by name.
   */
  | {
      start: {
        life: string;
        stallTimeout: number;
        parts: Record<string, OwnFile>;
        /** Of its share of the processors (shared/share.ts), in isolated pages. */
        share: SharedArrayBuffer | undefined;
      };
    }
  /** The memory of a line (shared/line.ts). The messages after this one are counted there. */
  | { line: SharedArrayBuffer }
  /** Whether it waits between pieces of work: others have the processors. */
  | { waits: boolean }
  /** The last message: the worker ends its threads, replies `ended`, and is terminated. */
  | { end: true };
/** Messages from the worker. */
export type FromWorker =
  | ToParent
  | { started: true }
  | { ended: true }
  /** The worker or one of its threads holds this lock; or that thread is about to be ended. */
  | { life: string; held: boolean }
  /** What it does from now on may never end, and nothing can interrupt it; null: it has ended. */
  | { working: string | null }
  /** So many threads has its largest engine, of those that are not beside a GPU. */
  | { threads: number }
  /** What took the place of a lost GPU. */
  | { device: DeviceInfo }
  | { id: number; value: unknown }
  | { id: number; error: PlainError }
  | ({ id: number } & CallEvent);
/** What the worker sends while a call runs. */
export type CallEvent =
  | { progress: ProgressEvent | DrawEvent }
  | { step: StepEvent }
  | { text: string; end: boolean }
  | { tokens: number[] }
  /** For a callback of a pipeline's call. */
  | { event: { name: string; value: unknown } };
