// The part of the worker for personal pipelines whose model has adapters.

export {
  adapt,
  adaptersOf,
  changed,
  checkAdapters,
  loraOptions,
  SHARE,
} from "./lora.ts";
