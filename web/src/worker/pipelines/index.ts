// The part of the worker for pipelines other than text generation.

export { TaskHost } from "./host.ts";
export { feedTask, runTask } from "./tasks.ts";
