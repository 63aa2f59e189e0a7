// The part of the worker for tasks on sound.

import type { Tasks } from "../runner.ts";
import { ctcRecognition } from "./ctc.ts";
import { audioClassification, speakerVerification } from "./tasks.ts";
import { voiceActivity } from "./voice-activity.ts";

export { readSound } from "./read.ts";
export { feedStream } from "./streams.ts";
export { perceive } from "./tasks.ts";

export const TASKS: Tasks = {
  "audio-classification": audioClassification,
  "automatic-speech-recognition": ctcRecognition, // of models that are encoders alone
  "speaker-verification": speakerVerification,
  "voice-activity-detection": voiceActivity,
};
