// A thread of the engine: instantiates the engine's module on the shared memory and serves jobs
// until the engine closes. Its worker waits for it by Atomics and receives no message, so a failing
// thread closes itself, which the page notices by its lock (lives.ts).

import { exportsOf } from "../../device/wasm/exports.ts";
import type { FromThread, ThreadStart } from "../../protocol/thread.ts";
import { holdLife } from "../../shared/lives.ts";

const LOCK_MS = 500; // longest wait for the lock; a thread works without it, too

const say = (message: FromThread): void => postMessage(message);

/** Serves the thread that this worker is. */
export function serveThread(): void {
  addEventListener(
    "message",
    async ({ data }: MessageEvent<ThreadStart>) => {
      try {
        const holding = new Promise<boolean>((resolve) => {
          if (!data.life) return resolve(false);
          holdLife(data.life, resolve);
          setTimeout(() => resolve(false), LOCK_MS);
        });
        const instance = await WebAssembly.instantiate(data.module, {
          env: { memory: data.memory },
        });
        const exports = exportsOf(data.module, instance);
        exports.__stack_pointer!.value = data.stackTop;
        exports.__wasm_init_tls!(data.tls);
        say({ ready: true, held: await holding });
        exports.ew_worker(data.engine, data.index);
      } catch (e) {
        say({ error: e instanceof Error ? e.message : String(e) });
        close();
      }
    },
    { once: true },
  );
}
