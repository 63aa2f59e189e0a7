// A thread of the engine: instantiates the same module on the same memory, then serves jobs until the engine closes.

import type { EngineExports } from "./engine.ts";

interface Start { module: WebAssembly.Module; memory: WebAssembly.Memory; engine: number; index: number; stackTop: number; tls: number }

addEventListener("message", async ({ data }: MessageEvent<Start>) => {
  try {
    const instance = await WebAssembly.instantiate(data.module, { env: { memory: data.memory } });
    const exports = instance.exports as unknown as EngineExports;
    exports.__stack_pointer!.value = data.stackTop;
    exports.__wasm_init_tls!(data.tls);
    postMessage("ready");
    exports.ew_worker(data.engine, data.index);
  } catch (e) {
    postMessage(e instanceof Error ? e.message : String(e));
  }
}, { once: true });
