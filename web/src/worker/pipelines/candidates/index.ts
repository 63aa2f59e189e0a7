// The part of the worker for tasks that compare inputs with texts.

import type { Tasks } from "../runner.ts";
import { type Perceive, zeroShot } from "./zero-shot.ts";

/** @param perceive of the part for the model's inputs */
export const tasksOf = (perceive: Perceive): Tasks => ({
  "zero-shot-image-classification": zeroShot(perceive),
  "zero-shot-audio-classification": zeroShot(perceive),
});
