// worker.js: the script of every worker but the compiler's. The worker's name tells its role.
// Loaded by a page itself it only exports the session without a worker.

import { serveThread } from "../thread/index.ts";
import { serveWorker } from "../worker/index.ts";

export { InlineSession } from "../worker/inline.ts";

if ("WorkerGlobalScope" in globalThis) {
  if (/^edgewise thread/.test((globalThis as { name?: string }).name ?? "")) serveThread();
  else serveWorker();
}
