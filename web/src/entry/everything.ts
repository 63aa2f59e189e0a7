// The worker of the builds of one file: worker.js with all its parts. Loaded by a page, or by a
// worker of the page's own, it only exports the session without a worker.

import "./worker.ts";

export { InlineSession } from "../worker/inline.ts";
