import assert from "node:assert/strict";
import { test } from "node:test";
import { gpuPart } from "../../src/device/open.ts";
import { Engine } from "../../src/device/wasm/engine.ts";
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
      drop: (ids: number[]) => did.push(`drop ${ids}`),
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

/**
 * A session in WebAssembly of which a plan was compiled, and a GPU that is faster: it tries to move
 * there after the first run.
 * @param local whether the files are on this device
 * @param fails whether the model cannot be opened there
 * @param during what happens while it is opened
 */
async function moving({ local = true, fails = false, during = (): void => undefined } = {}) {
  const did: string[] = [];
  const gpu = {
    guest: false,
    info: { name: "webgpu" },
    why: "",
    close: () => void did.push(`close gpu${gpu.guest ? ", a guest" : ""}`),
  };
  const wasm = Object.assign(Object.create(Engine.prototype) as object, {
    options: { adapter: "a" } as Record<string, unknown>,
    close: () => void did.push("close wasm"),
  });
  Object.defineProperty(wasm, "info", { value: { name: "wasm" } });
  const faster = async () => {
    did.push("probe");
    return gpu;
  };
  gpuPart.probe = async () => ({ faster }) as never;
  gpuPart.load = async () => ({}) as never;
  let done: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    done = resolve;
  });
  const isLocal = async () => {
    if (!local) done();
    return local;
  };
  const makeModel = (device: object, compiled: Map<string, unknown>) =>
    ({
      device,
      holds: false,
      info: { device: (device as typeof gpu).info },
      library: {
        where: "a model",
        device,
        compiled,
        compiling: {
          kept: {},
          files: { local: isLocal },
          python: { end: () => did.push("end python") },
        },
        free: () => did.push("free"),
        weights: { free: () => did.push("free weights") },
      },
      keepCopies: () => undefined,
      follow: () => {
        did.push("follow");
        done();
      },
      run: async () => {
        did.push(`run ${(device as typeof gpu).info.name}`);
        return [];
      },
    }) as unknown as InferenceModel;
  const opening = (async (_request, signal, _progress, _python, open) => {
    if (!open) return makeModel(wasm, new Map([["plan", {}]]));
    const device = await open({} as never);
    during();
    if (fails || signal.aborted) {
      device.close();
      setTimeout(done);
      throw new EngineError("no memory");
    }
    return makeModel(device, new Map());
  }) as typeof openModel;
  const service = new InferenceService(opening);
  await service.open({} as OpenRequest, () => undefined);
  const run = () =>
    service.run({ feeds: {} } as RunRequest, new AbortController().signal, () => undefined);
  return { service, did, run, ended, wasm };
}

test("a session moves to a faster GPU when it is complete there", async () => {
  const { did, run, ended } = await moving();
  await run();
  await ended;
  const moved = ["probe", "end python", "free", "free weights", "follow"];
  assert.deepEqual(did, ["run wasm", ...moved]);
  assert.equal((await run()).value.device?.name, "webgpu");
});

test("a session that cannot move to a GPU goes on in WebAssembly", async () => {
  const { did, run, ended, wasm } = await moving({ fails: true });
  await run();
  await ended;
  await run();
  assert.deepEqual(did, ["run wasm", "probe", "close gpu, a guest", "run wasm"]);
  assert.match(String(wasm.options.whyNotGpu), /could not be moved to the GPU \(.*no memory/);
});

test("a session whose files would be downloaded again stays", async () => {
  const { did, run, ended } = await moving({ local: false });
  await run();
  await ended;
  await run();
  assert.deepEqual(did, ["run wasm", "run wasm"]);
});

test("the GPU of a session that is released meanwhile is closed", async () => {
  const { service, did, run, ended } = await moving({ during: () => service.close() });
  await run();
  await ended;
  assert.deepEqual(did, ["run wasm", "probe", "close wasm", "close gpu, a guest"]);
});

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

test("outputs are dropped after the runs that wait, and before later ones", async () => {
  const { service, did, run } = await session([undefined]);
  const all: Promise<unknown>[] = [run(), run(), service.drop([5])];
  for (let i = 0; i < 3; i++) all.push(run());
  await Promise.all(all);
  assert.deepEqual(did, ["run 0", "run 0", "drop 5", "run 0", "run 0", "run 0"]);
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
