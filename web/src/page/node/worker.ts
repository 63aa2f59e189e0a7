// Web workers in Node, Deno and Bun: a worker thread with the interface of a browser's Worker.

import { pathToFileURL } from "node:url";
import { Worker as Thread } from "node:worker_threads";

/** As `new Worker(url, { name })` in a page, as far as the library uses it. */
export class NodeWorker {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onmessageerror: ((event: unknown) => void) | null = null;
  onerror: ((event: { message: string; preventDefault?(): void }) => void) | null = null;
  private readonly thread: Thread;

  constructor(url: string, options: { name: string }) {
    this.thread = new Thread(new URL("./node-worker.mjs", import.meta.url), {
      workerData: { url, name: options.name },
      execArgv: [], // options such as --input-type are the main thread's
    });
    this.thread.on("message", (data: unknown) => this.onmessage?.({ data }));
    this.thread.on("messageerror", (e: unknown) => this.onmessageerror?.(e));
    this.thread.on("error", (e: Error) => this.onerror?.({ message: e.message }));
    // Node has no Web Locks, by which a page notices a worker that ends silently
    this.thread.on("exit", (code) => this.onerror?.({ message: `it ended with code ${code}` }));
  }

  postMessage(message: unknown, transfer?: readonly unknown[]): void {
    this.thread.postMessage(message, transfer as never);
  }

  terminate(): void {
    void this.thread.terminate();
  }
}

/** Starts a worker. */
export function createWorker(url: string, name: string): Worker {
  return new NodeWorker(url, { name }) as unknown as Worker;
}

/** The address that relative addresses refer to: the working directory. */
export function baseUrl(): string {
  return pathToFileURL(`${process.cwd()}/`).href;
}
