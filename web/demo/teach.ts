// The second half of the page: trains an adapter on a text. Results are stored in the browser, and
// a run that was interrupted by closing the tab can be resumed.

import { compare } from "./comparing.ts";
import { freshName, learn, say } from "./learning.ts";
import { SAMPLE } from "./lesson.ts";
import { forgetRun, keptRun, offerToGoOn, remembered } from "./lessons.ts";
import { keep, showAdapters, use } from "./library.ts";
import { $, input } from "./page.ts";
import {
  enable,
  type FirstHalf,
  hideError,
  kind,
  options,
  showError,
  showRate,
  Teaching,
} from "./teaching.ts";

/** Sets up the second half. */
export function secondHalf(first: FirstHalf): {
  settled(): Promise<void>;
  modelChanged(): Promise<void>;
  loadAdapter(files: File[]): Promise<void>;
  takeText(files: File[]): Promise<void>;
} {
  const t = new Teaching(first);
  listen(t);
  enable(t);
  return {
    async settled() {
      t.comparing?.abort();
      await t.compared;
    },
    modelChanged: () => modelChanged(t),
    loadAdapter: (files) => loadAdapter(t, files),
    takeText: (files) => takeText(t, files),
  };
}

/** Adds the event listeners of this half. */
function listen(t: Teaching): void {
  t.lesson.addEventListener("input", () => enable(t));
  $("kinds").addEventListener("change", () => showRate(t));
  $("sample").addEventListener("click", () => {
    t.lesson.value = SAMPLE;
    enable(t);
  });
  $("lesson-file").addEventListener("change", () => {
    void takeText(t, Array.from(input("lesson-file").files ?? []));
    input("lesson-file").value = "";
  });
  $("teach-form").addEventListener("submit", (e) => {
    e.preventDefault();
    if (!input("teach").disabled)
      void learn(t, t.lesson.value, { ...options(t), name: freshName(t) }, false);
  });
  $("pause").addEventListener("click", () => {
    if (!t.trainer) return;
    t.paused = !t.paused;
    void (t.paused ? t.trainer.pause() : t.trainer.resume());
    if (t.paused) say("Paused");
    else say("Learning");
    enable(t);
  });
  $("end").addEventListener("click", () => t.stop?.abort("end"));
  $("compare-again").addEventListener(
    "click",
    () => void compare(t, Math.floor(Math.random() * 2 ** 31)),
  );
  $("go-on").addEventListener("click", () => {
    const one = remembered();
    if (!one) return;
    t.lesson.value = one.text;
    void keptRun().then((run) => learn(t, one.text, one.options, run !== undefined));
  });
  $("discard").addEventListener("click", () => void forgetRun().then(() => offerToGoOn(t)));
  $("make-trainable").addEventListener("click", () => void t.first.loadTrainable());
}

async function takeText(t: Teaching, files: File[]): Promise<void> {
  if (!files.length || t.stop) return;
  try {
    if (files.some((f) => f.size > 20e6)) throw new Error("the text is larger than 20 MB");
    const texts = await Promise.all(files.map((f) => f.text()));
    if (texts.some((t) => t.includes("\0")))
      throw new Error(`${files[0]!.name} is not a text file`);
    t.lesson.value = texts.join("\n\n***\n\n");
    hideError();
  } catch (e) {
    showError(e);
  }
  enable(t);
}

async function modelChanged(t: Teaching): Promise<void> {
  t.stop?.abort("the model changed");
  t.comparing?.abort();
  const model = t.first.model();
  const kinds = model?.info.training ?? [];
  const checked = kind();
  if (!kinds.some((k) => k.adapter === checked))
    for (const radio of document.querySelectorAll<HTMLInputElement>("#kinds input"))
      radio.checked = radio.value === kinds[0]?.adapter;
  showRate(t);
  $("compare").hidden = true;
  enable(t);
  await showAdapters(t);
  await offerToGoOn(t);
}

async function loadAdapter(t: Teaching, files: File[]): Promise<void> {
  const model = t.first.model();
  if (!model) return;
  const weights = files.find((f) => f.name.endsWith(".safetensors"))!;
  const base =
    (weights.webkitRelativePath.split("/").at(-2) ??
      weights.name.replace(/\.?(adapter_)?(model)?\.safetensors$/, "")) ||
    "Loaded";
  let name = base.slice(0, 40);
  for (
    let n = 2;
    model.adapters.some((a) => a.name === name) || t.kept.some((k) => k.name === name);
    n++
  )
    name = `${base.slice(0, 36)} ${n}`;
  try {
    await model.loadAdapter(name, files);
    await keep(model, name);
    await use(t, name);
  } catch (e) {
    showError(e);
  }
}
