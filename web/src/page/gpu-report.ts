// A report on the GPU of this browser, to look at or to paste into an issue.

import type { GpuReport } from "../protocol/gpu-report.ts";
import { InputError } from "../shared/errors.ts";
import { checkFunction, optionsOf } from "../shared/inputs.ts";
import type { Flavour } from "../shared/platform.ts";
import { startClient } from "./client.ts";
import { env, urls } from "./env.ts";
import type { CallOptions } from "./pipelines/base-types.ts";

/** Options of {@link gpuReport}. */
export interface GpuReportOptions extends CallOptions {
  /** Build of the engine that the GPU is compared with. Default: `env.flavour` */
  flavour?: Flavour | "auto";
  /** Its threads. Default: `env.threads` */
  threads?: number;
  /** Seconds after which no further measurement begins. Default: 100 */
  seconds?: number;
  /** Called before each part: how many of them are done, and the name of the next one. */
  on_progress?: (event: { done: number; total: number; name: string }) => void;
}

/**
 * Tests and measures the GPU of this browser beside the engine in WebAssembly, in about two minutes
 * at most, also one that the library refuses: products, attention, norms, convolutions and others
 * at the sizes of small models, the time of dispatches and reads, and whether 10,000 dispatches
 * slow it down. The result is plain data for `JSON.stringify`; nothing is sent anywhere.
 * @throws EngineError if there is no GPU, or it is lost
 */
export async function gpuReport(options: GpuReportOptions = {}): Promise<GpuReport> {
  const { signal, on_progress, seconds = 100, ...engine } = optionsOf(options);
  const { flavour = env.flavour, threads = env.threads } = engine;
  checkFunction("on_progress", on_progress);
  if (!(seconds > 0))
    throw new InputError(`seconds is ${seconds}`, "options.seconds", "Give a positive number.");
  const client = await startClient();
  try {
    const request = { urls: await urls(), flavour, threads, seconds };
    type Event = Parameters<NonNullable<typeof on_progress>>[0];
    return await client.call("gpu_report", request, {
      signal,
      onEvent: ({ value }) => on_progress?.(value as Event),
    });
  } finally {
    client.end();
  }
}
