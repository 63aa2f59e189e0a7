// The demo page. Uses only the public API of Edgewise, by the address of the bundle.
//
// Settings in the address: ?model=ADDRESS-OR-ID, ?source=onnx or larger, ?threads=N,
// ?flavour=simd128, ?device=webgpu, ?seed=N, ?write=0 (do not start writing).

import {
  cacheBytes,
  clearCache,
  env,
  type GenerateOptions,
  info,
  type ModelSource,
  type PipelineOptions,
  pipeline,
  type TextGenerationPipeline,
  TextStreamer,
} from "edgewise";
import { forgetOffline } from "edgewise/offline";
import { forgetModels } from "./models.ts";
import { forgetOtherVersions, keepPage, versioned } from "./offline.ts";
import { $, input, megabytes, number, seconds, tellError } from "./page.ts";
import { secondHalf } from "./teach.ts";
import { whereTheTimeGoes } from "./where.ts";

const query = new URLSearchParams(location.search);

const where = whereTheTimeGoes();

const STORYTELLER = new URL("model/", location.href);
const PACKAGE = new URL("model.edge", location.href);
/** The same with plans for a GPU. */
const GPU_PACKAGE = new URL("model-gpu.edge", location.href);
/**
 * Training options if the page compiles the model: as in the Makefile's package, with an unusually
 * high rate and rank.
 */
const LESSONS: PipelineOptions["training"] = {
  batch_size: 1,
  r: 16,
  lora_alpha: 32,
  optimizer: { type: "AdamW", lr: 4e-3 },
};
/** A model that also answers questions; with options to fine-tune its 4-bit weights by LoRA. */
const LARGER = "HuggingFaceTB/SmolLM2-135M-Instruct";
const LARGER_OPTIONS: PipelineOptions = {
  dtype: "q4",
  capacity: 512,
  training: { r: 8, batch_size: 1, sequence_length: 128 },
};
const BEGINNINGS = [
  "Once upon a time",
  "The little robot",
  "One winter evening",
  "The old fisherman",
];

let model: TextGenerationPipeline | undefined;
let loading: AbortController | undefined;
let writing: AbortController | undefined;
/** Source and options of the current model. */
let origin: [ModelSource, PipelineOptions] | undefined;

// Display

function showProgress(words: string | undefined, part?: number): void {
  $("progress").hidden = words === undefined;
  if (words === undefined) return;
  $("progress-words").textContent = words;
  const bar = $("progress-bar");
  bar.parentElement!.classList.toggle("busy", part === undefined);
  bar.style.width = part === undefined ? "" : `${100 * part}%`;
}

const showError = (e: unknown): void => tellError("error", e);

function showStatus(): void {
  const { flavour, threads, whyNotThreads } = model?.info ?? info;
  const device = model?.info.device;
  const words = `${flavour}, ${threads === 1 ? "1 thread" : `${threads} threads`}`;
  const parts = [device?.gpu ? `GPU: ${device.gpu.adapter}` : `Engine: ${words}`];
  if (device?.why.includes("GPU")) parts.push(device.why);
  if (device && !loading) choose("devices", device.name);
  if (model) {
    const { ms, origin, memory } = model.info;
    const how = {
      package: "compiled ahead",
      cache: "compiled on an earlier visit",
      compiled: `compiled here in ${seconds(ms.compile)}`,
    }[origin];
    parts.push(`ready in ${seconds(ms.load)}`, how, `weights ${megabytes(memory.weights)}`);
    $("figure-memory").textContent = megabytes(memory.engine);
  }
  $("status").textContent = parts.join(" · ");
  $("status").dataset.origin = model?.info.origin ?? "";
  const notice = $("notice");
  notice.hidden = !whyNotThreads;
  notice.textContent = whyNotThreads && `Why one thread: ${whyNotThreads}.`;
}

async function showKept(): Promise<void> {
  const { plans, files } = await cacheBytes().catch(() => ({ plans: 0, files: 0 }));
  $("kept").textContent = plans + files ? `(${megabytes(plans + files)})` : "";
}

