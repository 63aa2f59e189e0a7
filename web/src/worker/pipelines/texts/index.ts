// The part of the worker for tasks on texts.

import type { Tasks } from "../runner.ts";
import {
  featureExtraction,
  fillMask,
  questionAnswering,
  textClassification,
  textRanking,
  tokenClassification,
  zeroShotClassification,
} from "./tasks.ts";

export const TASKS: Tasks = {
  "feature-extraction": featureExtraction,
  "text-classification": textClassification,
  "zero-shot-classification": zeroShotClassification,
  "token-classification": tokenClassification,
  "text-ranking": textRanking,
  "fill-mask": fillMask,
  "question-answering": questionAnswering,
};
