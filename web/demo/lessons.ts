// Training texts, and the state that is needed to resume a run interrupted by closing the tab.

import {
  type CheckpointInfo,
  checkpoints,
  deleteCheckpoint,
  type FineTuneOptions,
  type TextGenerationPipeline,
} from "edgewise";
import { $ } from "./page.ts";
import type { Teaching } from "./teaching.ts";

/** Name of the checkpoint. */
export const CHECKPOINT = "demo lesson";
// key in localStorage of the text and options of the checkpoint's run
const LESSON = "edgewise demo lesson";

interface Lesson {
  text: string;
  options: FineTuneOptions;
  model: string;
}

/** Splits a lesson into texts, at lines of stars or dashes. */
export function textsOf(lesson: string): string[] {
  return lesson
    .replace(/\r\n?/g, "\n")
    .split(/^[ \t]*(?:\*[ \t]*){3,}$|^[ \t]*-{3,}[ \t]*$/m)
    .map((t) => t.trim())
    .filter(Boolean);
}

/** First two words of the first text; undefined if a text starts with `prompt`. */
export function beginningOf(lesson: string, prompt: string): string | undefined {
  const texts = textsOf(lesson);
  return texts.some((t) => t.startsWith(prompt.trim()))
    ? undefined
    : /^\S+(?:\s+\S+)?/
        .exec(texts[0] ?? "")?.[0]
        .replace(/\s+/g, " ")
        .slice(0, 60);
}

/** Identifies a model: a checkpoint fits models with the same name. */
export const modelName = (model: TextGenerationPipeline) => JSON.stringify(model.info.training);

export function remember(one: Lesson): void {
  try {
    localStorage.setItem(LESSON, JSON.stringify(one));
  } catch {
    // without it an interrupted run cannot be resumed; nothing else is lost
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

/** What is kept of the run that was interrupted; undefined: nothing yet. */
export const keptRun = async (): Promise<CheckpointInfo | undefined> =>
  (await checkpoints().catch(() => [])).find(({ name }) => name === CHECKPOINT);

export async function offerToGoOn(t: Teaching): Promise<void> {
  const model = t.first.model();
  const one = remembered();
  const run = await keptRun();
  const fits = model && one && one.model === modelName(model) && (!run || run.step < run.total);
  $("interrupted").hidden = !fits || !!t.stop;
  if (fits)
    $("interrupted-words").textContent = run?.step
      ? `A lesson was interrupted at step ${run.step} of ${run.total}.`
      : "A lesson was interrupted soon after it began.";
}
