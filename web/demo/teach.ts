// The page's second half: a text becomes an adapter. What is learned is kept in this browser, and a
// lesson that a closed tab interrupted goes on where it was.

import {
  Trainer,
  checkpoints,
  deleteCheckpoint,
  type StepEvent,
  type TextGenerationPipeline,
  type GenerateOptions,
  type FineTuneOptions,
  type KeptAdapter,
} from "edgewise";
import { lossChart } from "./chart.ts";
import { SAMPLE } from "./lesson.ts";
import type { whereTheTimeGoes } from "./where.ts";
import { $, input, megabytes, number, tellError } from "./page.ts";

/** What this half needs of the first. */
export interface FirstHalf {
  model(): TextGenerationPipeline | undefined;
  /** The beginning that both continuations are of, and how they are sampled. */
  prompt(): string;
  sampling(): GenerateOptions;
  /** Offers words to begin with; they become the beginning, unless that is somebody's own. */
  offerBeginning(words: string): void;
  showMemory(): void;
  watch: ReturnType<typeof whereTheTimeGoes>["watch"];
  /**
   * Address of the present model's .onnx file, undefined where Edgewise knows it, null where nobody
   * does.
   */
  onnx(): string | undefined | null;
  /** Loads the present model again so that it can be trained; undefined where it cannot. */
  loadTrainable(): Promise<void>;
}

const CHECKPOINT = "demo lesson";
// in localStorage: the text and options of the lesson that the checkpoint is of
const LESSON = "edgewise demo lesson";
const COMPARED = 110; // tokens
const WATCHED = 20; // steps that "where the time goes" is about

interface Lesson {
  text: string;
  options: FineTuneOptions;
  model: string;
}

