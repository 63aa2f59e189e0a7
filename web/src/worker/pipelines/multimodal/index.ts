// The part of the worker for language models that see pictures or hear sounds.

export { soundTasksOf, tasksOf } from "./asking.ts";
export { Encoder } from "./encoder.ts";
export { languageModel } from "./model.ts";
export { transcriptsOf } from "./transcripts.ts";
