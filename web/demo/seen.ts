// What a model will see of a text or of records: tokens, those that it learns marked. Shown while
// its <details> is open.

import { previewData, previewHTML, type TextGenerationPipeline, type TrainingData } from "edgewise";
import { $ } from "./page.ts";

const WAIT = 300; // ms after the last change

/** Data to be shown, with the model that will see them. */
export interface Shown {
  model: TextGenerationPipeline;
  data: TrainingData;
  adapter?: "lora" | "full";
}

/**
 * Shows a preview in #seen-view while #seen is open.
 * @param of what to show; undefined: nothing yet
 * @returns call it when something has changed
 */
export function previewOf(of: () => Shown | undefined): () => void {
  const details = $<HTMLDetailsElement>("seen");
  let timer: number | undefined;
  let last = 0;
  const show = async () => {
    const mine = ++last;
    const view = $("seen-view");
    const shown = of();
    if (!shown) {
      view.textContent = "Nothing yet.";
      return;
    }
    const { model, data, adapter } = shown;
    try {
      const html = previewHTML(await previewData(model, data, { count: 2, adapter }));
      if (mine === last) view.innerHTML = html;
    } catch (e) {
      if (mine === last) view.textContent = e instanceof Error ? e.message : String(e);
    }
  };
  const changed = () => {
    clearTimeout(timer);
    if (details.open) timer = window.setTimeout(() => void show(), WAIT);
  };
  details.addEventListener("toggle", () => details.open && void show());
  return changed;
}