/** Texts of a lesson: lines of stars or dashes part them. */
function textsOf(lesson: string): string[] {
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
function beginningOf(lesson: string, prompt: string): string | undefined {
  const texts = textsOf(lesson);
  return texts.some((t) => t.startsWith(prompt.trim()))
    ? undefined
    : /^\S+(?:\s+\S+)?/
        .exec(texts[0] ?? "")?.[0]
        .replace(/\s+/g, " ")
        .slice(0, 60);
}

export function secondHalf(first: FirstHalf): {
  settled(): Promise<void>;
  modelChanged(): Promise<void>;
  loadAdapter(files: File[]): Promise<void>;
  takeText(files: File[]): Promise<void>;
} {
  let trainer: Trainer | undefined;
  let stop: AbortController | undefined;
  let paused = false;
  /** Steps that the panel "where the time goes" still wants to see. */
  let watched: { left: number; resolve(): void } | undefined;
  let comparing: AbortController | undefined;
  let compared: Promise<void> = Promise.resolve();
  let kept: KeptAdapter[] = [];
  const showError = (e: unknown) => tellError("teach-error", e);
  const hideError = () => ($("teach-error").hidden = true);
  const chart = lossChart($("chart"));

  const lesson = $<HTMLTextAreaElement>("lesson");
  const kind = () =>
    document.querySelector<HTMLInputElement>("#kinds input:checked")?.value as
      | "lora"
      | "full"
      | undefined;

  function enable(): void {
    const model = first.model();
    const can = !!model?.info.training.length;
    const busy = !!trainer || !!stop;
    const enough = lesson.value.trim().length >= 200;
    input("teach").disabled = !can || busy || !enough;
    $("teach").hidden = busy;
    $("pause").hidden = $("end").hidden = !busy;
    input("pause").disabled = !trainer;
    $("pause").textContent = paused ? "Go on" : "Pause";
    input("compare-again").disabled = !model || !!comparing;
    lesson.readOnly = busy;
    for (const id of ["sample", "lesson-file", "steps", "rate"]) input(id).disabled = busy;
    for (const radio of document.querySelectorAll<HTMLInputElement>("#kinds input")) {
      const offered = !!model?.info.training.some((t) => t.adapter === radio.value);
      radio.disabled = busy || !offered;
      radio.closest("label")!.hidden = !offered;
    }
    $("untrainable").hidden = !model || can;
    const words = lesson.value.trim() ? lesson.value.trim().split(/\s+/).length : 0;
    input("steps").placeholder = String(usualSteps());
    $("lesson-words").textContent = !words
      ? ""
      : enough
        ? `${number(words)} words`
        : `${number(words)} ${words === 1 ? "word" : "words"}: a little more, please`;
  }

  function showRate(): void {
    const rate = first.model()?.info.training.find((t) => t.adapter === kind())?.learning_rate;
    input("rate").placeholder = rate === undefined ? "" : String(rate);
  }

  // Learning

  /**
   * Some ten times through the text: half as many more and a short one is learned by heart. A token
   * is some three letters here.
   */
  function usualSteps(): number {
    const { batch = 1, sequence = 128 } =
      first.model()?.info.training.find((t) => t.adapter === kind()) ?? {};
    return Math.max(
      60,
      Math.min(400, 10 * Math.round((10 * lesson.value.length) / 3 / (batch * sequence) / 10)),
    );
  }

  function options(): FineTuneOptions {
    const steps = Math.max(
      1,
      Math.min(5000, Math.round(Number(input("steps").value) || usualSteps())),
    );
    const rate = Number(input("rate").value);
    return {
      adapter: kind(),
      max_steps: steps,
      schedule: "cosine",
      warmup_steps: Math.min(4, steps >> 3),
      seed: 1,
      ...(rate > 0 ? { learning_rate: rate } : {}),
    };
  }

  /** Distinct from the names in use and those kept. */
  function freshName(): string {
    const model = first.model();
    const taken = new Set([...(model?.adapters ?? []), ...kept].map((a) => a.name));
    const base = lesson.value === SAMPLE ? "Telegrams" : "My words";
    for (let n = 1; ; n++)
      if (!taken.has(n === 1 ? base : `${base} ${n}`)) return n === 1 ? base : `${base} ${n}`;
  }

  async function learn(text: string, asked: FineTuneOptions, resume: boolean): Promise<void> {
    const model = first.model();
    if (!model || stop) return;
    comparing?.abort();
    const mine = (stop = new AbortController());
    paused = false;
    hideError();
    $("interrupted").hidden = true;
    $("learning").hidden = false;
    $("compare").hidden = true;
    say(resume ? "Reading where it was" : "Reading your text");
    chart.begin(1, []);
    enable();
    let end = "";
    try {
      trainer = await Trainer.create(model, textsOf(text), {
        ...asked,
        signal: mine.signal,
        onStep: show,
        checkpoint: { name: CHECKPOINT, every: 10 },
        resume,
      });
      const begun = trainer;
      const { info } = begun;
      chart.begin(info.total, info.losses);
      remember({ text, options: asked, model: modelName(model) });
      say(`Learning ${number(info.tokens)} tokens, ${number(info.parameters)} numbers change`);
      enable();
      const running = trainer.run();
      const some = new Promise<void>((resolve) => {
        watched = { left: WATCHED, resolve };
      });
      // the run has words for what goes wrong
      void first
        .watch(
          `The first ${WATCHED} steps`,
          (work) => begun.profile(work),
          () =>
            Promise.race([
              some,
              running.then(
                () => undefined,
                () => undefined,
              ),
            ]),
        )
        .catch(() => undefined);
      await running;
      end = "Learned";
    } catch (e) {
      if ((e as Error).name === "Aborted")
        end = mine.signal.reason === "end" ? "Ended early; what it had learned so far counts" : "";
      else showError(e);
    } finally {
      const done = trainer;
      if (done) {
        const result = await done.result().catch(() => undefined);
        await done.close().catch(() => undefined);
        if (result && !result.step && first.model() === model)
          await model.removeAdapter(result.adapter).catch(() => undefined);
        if (end && result?.step) {
          say(`${end}: ${number(result.step)} steps in ${number(result.seconds, 1)} s`);
          await forgetRun();
          await keep(model, result.adapter);
        }
      }
      if (!end) $("learning").hidden = true;
      trainer = stop = undefined;
      enable();
      await showAdapters();
      first.showMemory();
      document.body.dataset.learned = String(Number(document.body.dataset.learned ?? 0) + 1);
    }
    if (!end || first.model() !== model) return;
    const beginning = beginningOf(text, first.prompt());
    if (beginning) first.offerBeginning(beginning);
    await compare();
  }

  function show(event: StepEvent): void {
    chart.add(event.loss);
    if (watched && --watched.left <= 0) watched.resolve();
    $("learn-loss").textContent = number(event.loss, 2);
    $("learn-speed").textContent = number(event.tokens_per_second);
    $("learn-memory").textContent = megabytes(event.memory.engine);
    $("learn-left").textContent =
      event.seconds_left < 90
        ? `${number(event.seconds_left)} s`
        : `${number(event.seconds_left / 60, 1)} min`;
    $("learn-step").textContent = `${number(event.step)} of ${number(event.total)}`;
    document.body.dataset.step = String(event.step);
    if (typeof event.checkpoint === "string")
      $("learn-note").textContent = `Not kept for now: ${event.checkpoint}`;
  }

  function say(words: string): void {
    $("learn-words").textContent = words;
    $("learn-note").textContent = "";
  }

  // Comparing

  const compare = (seed = 7): Promise<void> => (compared = compareNow(seed));

  async function compareNow(seed: number): Promise<void> {
    const model = first.model();
    const active = model?.adapters.find((a) => a.active);
    if (!model || !active || comparing) return;
    const mine = (comparing = new AbortController());
    $("compare").hidden = false;
    $("after-name").textContent = active.name;
    const prompt = first.prompt();
    const sampling = { ...first.sampling(), max_new_tokens: COMPARED, signal: mine.signal };
    sampling.seed ??= seed;
    for (const side of ["before", "after"]) $(side).textContent = prompt;
    enable();
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
      comparing = undefined;
      if (first.model() === model && model.adapters.some((a) => a.name === active.name))
        await model.setAdapter(active.name).catch(() => undefined);
      enable();
    }
  }

  // Keeping

  const modelName = (model: TextGenerationPipeline) => JSON.stringify(model.info.training);

  function remember(one: Lesson): void {
    try {
      localStorage.setItem(LESSON, JSON.stringify(one));
    } catch {
      // Without it an interrupted lesson cannot go on; nothing else is lost.
    }
  }

  function remembered(): Lesson | undefined {
    try {
      return (JSON.parse(localStorage.getItem(LESSON) ?? "null") as Lesson | null) ?? undefined;
    } catch {
      return undefined;
    }
  }

  async function forgetRun(): Promise<void> {
    localStorage.removeItem(LESSON);
    await deleteCheckpoint(CHECKPOINT).catch(() => undefined);
  }

  async function keep(model: TextGenerationPipeline, name: string): Promise<void> {
    try {
      await model.keepAdapter(name);
    } catch (e) {
      $("learn-note").textContent =
        `It is not kept in this browser (${e instanceof Error ? e.message : String(e)}).`;
    }
  }

  async function offerToGoOn(): Promise<void> {
    const model = first.model();
    const one = remembered();
    const run = (await checkpoints().catch(() => [])).find((c) => c.name === CHECKPOINT);
    const fits = model && one && run && run.step < run.total && one.model === modelName(model);
    $("interrupted").hidden = !fits || !!stop;
    if (fits)
      $("interrupted-words").textContent =
        `A lesson was interrupted at step ${run.step} of ${run.total}.`;
  }

  async function showAdapters(): Promise<void> {
    const model = first.model();
    kept = model?.info.training.length ? await model.keptAdapters().catch(() => []) : [];
    const list = $("adapters");
    const here = model?.adapters ?? [];
    const names = [...new Set([...here.map((a) => a.name), ...kept.map((k) => k.name)])];
    $("library").hidden = !names.length;
    const active = here.find((a) => a.active)?.name ?? null;
    const rows = [row(null, active === null)];
    for (const name of names) rows.push(row(name, name === active));
    list.replaceChildren(...rows);
  }

  function row(name: string | null, active: boolean): HTMLLIElement {
    const model = first.model()!;
    const info = model.adapters.find((a) => a.name === name);
    const keptOne = kept.find((k) => k.name === name);
    const item = document.createElement("li");
    const radio = Object.assign(document.createElement("input"), {
      type: "radio",
      name: "adapter",
      checked: active,
    });
    radio.setAttribute("aria-label", name ?? "The storyteller as it came");
    radio.addEventListener("change", () => void use(name));
    const label = document.createElement("label");
    if (name === null) label.append(radio, " As it came");
    else {
      const field = Object.assign(document.createElement("input"), {
        type: "text",
        value: name,
        maxLength: 40,
        spellcheck: false,
      });
      field.setAttribute("aria-label", "Name of the adapter");
      field.addEventListener("change", () => void rename(name, field.value.trim()));
      label.append(radio, field);
    }
    item.append(label);
    if (name === null) return item;
    item.append(
      Object.assign(document.createElement("small"), {
        textContent: `${megabytes(info?.bytes ?? keptOne!.bytes)}${keptOne ? "" : ", not kept"}`,
      }),
    );
    const button = (words: string, act: () => Promise<unknown>) => {
      const b = Object.assign(document.createElement("button"), {
        type: "button",
        textContent: words,
        className: "plain",
      });
      b.addEventListener("click", () => void act().catch(showError));
      item.append(b);
    };
    button("Download", () => download(name));
    if (first.onnx() !== null)
      button("As ONNX", async () => {
        $("library-note").textContent = `Python merges ${name} into the model's .onnx file`;
        try {
          give(await (await ready(name)).mergedOnnx(name, first.onnx() ?? undefined));
        } finally {
          $("library-note").textContent = "";
        }
      });
    button("Remove", () => remove(name));
    return item;
  }

  const ready = async (name: string): Promise<TextGenerationPipeline> => {
    const model = first.model()!;
    if (!model.adapters.some((a) => a.name === name)) await model.loadAdapter(name);
    return model;
  };

  async function use(name: string | null): Promise<void> {
    comparing?.abort();
    try {
      if (name === null) await first.model()!.setAdapter(null);
      else await (await ready(name)).setAdapter(name);
      hideError();
      if (name !== null && !stop) await compare();
      else $("compare").hidden = true;
    } catch (e) {
      showError(e);
    }
    await showAdapters();
    enable();
  }

  async function rename(name: string, to: string): Promise<void> {
    try {
      if (!to || to === name) return;
      if (kept.some((k) => k.name === to)) throw new Error(`there is an adapter '${to}' already`);
      const model = await ready(name);
      await model.renameAdapter(name, to);
      if (kept.some((k) => k.name === name)) {
        await model.keepAdapter(to);
        await model.forgetAdapter(name);
      }
      if ($("after-name").textContent === name) $("after-name").textContent = to;
    } catch (e) {
      showError(e);
    } finally {
      await showAdapters();
    }
  }

  async function download(name: string): Promise<void> {
    for (const file of await (await ready(name)).saveAdapter(name)) give(file);
  }

  function give(file: File): void {
    const link = Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(file),
      download: file.name,
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  async function remove(name: string): Promise<void> {
    const model = first.model()!;
    const was = model.adapters.find((a) => a.name === name);
    if (was) await model.removeAdapter(name);
    await model.forgetAdapter(name);
    if (was?.active) $("compare").hidden = true;
    await showAdapters();
  }

  // Elements

  lesson.addEventListener("input", enable);
  $("kinds").addEventListener("change", showRate);
  $("sample").addEventListener("click", () => {
    lesson.value = SAMPLE;
    enable();
  });
  $("lesson-file").addEventListener("change", () => {
    void takeText(Array.from(input("lesson-file").files ?? []));
    input("lesson-file").value = "";
  });
  $("teach-form").addEventListener("submit", (e) => {
    e.preventDefault();
    if (!input("teach").disabled)
      void learn(lesson.value, { ...options(), name: freshName() }, false);
  });
  $("pause").addEventListener("click", () => {
    if (!trainer) return;
    paused = !paused;
    void (paused ? trainer.pause() : trainer.resume());
    if (paused) say("Paused");
    else say("Learning");
    enable();
  });
  $("end").addEventListener("click", () => stop?.abort("end"));
  $("compare-again").addEventListener(
    "click",
    () => void compare(Math.floor(Math.random() * 2 ** 31)),
  );
  $("go-on").addEventListener("click", () => {
    const one = remembered();
    if (!one) return;
    lesson.value = one.text;
    void learn(one.text, one.options, true);
  });
  $("discard").addEventListener("click", () => void forgetRun().then(offerToGoOn));
  $("make-trainable").addEventListener("click", () => void first.loadTrainable());

  async function takeText(files: File[]): Promise<void> {
    if (!files.length || stop) return;
    try {
      if (files.some((f) => f.size > 20e6)) throw new Error("the text is larger than 20 MB");
      const texts = await Promise.all(files.map((f) => f.text()));
      if (texts.some((t) => t.includes("\0")))
        throw new Error(`${files[0]!.name} is not a text file`);
      lesson.value = texts.join("\n\n***\n\n");
      hideError();
    } catch (e) {
      showError(e);
    }
    enable();
  }

  enable();
  return {
    async settled() {
      comparing?.abort();
      await compared;
    },
    async modelChanged() {
      stop?.abort("the model changed");
      comparing?.abort();
      const model = first.model();
      const kinds = model?.info.training ?? [];
      const checked = kind();
      if (!kinds.some((k) => k.adapter === checked))
        for (const radio of document.querySelectorAll<HTMLInputElement>("#kinds input"))
          radio.checked = radio.value === kinds[0]?.adapter;
      showRate();
      $("compare").hidden = true;
      enable();
      await showAdapters();
      await offerToGoOn();
    },
    async loadAdapter(files) {
      const model = first.model();
      if (!model) return;
      const weights = files.find((f) => f.name.endsWith(".safetensors"))!;
      const base =
        (weights.webkitRelativePath.split("/").at(-2) ??
          weights.name.replace(/\.?(adapter_)?(model)?\.safetensors$/, "")) ||
        "Loaded";
      let name = base.slice(0, 40);
      for (
        let n = 2;
        model.adapters.some((a) => a.name === name) || kept.some((k) => k.name === name);
        n++
      )
        name = `${base.slice(0, 36)} ${n}`;
      try {
        await model.loadAdapter(name, files);
        await keep(model, name);
        await use(name);
      } catch (e) {
        showError(e);
      }
    },
    takeText,
  };
}
