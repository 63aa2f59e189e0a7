// The limits of the machine, measured in turns with the contenders.
import { best, now, serve } from "./rpc.js";

/** In the order of the enumeration in limits.c. */
const FUNCTIONS = [
  ...["exp", "sqrt", "divide", "log", "tanh", "erf"],
  ...["soft", "sigmoid", "read", "halves", "bytes", "floats", "random"],
];

let wasm;
serve({
  async open(url) {
    const env = { emscripten_notify_memory_growth() {} };
    wasm = (await WebAssembly.instantiate(await (await fetch(url)).arrayBuffer(), { env })).instance
      .exports;
    wasm._initialize?.();
    wasm.read_memory();
    wasm.multiply_adds(100_000);
    wasm.dots(100_000);
  },
  /** Milliseconds to read and write the given numbers of bytes. */
  move: (reads, writes, inPlace) => best(() => wasm.move(reads, writes, Number(inPlace))),
  /** Nanoseconds per value of each function. */
  functions: () =>
    Object.fromEntries(
      FUNCTIONS.map((name, i) => [name, (best(() => wasm.functions(i, 100)) / 102400) * 1e6]),
    ),
  /**
   * The best of short runs: GFLOP/s, GOP/s and GB/s. wanted: the names of the measurements. A
   * function begins in V8's baseline code, so runs go on until the optimizing compiler is done.
   */
  measure(wanted = ["flops", "dots", "bandwidth"]) {
    const most = (run) => {
      let found = 0;
      const first = now();
      for (let i = 0; i < 6 || now() - first < 100; i++) {
        const begin = now();
        const work = run();
        found = Math.max(found, work / (now() - begin) / 1e6);
      }
      return found;
    };
    const runs = {
      flops: () => wasm.multiply_adds(1_000_000),
      dots: () => wasm.dots(1_000_000),
      bandwidth: () => wasm.read_memory(),
    };
    return Object.fromEntries(wanted.map((name) => [name, most(runs[name])]));
  },
});
