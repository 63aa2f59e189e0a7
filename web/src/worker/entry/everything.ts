// The worker of the builds of one file: worker.js with all its parts, and compiler.js, which share
// modules. Loaded by a page, or by a worker of the page's own, it only exports the session without
// a worker.

import { serveCompiler } from "../compiler/index.ts";
import "./worker.ts";

export { InlineSession } from "../inline.ts";

const { name } = globalThis as { name?: string };
if ("WorkerGlobalScope" in globalThis && name === "edgewise compiler") serveCompiler();
