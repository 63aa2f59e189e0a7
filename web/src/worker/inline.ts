// A session without a worker: edgewise.js imports this script for sessions with `proxy: false`. It
// has the worker's methods of such a session.

import { plainError } from "../protocol/errors.ts";
import type { InlineAnswer, InlineCalls } from "../protocol/inline.ts";
import type { ProgressEvent } from "../protocol/loading.ts";
import type { Methods } from "../protocol/methods.ts";
import { aborted, throwIfAborted } from "../shared/abort.ts";
import { InputError } from "../shared/errors.ts";
import { setStallTimeout } from "../shared/watchdog.ts";
import { type Call, type Handlers, Scope } from "./calls.ts";
import { inferenceMethods } from "./sessions/inference.ts";
import { profileMethods } from "./sessions/profile.ts";

const NEVER = new AbortController().signal;

/** An inference session in the page's thread. */
export class InlineSession implements InlineCalls {
  private readonly scope = new Scope(() => undefined);
  private readonly methods: Partial<Handlers> = {
    ...inferenceMethods(this.scope),
    ...profileMethods(this.scope),
  };

  /** @param patience `env.stallTimeout` */
  constructor(patience: number) {
    setStallTimeout(patience);
  }

  /** Executes a method of the worker. */
  async call(
    method: keyof Methods,
    request: never,
    signal: AbortSignal | undefined,
    onProgress: ((event: ProgressEvent) => void) | undefined,
  ): Promise<InlineAnswer> {
    try {
      throwIfAborted(signal);
      const handle = this.methods[method] as
        | ((request: unknown, call: Call) => Promise<unknown>)
        | undefined;
      if (!handle)
        throw new InputError(
          `there is no '${method}' without a worker`,
          "proxy",
          "Make a session with a worker.",
        );
      const done = handle(request, {
        signal: signal ?? NEVER,
        send: (event) => "progress" in event && onProgress?.(event.progress as ProgressEvent),
        order: 0,
        move: () => undefined,
      });
      const opens = method === "inference_open" && signal;
      return { value: await (opens ? this.orAborted(done, signal) : done) };
    } catch (e) {
      return { error: plainError(e) };
    }
  }

  /**
   * What opening the session gives.
   * @throws Aborted immediately when the signal fires; the session is closed, also if opening
   *   completes later
   */
  private async orAborted<T>(opening: Promise<T>, signal: AbortSignal): Promise<T> {
    let stop: (() => void) | undefined;
    const stopped = new Promise<never>((_, reject) => {
      stop = () => {
        this.end();
        reject(aborted(signal));
      };
      signal.addEventListener("abort", stop, { once: true });
    });
    opening.catch(() => undefined); // the abort is reported
    try {
      return await Promise.race([opening, stopped]);
    } finally {
      signal.removeEventListener("abort", stop!);
    }
  }

  /** Ends the session. */
  end(): void {
    this.scope.ended.abort();
  }
}
