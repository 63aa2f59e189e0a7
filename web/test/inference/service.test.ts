import assert from "node:assert/strict";
import { test } from "node:test";
import type { OpenRequest, RunRequest } from "../../src/protocol/inference.ts";
import { Aborted, EngineError } from "../../src/shared/errors.ts";
import type { InferenceModel } from "../../src/worker/inference/model.ts";
import { CopyLost } from "../../src/worker/inference/model.ts";
import type { openModel } from "../../src/worker/inference/open.ts";
import { InferenceService } from "../../src/worker/inference/service.ts";

/** What becomes of each device: how its model fails; undefined: it runs. */
type Fates = readonly ("opening" | "run" | "copy" | "wrong feed" | undefined)[];

/** A session whose devices fare so, and what they did. */
async function session(fates: Fates, during: () => void = () => undefined) {
  const did: string[] = [];
  let devices = 0;
  const makeDevice = () => {
    const number = devices++;
    const device = {
      number,
      lost: false,
      info: { name: `device ${number}` },
      close: () => void did.push(`close ${number}`),
      replacement: async () => {
        during();
        return device.lost ? makeDevice() : undefined;
      },
    };
    return device;
  };
  const opening = (async (_request, signal, _warn, _python, open) => {
    const device = open
      ? ((await open({ device: "webgpu" } as never)) as never as ReturnType<typeof makeDevice>)
      : makeDevice();
    const fate = fates[device.number];
    if (fate === "opening" || signal.aborted) {
      device.close();
      throw signal.aborted ? new Aborted("aborted", "", "") : new EngineError("no network");
    }
    const model: Partial<Record<keyof InferenceModel, unknown>> = {
      device,
      library: { where: "a model", compiled: new Map() },
      info: { device: device.info },
      keepCopies: () => undefined,
      follow: () => did.push(`follow ${device.number}`),
      run: async () => {
        did.push(`run ${device.number}`);
        device.lost = fate === "run";
        if (fate === "run") throw new EngineError("the GPU was lost");
        if (fate === "wrong feed") throw new EngineError("a wrong feed");
        if (fate === "copy") throw new CopyLost();
        return [];
      },
    };
    return model as unknown as InferenceModel;
  }) as typeof openModel;
  const service = new InferenceService(opening);
  await service.open({} as OpenRequest, () => undefined);
  const run = (signal = new AbortController().signal) =>
    service.run({ feeds: {} } as RunRequest, signal, () => undefined);
  return { service, did, run };
}

test("a run is repeated after GPUs were lost, and those that wait follow", async () => {
  const { did, run } = await session(["run", "run", undefined]);
  const [{ value }, after] = await Promise.all([run(), run()]);
  assert.deepEqual(value.device, { name: "device 2" });
  assert.equal(after.value.device, undefined); // the page knows it
  assert.deepEqual(did, ["run 0", "follow 1", "run 1", "follow 2", "run 2", "run 2"]);
});

test("a run whose GPUs are lost again and again ends", async () => {
  const { did, run } = await session(["run", "run", "run", undefined]);
  await assert.rejects(run(), /the GPU was lost/);
  assert.deepEqual(did, ["run 0", "follow 1", "run 1", "follow 2", "run 2"]);
  assert.deepEqual((await run()).value.device, { name: "device 3" });
});

test("runs that fail for other reasons are not repeated", async () => {
  for (const [fate, error] of [
    ["wrong feed", /a wrong feed/],
    ["copy", undefined],
  ] as const) {
    const { did, run } = await session([fate]);
    if (error) await assert.rejects(run(), error);
    else assert.equal((await run()).value.again, true);
    assert.deepEqual(did, ["run 0"]);
  }
});

test("copies that were lost are asked for again after the model was opened again", async () => {
  const { did, run } = await session(["run", "copy"]);
  assert.equal((await run()).value.again, true);
  assert.deepEqual(did, ["run 0", "follow 1", "run 1"]);
});

test("a model that cannot be opened again is said so, and its device closed", async () => {
  const { service, did, run } = await session(["run", "opening"]);
  await assert.rejects(run(), /could not be opened again \(no network\)/);
  assert.deepEqual(did, ["run 0", "close 1"]);
  service.close();
  assert.deepEqual(did.at(-1), "close 0");
});

test("a run that was aborted is not repeated, nor one whose session was released", async () => {
  const controller = new AbortController();
  const { did, run } = await session(["run", undefined]);
  const running = run(controller.signal);
  controller.abort();
  await assert.rejects(running, /the GPU was lost/);
  assert.deepEqual(did, ["run 0"]);
  const released = await session(["run", undefined], () => released.service.close());
  await assert.rejects(released.run(), Aborted);
  assert.deepEqual(released.did, ["run 0", "close 0", "close 1"]);
});
