// The part of the worker for pipelines other than text generation.

export { TaskHost } from "./host.ts";
// What parts of their own share with this one: worker.mjs needs it to be exported here.
export { Options } from "./options.ts";
export { soundLength, soundPieces } from "./sounds/read.ts";
export { feedTask, openTask, runTask } from "./tasks.ts";
export { numbers } from "./text.ts";
