// worker.js: the script of every worker but the compiler's. The worker's name tells its role.
// Loaded by a page, or by a worker of the page's own, it only exports the session without a worker.

import { serveThread } from "../thread/index.ts";
import { serveWorker } from "../worker/index.ts";

export { InlineSession } from "../worker/inline.ts";

if ("WorkerGlobalScope" in globalThis) {
  const { name } = globalThis as { name?: string };
  if (name === "edgewise") serveWorker();
  else if (name?.startsWith("edgewise thread")) serveThread();
}