/** The value of the radio button that is checked. */
const chosen = (id: string): string | undefined =>
  document.querySelector<HTMLInputElement>(`#${id} input:checked`)?.value;

function choose(id: string, value: string | null): void {
  for (const radio of document.querySelectorAll<HTMLInputElement>(`#${id} input`))
    if (radio.value === value) radio.checked = true;
}

function enable(): void {
  input("generate").disabled = !model || !!loading || !!writing;
  input("stop").disabled = !writing && !loading;
  for (const radio of document.querySelectorAll<HTMLInputElement>("#sources input, #devices input"))
    radio.disabled = !!loading || (radio.value === "webgpu" && !("gpu" in navigator));
}

// Loading

async function load(source: ModelSource, options: PipelineOptions = {}): Promise<void> {
  writing?.abort();
  loading?.abort();
  const mine = (loading = new AbortController());
  $("error").hidden = true;
  showProgress("Loading the model");
  enable();
  try {
    const threads = Number(query.get("threads")) || undefined;
    const flavour = (query.get("flavour") ?? "auto") as NonNullable<PipelineOptions["flavour"]>;
    const loaded = await pipeline("text-generation", source, {
      threads,
      flavour,
      signal: mine.signal,
      device: chosen("devices") as "wasm" | "webgpu",
      ...options,
      progress_callback: (event) => {
        if (mine !== loading) return;
        if (event.status === "progress" && event.total > 300_000)
          showProgress(
            `Loading ${event.file}: ${megabytes(event.loaded)} of ${megabytes(event.total)}`,
            event.loaded / event.total,
          );
        else if (event.status === "compile")
          showProgress(
            event.stage === "pyodide"
              ? "Starting Python"
              : event.stage === "compile"
                ? "Python compiles the model"
                : "Loading the weights",
          );
        else if (event.status === "warning") console.warn(event.message);
      },
    });
    if (mine !== loading) return void loaded.dispose();
    void model?.dispose(); // the previous model remains until the new one is ready
    model = loaded;
    origin = [source, options];
    for (const id of ["speed", "tokens", "first"]) $(`figure-${id}`).textContent = "–";
    void teaching.modelChanged();
    $("chat-row").hidden = !loaded.info.hasChatTemplate;
    void showKept();
  } catch (e) {
    if (mine === loading && (e as Error).name !== "Aborted") showError(e);
  } finally {
    if (mine === loading) {
      loading = undefined;
      showProgress(undefined);
      showStatus();
      enable();
    }
  }
}

async function loadBuiltIn(): Promise<void> {
  const source = chosen("sources");
  $("file-list").replaceChildren();
  if (source === "onnx") await load(STORYTELLER, { dtype: "q4" });
  else if (source === "larger") await load(LARGER, LARGER_OPTIONS);
  else {
    const address = await versioned(chosen("devices") === "webgpu" ? GPU_PACKAGE : PACKAGE);
    // with `training` nothing is requested later
    await load(address, { cache_files: true, training: true });
    void forgetOtherVersions(address).catch(console.warn);
  }
}

// Writing

async function write(): Promise<void> {
  if (!model || writing) return;
  const mine = new AbortController();
  writing = mine;
  enable();
  await teaching.settled(); // a comparison switches adapters
  const prompt = input("prompt").value;
  const chat = model.info.hasChatTemplate && input("chat").checked;
  $("error").hidden = true;
  $("story-prompt").textContent = chat ? `${prompt}\n\n` : prompt;
  $("caret").hidden = false;
  const streamer = storyStreamer(model);
  enable();
  try {
    const writer = model;
    await where.watch(
      "This text",
      (work) => writer.profile(work),
      () =>
        writer(chat ? [{ role: "user", content: prompt }] : prompt, {
          max_new_tokens: Number(input("max_new_tokens").value) || 240,
          ...sampling(),
          streamer,
          signal: mine.signal,
        }),
    );
    const { new_tokens: tokens, decode_ms: ms } = writer.stats!;
    showSpeed(tokens, ms);
    document.body.dataset.written = String(Number(document.body.dataset.written ?? 0) + 1);
  } catch (e) {
    if ((e as Error).name !== "Aborted") showError(e);
  } finally {
    writing = undefined;
    $("caret").hidden = true;
    showStatus();
    enable();
  }
}

