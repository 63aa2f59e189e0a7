// The part of the worker for pipelines other than text generation.

export { TaskHost } from "./host.ts";
// Parts of their own import what they share with this one from here.
export { Options } from "./options.ts";
export { soundLength, soundPieces } from "./sounds/read.ts";
export { feedTask, runTask } from "./tasks.ts";
export { numbers } from "./text.ts";
