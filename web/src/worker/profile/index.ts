// The part of the worker that records profiles.

export { trace_of } from "../../logic/profile.ts";
export { Recorder } from "./recorder.ts";
