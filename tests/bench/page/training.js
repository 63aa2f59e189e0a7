// Edgewise as contender of the training cases: the plan of a step in the engine of web/src.

import { warm } from "../../../web/src/device/warm.ts";
import { Engine } from "../../../web/src/device/wasm/engine.ts";
import { batch, repeat } from "./batch.js";
import { now, serve } from "./rpc.js";

const urls = {
  engineUrl: new URL("/engine/", location.href).href,
  threadUrl: new URL("/worker.js", location.href).href,
};
let engine;
let plan;
let loss;

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
    const info = await (await fetch(`${url}.json`)).json();
    const read = async (at, size) =>
      new Uint8Array(
        await (
          await fetch(`${url}.plan`, { headers: { Range: `bytes=${at}-${at + size - 1}` } })
        ).arrayBuffer(),
      );
    plan = engine.loadPlan(await read(...info.plan), url);
    const given = batch(info);
    const rate = new Float32Array([1e-3]);
    const int64 = (x) => BigInt64Array.from(x, BigInt);
    const inputs = {
      [info.input.name]: info.input.vocab ? int64(given.numbers) : Float32Array.from(given.numbers),
      labels: int64(given.labels),
      learning_rate: rate,
    };
    for (const [slot, { name, kind, bytes, at }] of info.slots.entries()) {
      const data = at === undefined ? undefined : await read(at, bytes);
      const buffer = engine.allocate(bytes, name);
      if (data) engine.write(buffer, data);
      if (kind === "input") engine.write(buffer, new Uint8Array(inputs[name].buffer));
      if (name === "loss" && kind === "output") loss = buffer;
      engine.bind(plan, slot, buffer, name);
    }
    engine.init(plan, url);
    return { ms: now() - begin };
  },
  steps: (count, ms) =>
    repeat(
      async () => {
        engine.run(plan, "a training step");
        return new Float32Array((await engine.read(loss, 0, 4)).buffer)[0];
      },
      count,
      ms,
    ),
  memory: () => engine.memoryBytes,
});
