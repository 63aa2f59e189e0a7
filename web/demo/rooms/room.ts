// What the rooms share: loading of their model, lists of names, buttons, downloads.

import { InputError, type ModelSource, type PipelineBase, type PipelineOptions } from "edgewise";
import { atHand } from "../models.ts";
import { $, input, megabytes, seconds, tellError } from "../page.ts";

export const query = new URLSearchParams(location.search);
export const showError = (e: unknown): void => tellError("error", e);
export const hideError = (): void => void ($("error").hidden = true);

/** Shows how far some work is. `part`: 0 to 1; undefined: not known. */
export function showProgress(words: string | undefined, part?: number): void {
  $("progress").hidden = words === undefined;
  if (words === undefined) return;
  $("progress-words").textContent = words;
  const bar = $("progress-bar");
  bar.parentElement!.classList.toggle("busy", part === undefined);
  bar.style.width = part === undefined ? "" : `${100 * part}%`;
}

/** How a room opens its model. */
export interface Opening<P> {
  /** The file that comes with the page. */
  sample: string;
  /**
   * Loads a model. What it throws is shown, and the model before stays in use.
   * @param claim is called where the model would come into use; if it gives false, a model that was
   *   chosen later is in use already
   * @returns the model; undefined if it is not in use
   */
  open(
    model: ModelSource,
    options: PipelineOptions,
    isSample: boolean,
    claim: () => boolean,
  ): Promise<P | undefined>;
}

let loads = 0;
/** Which of the loads the model in use is of. */
let inUse = 0;
// the page of the GPU report has no model
const ABOUT = document.getElementById("model-words")?.textContent ?? "";

/**
 * The model of a room: that of `?model=`, the sample, or files that the user chooses (`#files`).
 * @returns the function that loads a model; undefined: the sample
 */
export function modelOf<P extends Pick<PipelineBase, "info">>({
  sample,
  open,
}: Opening<P>): (model?: ModelSource) => Promise<void> {
  const load = async (model?: ModelSource): Promise<void> => {
    const own = ++loads;
    const isSample = model === undefined;
    hideError();
    showProgress("Loading the model");
    try {
      const given = model ?? new URL(sample, location.href);
      const source = given instanceof URL ? await atHand(given) : given;
      const claim = () => {
        if (own > inUse) inUse = own;
        return inUse === own;
      };
      const loaded = await open(source, optionsOf(own), isSample, claim);
      if (!loaded || inUse !== own) return;
      const { flavour, threads, ms, memory } = loaded.info;
      $("status").textContent =
        `Engine: ${flavour}, ${threads === 1 ? "1 thread" : `${threads} threads`} · ready in ` +
        `${seconds(ms.load)} · memory ${megabytes(memory.engine)}`;
      $("sample-again").hidden = isSample;
      $("model-words").textContent = isSample ? ABOUT : `In use: ${nameOf(model)}.`;
    } catch (e) {
      if (own === loads) showError(e);
    } finally {
      if (own === loads) showProgress(undefined);
    }
  };
  for (const id of ["files", "folder"])
    if (document.getElementById(id)) chosen(id, (files) => load(files));
  $("sample-again").addEventListener("click", () => void load());
  return load;
}

/** Disposes of a model that does not come into use. */
export function unused(model: Pick<PipelineBase, "dispose">): undefined {
  void model.dispose();
  return undefined;
}

/** @throws InputError while no model is loaded */
export function needed<P>(model: P | undefined): P {
  if (model) return model;
  throw new InputError("no model is loaded yet", "", "Wait for it, or choose one of yours below.");
}

/** What a user's model is called. */
function nameOf(model: ModelSource): string {
  if (typeof model === "string") return model;
  if (model instanceof URL) return model.pathname.split("/").at(-1)!;
  if (!Array.isArray(model)) return "a model of yours";
  const [first] = model as File[];
  return first?.webkitRelativePath.split("/")[0] || first?.name || "a model of yours";
}

/** Options of a model. own: which load it is of; later ones are shown in its place. */
export function optionsOf(own = ++loads): PipelineOptions {
  return {
    threads: Number(query.get("threads")) || undefined,
    cache_files: true,
    progress_callback: (event) => {
      if (own !== loads) return;
      if (event.status === "progress" && event.total > 300_000)
        showProgress(
          `Loading ${event.file}: ${megabytes(event.loaded)} of ${megabytes(event.total)}`,
          event.loaded / event.total,
        );
      else if (event.status === "compile")
        showProgress(
          event.stage === "pyodide" ? "Starting Python" : "Python compiles the model, once",
        );
    },
  };
}

/** Acts when files are chosen. What `act` throws is shown. */
export function chosen(from: string | HTMLInputElement, act: (files: File[]) => unknown): void {
  const field = typeof from === "string" ? input(from) : from;
  field.addEventListener("change", () => {
    const files = Array.from(field.files ?? []);
    field.value = "";
    if (files.length) Promise.resolve(files).then(act).catch(showError);
  });
}

/** Acts when a button is pressed. What `act` throws is shown. */
export function pressed(button: HTMLElement | string, act: () => unknown): void {
  const element = typeof button === "string" ? $(button) : button;
  element.addEventListener("click", () => {
    Promise.resolve().then(act).catch(showError);
  });
}

/** Acts when a button is pressed, and not again before that is done. The button keeps the focus. */
export function pressedOnce(id: string, act: () => unknown): void {
  let working = false;
  pressed(id, async () => {
    if (working) return;
    working = true;
    $(id).setAttribute("aria-disabled", "true");
    try {
      await act();
    } finally {
      working = false;
      $(id).removeAttribute("aria-disabled");
    }
  });
}

/** Whether a user has changed a name that the page has given (`data-given`). */
export function isNamed({ value, dataset }: HTMLInputElement): boolean {
  return Boolean(value.trim()) && value !== dataset.given;
}

/** Acts on keys of a page, except where text is written. */
export function onKey(act: (key: string) => unknown): void {
  document.addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey, repeat } = event;
    const writes = target instanceof Element && target.matches("input, textarea, select");
    if (writes || ctrlKey || metaKey || altKey || repeat) return;
    Promise.resolve(key).then(act).catch(showError);
  });
}

/** Gives the user a file. */
export function download(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A bar for each score, in a table's body. Rows that exist are kept. */
export function bars(
  body: HTMLElement,
  rows: readonly { label: string; part: number; text: string; high?: boolean }[],
): void {
  while (body.childElementCount > rows.length) body.lastElementChild!.remove();
  rows.forEach(({ label, part, text, high }, i) => {
    let row = body.children[i];
    if (!row) {
      row = document.createElement("tr");
      row.innerHTML = '<th scope="row"></th><td><meter max="1"></meter></td><td></td>';
      body.append(row);
    }
    row.classList.toggle("high", high ?? false);
    row.querySelector("th")!.textContent = label;
    row.querySelector("meter")!.value = Math.max(0, Math.min(1, part));
    row.lastElementChild!.textContent = text;
  });
}

/** For tests and those who watch: counts what a room has done. */
export function count(name: string): void {
  document.body.dataset[name] = String(Number(document.body.dataset[name] ?? 0) + 1);
}
