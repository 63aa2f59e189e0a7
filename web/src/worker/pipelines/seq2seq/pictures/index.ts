// The part of the worker that writes about pictures.

import type { Tasks } from "../../runner.ts";
import { documentAnswer, imageToText } from "./write.ts";

export const TASKS: Tasks = {
  "image-to-text": imageToText,
  "document-question-answering": documentAnswer,
};
