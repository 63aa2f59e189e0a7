// The first script of a worker thread of Node, Deno or Bun: gives it what a web worker has, then
// loads the worker's script. `workerData`: its address and the worker's name.

import { openAsBlob } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parentPort, type TransferListItem, workerData } from "node:worker_threads";

type Listener = (event: { data: unknown }) => void;

const { url, name } = workerData as { url: string; name: string };
const listeners = new Map<Listener, (data: unknown) => void>();
const plainFetch = globalThis.fetch;

Object.assign(globalThis, {
  self: globalThis,
  name,
  WorkerGlobalScope: Object,
  postMessage: (message: unknown, transfer?: TransferListItem[]) =>
    parentPort!.postMessage(message, transfer),
  close: () => process.exit(),
  addEventListener(type: string, listener: Listener, options?: { once?: boolean }) {
    if (type !== "message") return;
    const heard = (data: unknown): void => {
      if (options?.once) parentPort!.off("message", heard);
      listener({ data });
    };
    listeners.set(listener, heard);
    parentPort!.on("message", heard);
  },
  removeEventListener(_type: string, listener: Listener) {
    const heard = listeners.get(listener);
    if (heard) parentPort!.off("message", heard);
  },
  /** Node's own does not read files. */
  async fetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
    const address = String(input instanceof Request ? input.url : input);
    if (!address.startsWith("file:")) return plainFetch(input, init);
    let blob: Blob;
    try {
      blob = await openAsBlob(fileURLToPath(address));
      await blob.slice(0, 1).arrayBuffer(); // a folder can be opened, but not read
    } catch {
      return new Response(null, { status: 404 });
    }
    const type = address.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(blob.stream(), {
      headers: { "Content-Length": String(blob.size), "Content-Type": type },
    });
  },
});
if (!("navigator" in globalThis))
  Object.assign(globalThis, { navigator: { hardwareConcurrency: availableParallelism() } });

await import(url);
