// The list of adapters: those in use, and those in the browser's storage.

import type { TextGenerationPipeline } from "edgewise";
import { compare } from "./comparing.ts";
import { $, megabytes } from "./page.ts";
import { enable, hideError, showError, type Teaching } from "./teaching.ts";

/** Stores an adapter in the browser, or shows why that failed. */
export async function keep(model: TextGenerationPipeline, name: string): Promise<void> {
  try {
    await model.keepAdapter(name);
  } catch (e) {
    $("learn-note").textContent =
      `It is not kept in this browser (${e instanceof Error ? e.message : String(e)}).`;
  }
}

/** Shows the list of adapters. */
export async function showAdapters(t: Teaching): Promise<void> {
  const model = t.first.model();
  t.kept = model?.info.training.length ? await model.keptAdapters().catch(() => []) : [];
  const list = $("adapters");
  const here = model?.adapters ?? [];
  const names = [...new Set([...here.map((a) => a.name), ...t.kept.map((k) => k.name)])];
  $("library").hidden = !names.length;
  const active = here.find((a) => a.active)?.name ?? null;
  const rows = [row(t, null, active === null)];
  for (const name of names) rows.push(row(t, name, name === active));
  list.replaceChildren(...rows);
}

/** A row of the list. */
function row(t: Teaching, name: string | null, active: boolean): HTMLLIElement {
  const model = t.first.model()!;
  const info = model.adapters.find((a) => a.name === name);
  const keptOne = t.kept.find((k) => k.name === name);
  const item = document.createElement("li");
  const radio = Object.assign(document.createElement("input"), {
    type: "radio",
    name: "adapter",
    checked: active,
  });
  radio.setAttribute("aria-label", name ?? "The storyteller as it came");
  radio.addEventListener("change", () => void use(t, name));
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
    field.addEventListener("change", () => void rename(t, name, field.value.trim()));
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
  button("Download", () => download(t, name));
  if (t.first.onnx() !== null)
    button("As ONNX", async () => {
      $("library-note").textContent = `Python merges ${name} into the model's .onnx file`;
      try {
        give(await (await ready(t, name)).mergedOnnx(name, t.first.onnx() ?? undefined));
      } finally {
        $("library-note").textContent = "";
      }
    });
  button("Remove", () => remove(t, name));
  return item;
}

/** The model, after loading the adapter of this name if necessary. */
async function ready(t: Teaching, name: string): Promise<TextGenerationPipeline> {
  const model = t.first.model()!;
  if (!model.adapters.some((a) => a.name === name)) await model.loadAdapter(name);
  return model;
}

/** Activates an adapter; null: the base model. */
export async function use(t: Teaching, name: string | null): Promise<void> {
  t.comparing?.abort();
  try {
    if (name === null) await t.first.model()!.setAdapter(null);
    else await (await ready(t, name)).setAdapter(name);
    hideError();
    if (name !== null && !t.stop) await compare(t);
    else $("compare").hidden = true;
  } catch (e) {
    showError(e);
  }
  await showAdapters(t);
  enable(t);
}

async function rename(t: Teaching, name: string, to: string): Promise<void> {
  try {
    if (!to || to === name) return;
    if (t.kept.some((k) => k.name === to)) throw new Error(`there is an adapter '${to}' already`);
    const model = await ready(t, name);
    await model.renameAdapter(name, to);
    if (t.kept.some((k) => k.name === name)) {
      await model.keepAdapter(to);
      await model.forgetAdapter(name);
    }
    if ($("after-name").textContent === name) $("after-name").textContent = to;
  } catch (e) {
    showError(e);
  } finally {
    await showAdapters(t);
  }
}

async function download(t: Teaching, name: string): Promise<void> {
  for (const file of await (await ready(t, name)).saveAdapter(name)) give(file);
}

function give(file: File): void {
  const link = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(file),
    download: file.name,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function remove(t: Teaching, name: string): Promise<void> {
  const model = t.first.model()!;
  const was = model.adapters.find((a) => a.name === name);
  if (was) await model.removeAdapter(name);
  await model.forgetAdapter(name);
  if (was?.active) $("compare").hidden = true;
  await showAdapters(t);
}