/** Shows the number of tokens, and their rate. `ms`: time from the first to the last. */
function showSpeed(tokens: number, ms: number): void {
  $("figure-tokens").textContent = number(tokens);
  if (tokens > 1 && ms > 0) $("figure-speed").textContent = number((1000 * (tokens - 1)) / ms);
}

/** Shows a text while it is written, with its speed. */
function storyStreamer({ tokenizer }: TextGenerationPipeline): TextStreamer {
  const text = document.createTextNode("");
  $("story-text").replaceChildren(text);
  const story = $("story");
  const started = performance.now();
  let tokens = 0;
  let first = 0;
  return new TextStreamer(tokenizer, {
    skip_prompt: true,
    callback_function: (piece) => {
      const follow = story.scrollTop + story.clientHeight > story.scrollHeight - 24;
      text.appendData(piece);
      if (follow) story.scrollTop = story.scrollHeight;
    },
    token_callback_function: (ids) => {
      tokens += ids.length;
      if (!first) {
        first = performance.now();
        $("figure-first").textContent = seconds(first - started);
        document.body.dataset.firstToken ||= String(Math.round(first));
      }
      if (tokens % 8 === 0) showSpeed(tokens, performance.now() - first);
    },
  });
}

function sampling(): GenerateOptions {
  const temperature = Number(input("temperature").value);
  const seed = input("seed").value;
  return {
    do_sample: temperature > 0,
    ...(temperature > 0 ? { temperature, top_p: Number(input("top_p").value) } : {}),
    ...(seed === "" ? {} : { seed: Number(seed) }),
  };
}

// Learning

const teaching = secondHalf({
  model: () => model,
  prompt: () => input("prompt").value || BEGINNINGS[0]!,
  offerBeginning(words) {
    if (![...$("starts").children].some((b) => b.textContent === words)) offer(words);
    if (BEGINNINGS.includes(this.prompt())) input("prompt").value = words;
  },
  sampling,
  showMemory: showStatus,
  watch: where.watch,
  onnx: () =>
    model?.info.origin !== "package"
      ? undefined
      : origin?.[0] instanceof URL &&
          [PACKAGE.pathname, GPU_PACKAGE.pathname].includes(origin[0].pathname)
        ? new URL("model/onnx/model_q4.onnx", location.href).href
        : null,
  async loadTrainable() {
    if (!origin) return;
    const storyteller = origin[0] instanceof URL && origin[0].href === STORYTELLER.href;
    await load(origin[0], {
      ...origin[1],
      training: storyteller ? LESSONS : { adapter: ["lora", "full"], batch_size: 1 },
    });
  },
});

// The page's elements

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  void write();
});
$("prompt").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void write();
});
$("stop").addEventListener("click", () => {
  writing?.abort();
  if (loading) {
    loading.abort();
    loading = undefined;
    showProgress(undefined);
    showStatus();
    enable();
  }
});
for (const id of ["error", "teach-error"])
  $(`${id}-close`).addEventListener("click", () => ($(id).hidden = true));
$("sources").addEventListener("change", () => void loadBuiltIn().then(begin));
$("devices").addEventListener("change", () => void loadAgain().then(begin));
if (!("gpu" in navigator)) $("device-words").textContent = "this browser has no WebGPU";

/** Loads the same model for the device that was chosen. */
async function loadAgain(): Promise<void> {
  const [source, options] = origin ?? [];
  const shipped = [PACKAGE, GPU_PACKAGE].some(({ pathname }) =>
    source instanceof URL ? source.pathname === pathname : false,
  );
  await (source && !shipped ? load(source, options) : loadBuiltIn());
  $("devices").querySelector<HTMLElement>("input:checked")?.focus(); // it was disabled
}
$("clear").addEventListener("click", () => void forget().then(showKept));

