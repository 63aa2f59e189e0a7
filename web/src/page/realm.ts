// What differs between a page and Node: src/page/node/worker.ts stands in the place of this module
// in edgewise.node.js.

import { trusted } from "../shared/trusted.ts";

/** Starts a worker. */
export function createWorker(url: string, name: string): Worker {
  return new Worker(trusted(url), { type: "module", name });
}

/** The address that relative addresses refer to. */
export function baseUrl(): string | undefined {
  return globalThis.document?.baseURI ?? globalThis.location?.href;
}
