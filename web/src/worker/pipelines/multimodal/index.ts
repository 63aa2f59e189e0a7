// The part of the worker for language models that see pictures.

export { tasksOf } from "./asking.ts";
export { languageModel } from "./model.ts";
