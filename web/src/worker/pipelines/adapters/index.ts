// The part of the worker for personal pipelines whose model has adapters.

export { adapt, changed, checkAdapters, loraOptions } from "./lora.ts";
