// The part of the worker for models with an encoder and a decoder, and for their tasks on texts.

export { Seq2SeqModel } from "./model.ts";
export { TEXT_TASKS as TASKS } from "./text.ts";
