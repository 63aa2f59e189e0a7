// Trains an adapter on a text.

import {
  type FineTuneOptions,
  type StepEvent,
  type TextGenerationPipeline,
  Trainer,
} from "edgewise";
import { compare } from "./comparing.ts";
import { SAMPLE } from "./lesson.ts";
import { beginningOf, CHECKPOINT, forgetRun, modelName, remember, textsOf } from "./lessons.ts";
import { keep, showAdapters } from "./library.ts";
import { $, megabytes, number } from "./page.ts";
import { enable, hideError, showError, type Teaching } from "./teaching.ts";

const WATCHED = 20; // number of steps that "where the time goes" shows

/** A name that no adapter in use or in storage has. */
export function freshName(t: Teaching): string {
  const model = t.first.model();
  const taken = new Set([...(model?.adapters ?? []), ...t.kept].map((a) => a.name));
  const base = t.lesson.value === SAMPLE ? "Telegrams" : "My words";
  for (let n = 1; ; n++)
    if (!taken.has(n === 1 ? base : `${base} ${n}`)) return n === 1 ? base : `${base} ${n}`;
}

/** Trains the model on a text. `resume`: continue the interrupted run. */
export async function learn(
  t: Teaching,
  text: string,
  asked: FineTuneOptions,
  resume: boolean,
): Promise<void> {
  const model = t.first.model();
  if (!model || t.stop) return;
  t.comparing?.abort();
  const mine = (t.stop = new AbortController());
  t.paused = false;
  hideError();
  $("interrupted").hidden = true;
  $("learning").hidden = false;
  $("compare").hidden = true;
  say(resume ? "Reading where it was" : "Reading your text");
  t.chart.begin(1, []);
  enable(t);
  let end = "";
  try {
    t.trainer = await Trainer.create(model, textsOf(text), {
      ...asked,
      signal: mine.signal,
      onStep: (event) => show(t, event),
      checkpoint: { name: CHECKPOINT, every: 10 },
      resume,
    });
    const begun = t.trainer;
    const { info } = begun;
    t.chart.begin(info.total, info.losses);
    remember({ text, options: asked, model: modelName(model) });
    say(`Learning ${number(info.tokens)} tokens, ${number(info.parameters)} numbers change`);
    enable(t);
    const running = t.trainer.run();
    watchFirstSteps(t, begun, running);
    await running;
    end = "Learned";
  } catch (e) {
    if ((e as Error).name === "Aborted")
      end = mine.signal.reason === "end" ? "Ended early; what it had learned so far counts" : "";
    else showError(e);
  } finally {
    if (t.trainer) await conclude(t, model, t.trainer, end);
    if (!end) $("learning").hidden = true;
    t.trainer = t.stop = undefined;
    enable(t);
    await showAdapters(t);
    t.first.showMemory();
    document.body.dataset.learned = String(Number(document.body.dataset.learned ?? 0) + 1);
  }
  if (!end || t.first.model() !== model) return;
  const beginning = beginningOf(text, t.first.prompt());
  if (beginning) t.first.offerBeginning(beginning);
  await compare(t);
}

/** Profiles the first steps. */
function watchFirstSteps(t: Teaching, trainer: Trainer, running: Promise<unknown>): void {
  const some = new Promise<void>((resolve) => {
    t.watched = { left: WATCHED, resolve };
  });
  const ended = running.then(
    () => undefined,
    () => undefined,
  );
  // errors of the run are shown where it is awaited
  void t.first
    .watch(
      `The first ${WATCHED} steps`,
      (work) => trainer.profile(work),
      () => Promise.race([some, ended]),
    )
    .catch(() => undefined);
}

/** Closes a trainer and stores its result. `end`: how it ended; "" if it failed. */
async function conclude(
  t: Teaching,
  model: TextGenerationPipeline,
  trainer: Trainer,
  end: string,
): Promise<void> {
  const result = await trainer.result().catch(() => undefined);
  await trainer.close().catch(() => undefined);
  if (result && !result.step && t.first.model() === model)
    await model.removeAdapter(result.adapter).catch(() => undefined);
  if (!end || !result?.step) return;
  say(`${end}: ${number(result.step)} steps in ${number(result.seconds, 1)} s`);
  await forgetRun();
  await keep(model, result.adapter);
}

/** Shows a step. */
function show(t: Teaching, event: StepEvent): void {
  t.chart.add(event.loss);
  if (t.watched && --t.watched.left <= 0) t.watched.resolve();
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

/** Shows a message. */
export function say(words: string): void {
  $("learn-words").textContent = words;
  $("learn-note").textContent = "";
}
