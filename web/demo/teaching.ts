// The state of the page's second half, and which of its buttons are enabled.

import type {
  FineTuneOptions,
  GenerateOptions,
  KeptAdapter,
  TextGenerationPipeline,
  Trainer,
} from "edgewise";
import { lossChart } from "./chart.ts";
import { textsOf } from "./lessons.ts";
import { $, input, number, tellError } from "./page.ts";
import { previewOf } from "./seen.ts";
import type { whereTheTimeGoes } from "./where.ts";

/** The part of the first half that the second needs. */
export interface FirstHalf {
  model(): TextGenerationPipeline | undefined;
  /** The prompt of both continuations, and their sampling options. */
  prompt(): string;
  sampling(): GenerateOptions;
  /** Adds a prompt; replaces the current one unless the user wrote it. */
  offerBeginning(words: string): void;
  showMemory(): void;
  watch: ReturnType<typeof whereTheTimeGoes>["watch"];
  /** Address of the model's .onnx file; undefined if Edgewise knows it, null if it is unknown. */
  onnx(): string | undefined | null;
  /** Loads the current model again, compiled for training. */
  loadTrainable(): Promise<void>;
}

/** The state of the second half. */
export class Teaching {
  /** The current training run. */
  trainer: Trainer | undefined;
  /** Aborts it, even before its trainer exists. */
  stop: AbortController | undefined;
  paused = false;
  /** Number of steps that the panel "where the time goes" still records. */
  watched: { left: number; resolve(): void } | undefined;
  /** Aborts the current comparison. */
  comparing: AbortController | undefined;
  /** Settles when the last comparison has ended. */
  compared: Promise<void> = Promise.resolve();
  /** Adapters in the browser's storage. */
  kept: KeptAdapter[] = [];
  readonly chart = lossChart($("chart"));
  readonly lesson = $<HTMLTextAreaElement>("lesson");
  /** Shows what the model will see, if that is open. */
  readonly preview = previewOf(() => {
    const model = this.first.model();
    const data = textsOf(this.lesson.value);
    const adapter = kind();
    return model?.info.training.length && data.length ? { model, data, adapter } : undefined;
  });

  constructor(readonly first: FirstHalf) {}
}

/** Shows an error in this half. */
export const showError = (e: unknown): void => tellError("teach-error", e);
/** Hides the error. */
export const hideError = (): void => void ($("teach-error").hidden = true);

/** The kind of training chosen in the form. */
export const kind = (): "lora" | "full" | undefined =>
  document.querySelector<HTMLInputElement>("#kinds input:checked")?.value as
    | "lora"
    | "full"
    | undefined;

export function enable(t: Teaching): void {
  t.preview();
  const model = t.first.model();
  const can = !!model?.info.training.length;
  const busy = !!t.trainer || !!t.stop;
  const focused = document.activeElement?.id ?? "";
  const enough = t.lesson.value.trim().length >= 200;
  input("teach").disabled = !can || busy || !enough;
  $("teach").hidden = busy;
  $("pause").hidden = $("end").hidden = !busy;
  input("pause").disabled = !t.trainer;
  // a button that goes gives its focus to the one that comes
  if (busy && focused === "teach") $("end").focus();
  if (!busy && (focused === "end" || focused === "pause")) $("teach").focus();
  $("pause").textContent = t.paused ? "Go on" : "Pause";
  input("compare-again").disabled = !model || !!t.comparing;
  t.lesson.readOnly = busy;
  for (const id of ["sample", "lesson-file", "steps", "rate"]) input(id).disabled = busy;
  for (const radio of document.querySelectorAll<HTMLInputElement>("#kinds input")) {
    const offered = !!model?.info.training.some((t) => t.adapter === radio.value);
    radio.disabled = busy || !offered;
    radio.closest("label")!.hidden = !offered;
  }
  $("untrainable").hidden = !model || can;
  const words = t.lesson.value.trim() ? t.lesson.value.trim().split(/\s+/).length : 0;
  input("steps").placeholder = String(usualSteps(t));
  $("lesson-words").textContent = !words
    ? ""
    : enough
      ? `${number(words)} words`
      : `${number(words)} ${words === 1 ? "word" : "words"}: a little more, please`;
}

export function showRate(t: Teaching): void {
  const rate = t.first.model()?.info.training.find((t) => t.adapter === kind())?.learning_rate;
  input("rate").placeholder = rate === undefined ? "" : String(rate);
}

/**
 * Default number of steps: about ten passes over the text; many more would memorize a short one. A
 * token is about three letters here.
 */
export function usualSteps(t: Teaching): number {
  const { batch = 1, sequence = 128 } =
    t.first.model()?.info.training.find((t) => t.adapter === kind()) ?? {};
  return Math.max(
    60,
    Math.min(400, 10 * Math.round((10 * t.lesson.value.length) / 3 / (batch * sequence) / 10)),
  );
}

export function options(t: Teaching): FineTuneOptions {
  const steps = Math.max(
    1,
    Math.min(5000, Math.round(Number(input("steps").value) || usualSteps(t))),
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
