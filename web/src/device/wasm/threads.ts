// Threads of an engine: workers that instantiate its module on its memory
// (src/worker/thread/index.ts).

import type { FromThread, ThreadStart } from "../../protocol/thread.ts";
import { life } from "../../shared/lives.ts";
import { type Child, spawn } from "../../shared/spawn.ts";
import { seconds, stallTimeout, within } from "../../shared/watchdog.ts";
import { type EngineExports, unsigned } from "./exports.ts";

const THREAD_STACK = 256 * 1024;
let made = 0;

/** The worker of a thread; `life`: the lock that it holds. */
export interface Thread {
  worker: Child;
  life: string;
}

/**
 * Starts all threads except the first, which is the caller's. If one cannot be started, ends all
 * and rejects.
 */
export async function startThreads(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  exports: EngineExports,
  engine: number,
  threads: number,
  url: string,
): Promise<Thread[]> {
  const all: Thread[] = [];
  try {
    const ready: Promise<void>[] = [];
    for (let index = 1; index < threads; index++) {
      const stack = unsigned(exports.malloc(THREAD_STACK));
      const align = Math.max(16, exports.__tls_align!.value as number);
      const tls = unsigned(exports.malloc((exports.__tls_size!.value as number) + align));
      if (!stack || !tls) throw new Error("out of memory");
      const thread = {
        worker: spawn(url, `edgewise thread ${index}`),
        life: life.name && `${life.name} ${++made}`,
      };
      all.push(thread);
      ready.push(
        within(
          started(thread, url),
          () => new Error(`a thread did not start within ${seconds(stallTimeout())}`),
        ),
      );
      thread.worker.postMessage({
        module,
        memory,
        engine,
        index,
        stackTop: stack + THREAD_STACK - ((stack + THREAD_STACK) % 16),
        tls: Math.ceil(tls / align) * align,
        life: thread.life,
      } satisfies ThreadStart);
    }
    // wait for all: terminating a worker that is starting would leak its thread
    const settled = await Promise.allSettled(ready);
    for (const one of settled) if (one.status === "rejected") throw one.reason;
    return all;
  } catch (e) {
    endThreads(all);
    throw e;
  }
}

function started({ worker, life: name }: Thread, url: string): Promise<void> {
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<FromThread>) => {
      if ("error" in data) return reject(new Error(data.error));
      if (data.held) life.report(name, true);
      resolve();
    };
    worker.onerror = (e) => {
      e.preventDefault();
      reject(new Error(e.message || `${url} could not be loaded as a worker`));
    };
  });
}

/** Ends threads that have no work. */
export function endThreads(threads: readonly Thread[]): void {
  for (const { worker, life: name } of threads) {
    if (name) life.report(name, false);
    worker.terminate();
  }
}
