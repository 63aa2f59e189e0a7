// Compares what the model writes with and without the active adapter.

import { $ } from "./page.ts";
import { enable, showError, type Teaching } from "./teaching.ts";

const COMPARED = 110; // tokens

/** Writes both continuations. `seed`: used unless the page sets one. */
export const compare = (t: Teaching, seed = 7): Promise<void> => (t.compared = compareNow(t, seed));

async function compareNow(t: Teaching, seed: number): Promise<void> {
  const model = t.first.model();
  const active = model?.adapters.find((a) => a.active);
  if (!model || !active || t.comparing) return;
  const mine = (t.comparing = new AbortController());
  $("compare").hidden = false;
  $("after-name").textContent = active.name;
  const prompt = t.first.prompt();
  const sampling = { ...t.first.sampling(), max_new_tokens: COMPARED, signal: mine.signal };
  sampling.seed ??= seed;
  for (const side of ["before", "after"]) $(side).textContent = prompt;
  enable(t);
  try {
    for (const [side, adapter] of [
      ["after", active.name],
      ["before", null],
    ] as const) {
      await model.setAdapter(adapter);
      const text = document.createTextNode("");
      $(side).replaceChildren(
        Object.assign(document.createElement("span"), {
          className: "prompt",
          textContent: prompt,
        }),
        text,
      );
      await model(prompt, { ...sampling, streamer: (piece) => text.appendData(piece) });
    }
    document.body.dataset.compared = String(Number(document.body.dataset.compared ?? 0) + 1);
  } catch (e) {
    if ((e as Error).name !== "Aborted") showError(e);
  } finally {
    t.comparing = undefined;
    if (t.first.model() === model && model.adapters.some((a) => a.name === active.name))
      await model.setAdapter(active.name).catch(() => undefined);
    enable(t);
  }
}
