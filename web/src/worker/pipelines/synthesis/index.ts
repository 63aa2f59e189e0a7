// The part of the worker for text-to-speech.

import type { Tasks } from "../runner.ts";
import { textToSpeech } from "./speak.ts";

export const TASKS: Tasks = { "text-to-speech": textToSpeech };
