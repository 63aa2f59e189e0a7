// The part of the worker that recognizes speech with an encoder and a decoder.

import type { Tasks } from "../../runner.ts";
import { speechRecognition } from "./recognition.ts";

export { SpeechStream, wishesOf } from "./stream.ts";

export const TASKS: Tasks = { "automatic-speech-recognition": speechRecognition };
