// The engine of web/dist/engine for tests of code that calls C functions. Node 20 instantiates it
// without the code for pages.

import { readFileSync } from "node:fs";
import type { Host } from "../../src/device/device.ts";
import type { EngineExports } from "../../src/device/wasm/exports.ts";

/** The functions of an engine that a Device offers as `host`. */
export async function openHost(): Promise<Host> {
  const memory = new WebAssembly.Memory({ initial: 32, maximum: 16384 });
  const bytes = readFileSync("dist/engine/edgewise-simd128-full.wasm");
  const { instance } = await WebAssembly.instantiate(bytes, { env: { memory } });
  const engine = instance.exports as unknown as EngineExports;
  engine.__wasm_call_ctors();
  return {
    engine: engine.ew_open(1) >>> 0,
    alloc(size) {
      const address = engine.ew_alloc(size) >>> 0;
      if (!address) throw new Error(`${size} bytes could not be allocated`);
      return address;
    },
    free: (address) => engine.ew_free(address),
    write: (address, data) => new Uint8Array(memory.buffer).set(data, address),
    floats: (address, count) => new Float32Array(memory.buffer, address, count),
    read: (address, size) => new Uint8Array(memory.buffer, address, size).slice(),
    call: (name, ...args) => (engine[name] as (...a: number[]) => number)(...args),
  };
}
