// Edgewise as contender of the training cases: the plan of a step in the engine of web/src.

import { warm } from "../../../web/src/device/warm.ts";
import { Engine } from "../../../web/src/device/wasm/engine.ts";
import { repeat } from "./batch.js";
import { now, serve } from "./rpc.js";
import { openStep } from "./webgpu/step.js";

const urls = {
  engineUrl: new URL("/engine/", location.href).href,
  threadUrl: new URL("/worker.js", location.href).href,
};
let engine;
let step;

serve({
  async open(url, flavour, threads) {
    const begin = now();
    engine = await Engine.open({ ...urls, flavour, threads });
    const { choice } = engine;
    if (choice.flavour !== flavour || choice.threads !== threads)
      throw new Error(
        `asked for ${flavour} with ${threads} threads, got ${JSON.stringify(choice)}`,
      );
    void warm(engine);
    step = await openStep(engine, url);
    return { ms: now() - begin };
  },
  steps: (count, ms) => repeat(step, count, ms),
  memory: () => engine.memoryBytes,
});
