// What the worker needs for any pipeline other than text generation. Each folder beside this file
// is a part of its own, which is loaded for its tasks: tasks.ts names it, and worker.mjs.

export { feedTask, openTask, runnerOf, runTask } from "./tasks.ts";
