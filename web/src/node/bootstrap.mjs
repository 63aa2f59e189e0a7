// The first script of a worker thread of Node: gives it what a web worker has, then loads the
// worker's script. `workerData`: its address and the worker's name.
import { openAsBlob } from "node:fs";
import { fileURLToPath } from "node:url";
import { parentPort, workerData } from "node:worker_threads";

const listeners = new Map();
const plainFetch = globalThis.fetch;

Object.assign(globalThis, {
  self: globalThis,
  name: workerData.name,
  WorkerGlobalScope: Object,
  postMessage: (message, transfer) => parentPort.postMessage(message, transfer),
  close: () => process.exit(),
  addEventListener(type, listener, options) {
    if (type !== "message") return;
    const heard = (data) => {
      if (options?.once) parentPort.off("message", heard);
      listener({ data });
    };
    listeners.set(listener, heard);
    parentPort.on("message", heard);
  },
  removeEventListener(_type, listener) {
    parentPort.off("message", listeners.get(listener));
  },
  /** Node's own does not read files. */
  async fetch(input, init) {
    const url = String(input instanceof Request ? input.url : input);
    if (!url.startsWith("file:")) return plainFetch(input, init);
    let blob;
    try {
      blob = await openAsBlob(fileURLToPath(url));
      await blob.slice(0, 1).arrayBuffer(); // a folder can be opened, but not read
    } catch {
      return new Response(null, { status: 404 });
    }
    const type = url.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(blob.stream(), {
      headers: { "Content-Length": String(blob.size), "Content-Type": type },
    });
  },
});

await import(workerData.url);
