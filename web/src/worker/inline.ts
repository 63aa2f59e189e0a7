// A session without a worker: edgewise.js imports this script for sessions with `proxy: false`. It
// implements the methods of the worker that such a session calls.

import { plainError } from "../protocol/errors.ts";
import type { OpenInfo, OpenRequest } from "../protocol/inference.ts";
import type { InlineAnswer, InlineCalls } from "../protocol/inline.ts";
import type { ProgressEvent } from "../protocol/loading.ts";
import type { Methods } from "../protocol/methods.ts";
import { traceOf } from "../protocol/trace.ts";
import { aborted, throwIfAborted } from "../shared/abort.ts";
import { InputError } from "../shared/errors.ts";
import { setStallTimeout } from "../shared/watchdog.ts";
import { type Progress, sessionWarnings } from "./files/reports.ts";
import { InferenceService } from "./inference/service.ts";
import { Recorder } from "./profile/recorder.ts";

/** An inference session in the page's thread. */
export class InlineSession implements InlineCalls {
  private readonly service = new InferenceService();
  private recorder: Recorder | undefined;

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
      return {
        value: await this.answer(method, request, signal, (event) => onProgress?.(event)),
      };
    } catch (e) {
      return { error: plainError(e) };
    }
  }

  private async answer(
    method: keyof Methods,
    request: never,
    signal: AbortSignal | undefined,
    progress: Progress,
  ): Promise<unknown> {
    const { service } = this;
    switch (method) {
      case "inference_open":
        return this.open(request, signal, progress);
      case "inference_run":
        return (await service.run(request, signal ?? { aborted: false }, sessionWarnings(progress)))
          .value;
      case "inference_read":
        return (await service.read((request as { id: number }).id)).value;
      case "inference_drop":
        return service.drop((request as { ids: number[] }).ids);
      case "profile_start":
        return void (this.recorder = new Recorder(service.device));
      case "profile_stop": {
        const { recorder } = this;
        this.recorder = undefined;
        if ((request as { wanted: boolean }).wanted) return recorder?.stop();
        return recorder?.release();
      }
      case "profile_trace":
        return new Blob(
          [JSON.stringify(traceOf((request as Parameters<Methods["profile_trace"]>[0]).data))],
          { type: "application/json" },
        );
      default:
        throw new InputError(
          `there is no '${method}' without a worker`,
          "proxy",
          "Make a session with a worker.",
        );
    }
  }

  /**
   * Opens the model.
   * @throws Aborted immediately when the signal fires; the session is closed, also if opening
   *   completes later
   */
  private async open(
    request: OpenRequest,
    signal: AbortSignal | undefined,
    progress: Progress,
  ): Promise<OpenInfo> {
    const { service } = this;
    const opening = service.open(request, progress);
    if (!signal) return opening;
    let stop: (() => void) | undefined;
    const stopped = new Promise<never>((_, reject) => {
      stop = () => {
        service.close();
        opening.then(
          () => service.close(),
          () => undefined,
        );
        reject(aborted(signal));
      };
      signal.addEventListener("abort", stop, { once: true });
    });
    try {
      return await Promise.race([opening, stopped]);
    } finally {
      signal.removeEventListener("abort", stop!);
    }
  }

  /** Ends the session. */
  end(): void {
    this.service.close();
  }
}
