// Edgewise as contender on a GPU: the device and the decoder of web/src, without the tokenizer; in
// WebAssembly with the same files.

import { Engine } from "../../../../web/src/device/wasm/engine.ts";
import { GpuDevice } from "../../../../web/src/device/webgpu/device.ts";
import { HttpSource } from "../../../../web/src/shared/files/http.ts";
import { EngineDecoder } from "../../../../web/src/worker/model/decoder.ts";
import { Weights } from "../../../../web/src/worker/model/weights.ts";
import { openPackage } from "../../../../web/src/worker/package/package.ts";
import { argmax, base64, now, serve } from "../rpc.js";
import { adapter, counts, peakBytes } from "./counts.js";

let device;
let decoder;
let sequence;

const logitsOf = (address) =>
  new Float32Array(device.host.read(address, 4 * decoder.vocab_size).buffer);

/** Appends ids, and makes the greedy choice from all logits. */
async function greedy(ids) {
  return argmax(logitsOf(await decoder.forward(sequence, ids)));
}

serve({
  async open(url, name) {
    const begin = now();
    const options = {
      engineUrl: new URL("/engine/", location.href).href,
      threadUrl: new URL("/worker.js", location.href).href,
      device: name,
      flavour: "relaxed-threads",
      threads: 1,
    };
    device = await (name === "webgpu" ? GpuDevice : Engine).open(options);
    const opened = await openPackage(
      new HttpSource(new URL(url, location.href).href, {
        signal: new AbortController().signal,
        onBytes() {},
      }),
    );
    const weights = new Weights(device, opened.manifest);
    await opened.finish(weights.extents(opened.manifest));
    const { decoder: info } = opened.manifest;
    decoder = new EngineDecoder(device, info, weights, opened.files, {}, {}, url, true);
    return { ms: now() - begin, ...(name === "webgpu" ? await adapter() : {}) };
  },
  async prefill(ids) {
    const begin = now();
    if (sequence) decoder.close(sequence);
    sequence = decoder.open();
    await greedy(ids);
    return now() - begin;
  },
  async decode(past, ids) {
    decoder.truncate(sequence, past);
    const times = [];
    for (const id of ids) {
      const begin = now();
      await greedy([id]);
      times.push(now() - begin);
    }
    return times;
  },
  /** The logits after the ids. */
  async logits(ids) {
    const one = decoder.open();
    const found = base64(logitsOf(await decoder.forward(one, ids)));
    decoder.close(one);
    return found;
  },
  counts: () => ({ ...counts, peakBytes: peakBytes() }),
});
