// The part of the worker that records profiles.

export { traceOf } from "../../protocol/trace.ts";
export { Recorder } from "./recorder.ts";
