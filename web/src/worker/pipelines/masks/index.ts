// The part of the worker for masks by prompts.

import type { Tasks } from "../runner.ts";
import { type Images, maskGeneration } from "./masks.ts";

/** @param images of the part for pictures */
export const tasksOf = (images: Images): Tasks => ({ "mask-generation": maskGeneration(images) });
