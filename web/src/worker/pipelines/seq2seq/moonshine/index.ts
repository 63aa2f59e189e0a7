// The part of the worker that recognizes speech with Moonshine.

import type { Tasks } from "../../runner.ts";
import { moonshineRecognition } from "./recognition.ts";

export const TASKS: Tasks = { "automatic-speech-recognition": moonshineRecognition };
