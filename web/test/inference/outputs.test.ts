import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import type { OpenInfo, RunRequest } from "../../src/protocol/inference.ts";
import { Driver } from "../../src/worker/inference/driver.ts";
import type { PlanLibrary } from "../../src/worker/inference/library.ts";
import { Pool } from "../../src/worker/inference/memory.ts";
import { InferenceModel } from "../../src/worker/inference/model.ts";
import { NumberTensor } from "../../src/worker/inference/values.ts";

test("a run that fails while its outputs are read keeps none of them", async (t) => {
  let fails = true;
  const device = {
    allocate: (bytes: number) => ({ bytes }),
    release: () => undefined,
    read: async (buffer: { bytes: number }) => {
      if (fails && buffer.bytes === 128) throw new Error("it was not read");
      return new Uint8Array(buffer.bytes);
    },
  };
  const pool = new Pool(device as unknown as Device, 1 << 20);
  const library: Partial<Record<keyof PlanLibrary, unknown>> = {
    device,
    pool,
    root: async () => ({ units: [] }),
    news: () => ({ made: [], learned: false }),
  };
  // the outputs: one that stays, twice; one of which a copy is kept; one that may not be read
  t.after(() => mock.restoreAll());
  mock.method(Driver.prototype, "start", async () => {
    const of = (bytes: number) => {
      const block = pool.take(bytes);
      return new NumberTensor("uint8", [bytes], undefined, block.buffer, block);
    };
    const stays = of(64);
    return [stays, stays, of(64), of(128)];
  });
  const names = ["stays", "too", "kept", "last"];
  const outputs = names.map((name) => ({ name, type: "tensor", dtype: "uint8", shape: null }));
  const model = new InferenceModel(
    library as unknown as PlanLibrary,
    { inputs: [], overridable: [], outputs } as unknown as OpenInfo,
    { max_loop_trips: 1, max_compilations: 1, max_run_seconds: undefined },
  );
  const run = () =>
    model.run(
      {
        feeds: {},
        outputs: names,
        seed: undefined,
        pinned: ["stays", "too"],
        kept: { names: ["kept"], bytes: 1 },
        copied: false,
      } satisfies RunRequest,
      [],
      undefined,
      () => undefined,
    );
  await assert.rejects(run(), /it was not read/);
  assert.equal(pool.used, 0);
  fails = false;
  const values = await run();
  assert.equal(pool.used, 128);
  const ids = values.flatMap((v) =>
    v && "pinned" in v ? [v.pinned] : v && "keep" in v ? [v.keep!] : [],
  );
  for (const id of ids) assert.equal((await model.read(id)).length, 64);
  model.drop(ids);
  assert.equal(pool.used, 0);
});
