// Edgewise as contender of training on a GPU: the plan of a step on the device of web/src.

import { GpuDevice } from "../../../../web/src/device/webgpu/device.ts";
import { repeat } from "../batch.js";
import { now, serve } from "../rpc.js";
import { adapter, counts, peakBytes } from "./counts.js";
import { openStep } from "./step.js";

let step;

serve({
  async open(url) {
    const begin = now();
    const device = await GpuDevice.open({
      engineUrl: new URL("/engine/", location.href).href,
      threadUrl: new URL("/worker.js", location.href).href,
      device: "webgpu",
      flavour: "relaxed-threads",
      threads: 1,
    });
    step = await openStep(device, url);
    const ms = now() - begin;
    return { ms, onWasm: Object.keys(device.info.gpu.onWasm), ...(await adapter()) };
  },
  steps: (count, ms) => repeat(step, count, ms),
  counts: () => ({ ...counts, peakBytes: peakBytes() }),
});
