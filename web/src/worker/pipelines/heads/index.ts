// The part of the worker for personal pipelines.

export { runHead } from "./heads.ts";
