// The part of the worker that recognizes speech with models of features of any length: CTC of
// pieces of words, transducers, and Canary.

import type { Tasks } from "../../runner.ts";
import { hearingRecognition } from "./recognition.ts";

export const TASKS: Tasks = { "automatic-speech-recognition": hearingRecognition };
