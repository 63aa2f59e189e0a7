// The page "GPU report": tests and measures a visitor's GPU. Uses only the public API of Edgewise.
//
// Settings in the address: ?threads=N, ?seconds=N.

import { Aborted, type GpuReport, gpuReport } from "edgewise";
import { $, input, swap } from "../page.ts";
import { download, hideError, query, showError, showProgress } from "./room.ts";

let measuring: AbortController | undefined;
let report: GpuReport | undefined;

const ms = (x: number): string => `${Number(x.toPrecision(3))} ms`;
const text = (): string => JSON.stringify(report, null, 2);

/** Numbers of the address; others are not known. */
function setting(name: string): number | undefined {
  const value = Number(query.get(name) ?? Number.NaN);
  return Number.isFinite(value) ? value : undefined;
}

async function measure(): Promise<void> {
  const own = new AbortController();
  measuring = own;
  hideError();
  swap("stop", "measure");
  $("verdict").textContent = "Measuring";
  try {
    const threads = setting("threads");
    const seconds = setting("seconds");
    report = await gpuReport({
      ...(threads && { threads }),
      ...(seconds && { seconds }),
      signal: own.signal,
      on_progress: ({ done, total, name }) => showProgress(name, done / total),
    });
    show(report);
  } catch (e) {
    $("verdict").textContent = e instanceof Aborted ? "Stopped." : "There is no report.";
    if (!(e instanceof Aborted)) showError(e);
  } finally {
    showProgress(undefined);
    swap("measure", "stop");
  }
}

function show({ adapter, test, cases, variants, left, ...rest }: GpuReport): void {
  const computed = [...test, ...cases, ...variants.filter(({ refused }) => !refused)];
  const wrong = computed.filter(({ right }) => !right).map(({ name }) => name);
  const others = Object.keys(left).length;
  $("verdict").textContent = [
    `${adapter.name}${adapter.software ? ", in software" : ""}:`,
    wrong.length ? `computes wrongly: ${wrong.join("; ")}.` : "all results are right.",
    others ? `${others} measurements are missing.` : "",
  ].join(" ");
  $("figure-dispatch").textContent = `${Number(rest.dispatch_us.toPrecision(3))} µs`;
  $("figure-read").textContent = ms(rest.read_ms);
  $("figure-drift").textContent = `${rest.drift.toFixed(2)} × the time`;
  $("figure-threads").textContent = String(rest.engine.threads);
  $("rows").replaceChildren(
    ...cases.map((one) => {
      const { name, gpu_ms, wasm_ms, gops, gbs } = one;
      const speed = gops ? `${gops.toFixed(1)} G operations/s` : `${gbs.toFixed(1)} GB/s`;
      return row(name, ms(gpu_ms), ms(wasm_ms), (wasm_ms / gpu_ms).toFixed(2), speed, result(one));
    }),
    ...variants.map((one) =>
      row(one.name, one.ms ? ms(one.ms) : "", "", "", one.chosen ? "used" : "", result(one)),
    ),
  );
  $("cases").hidden = false;
  $<HTMLTextAreaElement>("json").value = text();
  $("whole").hidden = false;
  for (const name of ["copy", "save"]) input(name).disabled = false;
}

function result(one: GpuReport["cases" | "variants"][number]): string {
  const { right, difference } = one;
  if ("refused" in one && one.refused) return "refused";
  return right ? "right" : `wrong by ${difference?.toPrecision(2) ?? "no number"}`;
}

function row(name: string, ...values: string[]): HTMLTableRowElement {
  const made = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name;
  made.append(head, ...values.map(cell));
  return made;
}

function cell(words: string): HTMLTableCellElement {
  const made = document.createElement("td");
  made.textContent = words;
  return made;
}

async function copy(): Promise<void> {
  try {
    await navigator.clipboard.writeText(text());
    $("verdict").textContent = "Copied: paste it into an issue.";
  } catch {
    // without the permission it can be chosen by hand
    $("whole").setAttribute("open", "");
    $<HTMLTextAreaElement>("json").select();
    $("verdict").textContent = "This browser does not copy: the report below is selected.";
  }
}

$("measure").onclick = () => void measure();
$("stop").onclick = () => measuring?.abort();
$("copy").onclick = () => void copy();
$("save").onclick = () =>
  download(new Blob([text()], { type: "application/json" }), "gpu-report.json");
