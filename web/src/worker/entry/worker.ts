// worker.js: the script of every worker but the compiler's. The worker's name tells its role.

import { serveWorker } from "../index.ts";
import { serveThread } from "../thread/index.ts";

if ("WorkerGlobalScope" in globalThis) {
  const { name } = globalThis as { name?: string };
  if (name === "edgewise") serveWorker();
  else if (name?.startsWith("edgewise thread")) serveThread();
}