async function forget(): Promise<void> {
  await Promise.all([clearCache(), forgetOffline(), forgetModels()]);
  $("offline").hidden = true;
}

/** Adds a button that starts a text with these words. */
function offer(beginning: string): void {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = beginning;
  button.addEventListener("click", () => {
    input("prompt").value = beginning;
    void write();
  });
  $("starts").append(button);
}
BEGINNINGS.forEach(offer);

for (const id of ["temperature", "top_p", "max_new_tokens", "seed"]) {
  const show = () => {
    const output = document.getElementById(`${id}-value`);
    if (output) output.textContent = number(Number(input(id).value), 2);
    const [t, p, seed] = [
      Number(input("temperature").value),
      Number(input("top_p").value),
      input("seed").value,
    ];
    $("settings-words").textContent =
      t === 0
        ? "(always the likeliest token)"
        : `(temperature ${t}, top p ${p}${seed === "" ? "" : `, seed ${seed}`})`;
  };
  input(id).addEventListener("input", show);
  if (query.has(id)) input(id).value = query.get(id)!;
  show();
}

/** Handles files that were dropped or chosen: training texts, an adapter, or a model. */
async function given(files: File[]): Promise<void> {
  if (!files.length) return;
  const ends = (...endings: string[]) =>
    files.some((f) => endings.some((e) => f.name.toLowerCase().endsWith(e)));
  if (!ends(".onnx", ".edge")) {
    if (ends(".safetensors")) return teaching.loadAdapter(files);
    if (ends(".txt", ".md"))
      return teaching.takeText(files.filter((f) => /\.(txt|md)$/i.test(f.name)));
  }
  const list = files.slice(0, 12).map((f) =>
    Object.assign(document.createElement("li"), {
      textContent: `${f.name} · ${megabytes(f.size)}`,
    }),
  );
  $("file-list").replaceChildren(...list);
  await load(files);
  if (model && $("error").hidden) await begin();
}

for (const id of ["files", "folder"])
  input(id).addEventListener("change", () => {
    void given(Array.from(input(id).files ?? []));
    input(id).value = "";
  });

/** The files of a drop, including those in folders. */
async function dropped(transfer: DataTransfer): Promise<File[]> {
  const entries = Array.from(transfer.items, (item) => item.webkitGetAsEntry?.() ?? null);
  const plain = Array.from(transfer.files);
  if (!entries.some((e) => e?.isDirectory)) return plain;
  const files: File[] = [];
  const visit = async (entry: FileSystemEntry): Promise<void> => {
    if (entry.isFile)
      files.push(
        await new Promise<File>((resolve, reject) =>
          (entry as FileSystemFileEntry).file(resolve, reject),
        ),
      );
    else {
      const reader = (entry as FileSystemDirectoryEntry).createReader();
      for (;;) {
        const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
          reader.readEntries(resolve, reject),
        );
        if (!some.length || files.length > 500) break;
        for (const one of some) await visit(one);
      }
    }
  };
  for (const entry of entries) if (entry) await visit(entry);
  return files;
}

let depth = 0;
addEventListener("dragenter", () => $("drop").classList.toggle("over", ++depth > 0));
addEventListener("dragleave", () => $("drop").classList.toggle("over", --depth > 0));
addEventListener("dragover", (e) => e.preventDefault());
addEventListener("drop", (e: DragEvent) => {
  e.preventDefault();
  depth = 0;
  $("drop").classList.remove("over");
  if (e.dataTransfer) dropped(e.dataTransfer).then(given, showError);
});

async function begin(): Promise<void> {
  if (query.get("write") !== "0") await write();
}

// Start: load the model and write.
if (query.has("host")) env.remoteHost = query.get("host")!;
choose("sources", query.get("source"));
choose("devices", query.get("device"));
showStatus();
void showKept();
const asked = query.get("model");
await (asked ? load(asked) : loadBuiltIn());
await begin();
await keepPage().then(
  (kept) => ($("offline").hidden = !kept),
  (e: unknown) => console.warn(e),
);
