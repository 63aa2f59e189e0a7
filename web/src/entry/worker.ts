// worker.js: the script of every worker but the compiler's. The worker's name tells its role.

import { serveThread } from "../thread/index.ts";
import { serveWorker } from "../worker/index.ts";

if ("WorkerGlobalScope" in globalThis) {
  const { name } = globalThis as { name?: string };
  if (name === "edgewise") serveWorker();
  else if (name?.startsWith("edgewise thread")) serveThread();
}
