// Lessons: their texts, and what is remembered of one that a closed tab interrupted.

import {
  checkpoints,
  deleteCheckpoint,
  type FineTuneOptions,
  type TextGenerationPipeline,
} from "edgewise";
import { $ } from "./page.ts";
import type { Teaching } from "./teaching.ts";

/** Name of the checkpoint. */
export const CHECKPOINT = "demo lesson";
// in localStorage: the text and options of the lesson that the checkpoint is of
const LESSON = "edgewise demo lesson";

interface Lesson {
  text: string;
  options: FineTuneOptions;
  model: string;
}

/** Texts of a lesson: lines of stars or dashes part them. */
export function textsOf(lesson: string): string[] {
  return lesson
    .replace(/\r\n?/g, "\n")
    .split(/^[ \t]*(?:\*[ \t]*){3,}$|^[ \t]*-{3,}[ \t]*$/m)
    .map((t) => t.trim())
    .filter(Boolean);
}

/**
 * How a lesson's texts begin: the first two words of the first one; undefined where one begins as
 * `prompt` does.
 */
export function beginningOf(lesson: string, prompt: string): string | undefined {
  const texts = textsOf(lesson);
  return texts.some((t) => t.startsWith(prompt.trim()))
    ? undefined
    : /^\S+(?:\s+\S+)?/
        .exec(texts[0] ?? "")?.[0]
        .replace(/\s+/g, " ")
        .slice(0, 60);
}

/** Stands for a model: a checkpoint fits a model of the same name. */
export const modelName = (model: TextGenerationPipeline) => JSON.stringify(model.info.training);

export function remember(one: Lesson): void {
  try {
    localStorage.setItem(LESSON, JSON.stringify(one));
  } catch {
    // Without it an interrupted lesson cannot go on; nothing else is lost.
  }
}

export function remembered(): Lesson | undefined {
  try {
    return (JSON.parse(localStorage.getItem(LESSON) ?? "null") as Lesson | null) ?? undefined;
  } catch {
    return undefined;
  }
}

export async function forgetRun(): Promise<void> {
  localStorage.removeItem(LESSON);
  await deleteCheckpoint(CHECKPOINT).catch(() => undefined);
}

export async function offerToGoOn(t: Teaching): Promise<void> {
  const model = t.first.model();
  const one = remembered();
  const run = (await checkpoints().catch(() => [])).find((c) => c.name === CHECKPOINT);
  const fits = model && one && run && run.step < run.total && one.model === modelName(model);
  $("interrupted").hidden = !fits || !!t.stop;
  if (fits)
    $("interrupted-words").textContent =
      `A lesson was interrupted at step ${run.step} of ${run.total}.`;
}
