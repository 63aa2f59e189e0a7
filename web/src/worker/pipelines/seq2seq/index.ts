// The part of the worker for tasks that generate text with an encoder.

import type { TaskRunner } from "../runner.ts";
import { speechRecognition } from "./speech/recognition.ts";
import { TEXT_TASKS } from "./text.ts";

export { Seq2SeqModel } from "./model.ts";

/** The tasks of this part. */
export const SEQ2SEQ: Readonly<Record<string, TaskRunner>> = {
  ...TEXT_TASKS,
  "automatic-speech-recognition": speechRecognition,
};
