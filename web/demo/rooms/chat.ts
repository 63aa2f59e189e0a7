// The room "Chat": a conversation that can be edited, with documents, a tool and a form. Uses only
// the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS-OR-ID, ?embed=ADDRESS-OR-ID, ?host=ADDRESS of the hub,
// ?threads=N, ?seed=N, ?most=N tokens of an answer.

import {
  env,
  type FeatureExtractionPipeline,
  type GenerateOptions,
  InputError,
  InterruptableStoppingCriteria,
  type Message,
  type ModelSource,
  type PipelineOptions,
  pipeline,
  type TextGenerationPipeline,
  type TextIndex,
  type ToolCall,
} from "edgewise";
import { $, input, megabytes, number, seconds } from "../page.ts";
import { madeModels } from "./real.ts";
import {
  chosen,
  count,
  hideError,
  needed,
  optionsOf,
  pressed,
  query,
  showError,
  showProgress,
} from "./room.ts";
import { Thumbs, TRAINING } from "./thumbs.ts";

/** A message as the model reads it, and as the page shows it. */
interface Turn {
  message: Message;
  /** What the user wrote, without the passages of documents. */
  words: string;
  /** Names of the documents that it was given. */
  sources: string[];
  /** Whether it is for the page alone: the model does not read it again. */
  hidden?: boolean;
}

const SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct";
const MINILM = "Xenova/all-MiniLM-L6-v2";
const MAX_ROUNDS = 3; // of calls of the tool in an answer
const WORDS = 80; // of a passage
const PASSAGES = 3; // that an answer is made from
const ANSWER: GenerateOptions = {
  max_new_tokens: Number(query.get("most")) || 300,
  do_sample: true,
  temperature: 0.2,
  top_p: 0.9,
  repetition_penalty: 1.1,
  seed: query.has("seed") ? Number(query.get("seed")) : undefined,
};
const TOOL = {
  description: "Draws a circle on the page.",
  parameters: {
    type: "object",
    properties: {
      color: { enum: ["red", "orange", "gold", "green", "blue", "purple", "black"] },
      size: { enum: ["small", "large"] },
    },
    required: ["color", "size"],
    additionalProperties: false,
  },
} as const;
/** For models whose template has no tools: the arguments alone, as JSON. */
const ARGUMENTS: GenerateOptions = {
  max_new_tokens: 60,
  do_sample: false,
  return_full_text: false,
  response_format: { type: "json_schema", json_schema: { schema: TOOL.parameters } },
};
const FORM = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 40 },
    guests: { type: "integer", minimum: 1, maximum: 20 },
    day: {
      enum: ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    },
    outside: { type: "boolean" },
  },
  required: ["name", "guests", "day", "outside"],
  additionalProperties: false,
};

if (query.has("host")) env.remoteHost = new URL(query.get("host")!, location.href).href;
const HUB = env.remoteHost;
const made = Promise.all(["chat", "search"].map(madeModels));

/** An id, after the choice of its hub: that of the page for models that were made with it. */
async function ofHub(id: string): Promise<string> {
  const known = (await made).flat();
  const here = !query.has("host") && known.some(({ file }) => file.startsWith(`hub/${id}/`));
  env.remoteHost = here ? new URL("real/hub/", location.href).href : HUB;
  return id;
}

let write: TextGenerationPipeline | undefined;
let embed: FeatureExtractionPipeline | undefined;
let index: TextIndex | undefined;
let turns: Turn[] = [];
/** The answer in progress. */
let stopping: InterruptableStoppingCriteria | undefined;
/** What the model was loaded from. */
let origin: ModelSource | undefined;
const thumbs = new Thumbs(() => ready());

// The model

async function load(model: ModelSource): Promise<void> {
  hideError();
  input("load").disabled = true;
  showProgress("Loading the model");
  try {
    const loaded = await opened(model);
    if (!loaded.info.hasChatTemplate) {
      await loaded.dispose();
      throw new InputError(
        "this model has no chat template",
        "",
        "Choose one that was trained to chat, such as SmolLM2-135M-Instruct.",
      );
    }
    await write?.dispose();
    write = loaded;
    origin = model;
    thumbs.clear();
    const { flavour, threads, ms } = loaded.info;
    $("status").textContent =
      `Engine: ${flavour}, ${threads === 1 ? "1 thread" : `${threads} threads`} · ready in ` +
      seconds(ms.load);
    $("model-words").textContent =
      `In use: ${typeof model === "string" ? model : "a model of yours"}.`;
    $("begin").hidden = true;
    restart();
  } finally {
    input("load").disabled = false;
    showProgress(undefined);
  }
}

const opened = (model: ModelSource, more: PipelineOptions = {}) =>
  pipeline("text-generation", model, {
    ...optionsOf(),
    ...(typeof model === "string" ? { dtype: "q4" as const } : {}),
    ...more,
  });

/** The model, compiled again if it cannot learn yet. */
async function trainable(): Promise<TextGenerationPipeline> {
  const model = needed(write);
  if (model.info.training.some(({ adapter }) => adapter === "lora")) return model;
  showProgress("Compiling the model for learning");
  try {
    write = await opened(origin!, { training: TRAINING });
  } finally {
    showProgress(undefined);
  }
  await model.dispose();
  return write;
}

/** Learns from the thumbs. */
async function learn(): Promise<void> {
  hideError();
  const stop = new InterruptableStoppingCriteria();
  stopping = stop;
  ready();
  try {
    await thumbs.learn(await trainable(), stop);
  } finally {
    stopping = undefined;
    ready();
  }
}

// The conversation

/** Shows all messages, and which buttons can be pressed. */
function show(): void {
  $("messages").replaceChildren(...turns.map(item));
  ready();
}

function ready(): void {
  const busy = stopping !== undefined;
  const had = document.activeElement;
  for (const id of ["send", "fill"]) input(id).disabled = busy || !write;
  input("learn").disabled = busy || !write || !thumbs.enough;
  input("learned").disabled = busy;
  input("stop").disabled = !busy;
  input("clear").disabled = busy || !turns.length;
  input("again").disabled = busy || turns.at(-1)?.message.role !== "assistant";
  for (const button of $("messages").querySelectorAll("button")) button.disabled = busy;
  keepFocus(had);
}

/** The button that began the work, if it had the focus. */
let pressedLast: HTMLElement | undefined;

/** A button that cannot be pressed any more loses the focus: it goes to Stop, and back. */
function keepFocus(had: Element | null): void {
  if (!(had instanceof HTMLButtonElement && had.disabled)) return;
  if (stopping) {
    pressedLast = had;
    $("stop").focus();
    return;
  }
  const back =
    pressedLast?.isConnected && !input(pressedLast.id).disabled ? pressedLast : undefined;
  (back ?? $("message")).focus();
  pressedLast = undefined;
}

function item(turn: Turn, i: number): HTMLLIElement {
  const { message, words, sources } = turn;
  const li = document.createElement("li");
  li.className = message.role;
  const text = document.createElement("p");
  const who = document.createElement("span");
  who.className = "visually-hidden";
  who.textContent = { user: "You: ", assistant: "Model: " }[message.role] ?? `${message.role}: `;
  const said = document.createElement("span");
  said.className = "said";
  said.textContent = words;
  text.append(who, said);
  li.append(text);
  if (sources.length) {
    const from = document.createElement("p");
    from.className = "sources";
    from.textContent = `From ${sources.map((name, n) => `[${n + 1}] ${name}`).join(", ")}`;
    li.append(from);
  }
  if (message.role === "assistant" && message.content && !turn.hidden) {
    const before = turns.slice(0, i).filter(({ hidden }) => !hidden);
    const prompt = before.map((one) => one.message);
    li.append(thumbs.buttons(turn, prompt, message));
  }
  if (message.role === "user") {
    const edit = document.createElement("button");
    edit.type = "button";
    edit.className = "plain";
    edit.textContent = "Edit";
    edit.setAttribute("aria-label", `Edit: ${words.slice(0, 40)}`);
    pressed(edit, () => {
      turns = turns.slice(0, i);
      show();
      $<HTMLTextAreaElement>("message").value = words;
      $("message").focus();
    });
    li.append(edit);
  }
  return li;
}

async function send(): Promise<void> {
  const field = $<HTMLTextAreaElement>("message");
  const words = field.value.trim();
  if (!words || stopping) return;
  needed(write);
  hideError();
  const turn: Turn = { message: { role: "user", content: words }, words, sources: [] };
  await cite(turn);
  turns.push(turn);
  field.value = "";
  show();
  try {
    await answer();
  } catch (e) {
    // a message that cannot be answered is not part of the conversation, and can be changed
    if (turns.at(-1) === turn) turns.pop();
    field.value ||= words;
    show();
    throw e;
  }
}

/** The messages that the model reads, and whether it leaves turns out; the page says so. */
async function fitting({ tokenizer, info }: TextGenerationPipeline, asked: Message[]) {
  const room = info.capacity - Math.min(ANSWER.max_new_tokens!, info.capacity >> 1);
  const fits = async (messages: Message[]) => {
    const how = { add_generation_prompt: true, tokenize: true as const };
    return (await tokenizer.apply_chat_template(messages, how)).length <= room;
  };
  const truncation = !(await fits(asked));
  $("left-out").hidden = !truncation || asked.length < 2;
  // a message that is long by itself is not cut
  if (truncation && !(await fits(asked.slice(-1))))
    return { messages: asked.slice(-1), truncation: false };
  return { messages: asked, truncation };
}

/** Gives a question the passages of the documents that are nearest to it. */
async function cite(turn: Turn): Promise<void> {
  if (!index?.length) return;
  const found = await index.search(turn.words, { top_k: PASSAGES });
  turn.sources = found.map(({ text }) => text.slice(0, text.indexOf(": ")));
  const passages = found.map(({ text }, i) => `[${i + 1}] ${text}`).join("\n\n");
  turn.message.content = `${passages}\n\nAnswer from these passages: ${turn.words}`;
}

/** Answers the last message. */
async function answer(): Promise<void> {
  const model = needed(write);
  const stop = new InterruptableStoppingCriteria();
  stopping = stop;
  ready();
  const asked = turns.filter(({ hidden }) => !hidden).map(({ message }) => message);
  try {
    const { messages, truncation } = await fitting(model, asked);
    const options = { ...ANSWER, truncation, stopping_criteria: stop };
    if (input("tool").checked) await withTool(model, messages, options);
    else {
      const streamer = begun().add;
      const [found] = await model(messages, { ...options, streamer });
      said((found!.generated_text as Message[]).at(-1)!);
    }
    figures(model);
    count("answered");
  } catch (e) {
    // an answer that failed is not part of the conversation
    while (turns.length && turns.at(-1)!.message.role !== "user") turns.pop();
    $("left-out").hidden = true;
    throw e;
  } finally {
    stopping = undefined;
    show();
    toEnd();
  }
}

const toEnd = () => void ($("messages").scrollTop = $("messages").scrollHeight);

/** Adds a turn to the conversation. */
function told(message: Message, words: string, hidden = false): Turn {
  const turn = { message, words, sources: [], hidden };
  turns.push(turn);
  show();
  toEnd();
  return turn;
}

/** Begins an answer, which may grow. */
function begun(): { turn: Turn; add(text: string): void } {
  const turn = told({ role: "assistant", content: "" }, "");
  const said = $("messages").lastElementChild!.querySelector(".said")!;
  const add = (text: string) => {
    said.append(text);
    toEnd();
  };
  return { turn, add };
}

/** An answer, or what a tool said. */
function turnOf(message: Message): Turn {
  const calls = (message.tool_calls ?? []) as ToolCall[];
  const words = message.content || calls.map(({ function: f }) => inWords(f)).join(", ");
  return { message, words, sources: [] };
}

/** The answer that was begun is whole. */
const said = (message: Message) => void Object.assign(turns.at(-1)!, turnOf(message));

const inWords = ({ name, arguments: given }: ToolCall["function"]) =>
  `${name}(${JSON.stringify(given)})`;

/** Answers, and draws where the model asks for it. */
async function withTool(
  model: TextGenerationPipeline,
  asked: Message[],
  options: GenerateOptions,
): Promise<void> {
  const before = turns.length;
  let open: ReturnType<typeof begun> | undefined = begun();
  try {
    const { generated_text, ended } = await model.run(asked, {
      ...options,
      max_rounds: MAX_ROUNDS,
      tools: {
        draw_circle: {
          ...TOOL,
          execute: (given) => {
            const content = draw(given);
            told({ role: "tool", content }, content);
            return content;
          },
        },
      },
      on_delta: ({ content }) => {
        if (content) (open ??= begun()).add(content);
      },
      on_message: (message) => {
        open ??= begun();
        said(message);
        open = undefined;
        show();
      },
    });
    turns = [...turns.slice(0, before), ...generated_text.slice(asked.length).map(turnOf)];
    if (ended === "rounds")
      told({ role: "assistant", content: "" }, `It called the tool ${MAX_ROUNDS} times.`, true);
  } catch (e) {
    if (!(e instanceof InputError) || e.where !== "tools") throw e;
    turns = turns.slice(0, before);
    await argumentsAlone(model, asked, options);
  }
}

function figures({ stats, info }: TextGenerationPipeline): void {
  if (!stats) return;
  const { prompt_tokens, cached_tokens, new_tokens, prefill_ms, decode_ms } = stats;
  $("figure-speed").textContent =
    new_tokens > 1 ? number((1000 * (new_tokens - 1)) / Math.max(decode_ms, 0.01)) : "–";
  $("figure-first").textContent = seconds(prefill_ms);
  $("figure-kept").textContent = `${number(cached_tokens)} of ${number(prompt_tokens)}`;
  $("figure-memory").textContent = megabytes(info.memory.engine);
}

function restart(): void {
  turns = [];
  $("left-out").hidden = true;
  show();
  $("message").focus();
}

// The tool

/** A call of the tool by a model whose template has none: its arguments follow the schema. */
async function argumentsAlone(
  model: TextGenerationPipeline,
  asked: Message[],
  { stopping_criteria }: GenerateOptions,
): Promise<void> {
  const content = `${asked.at(-1)!.content} Answer with color and size as JSON.`;
  const options = { ...ARGUMENTS, stopping_criteria };
  const [found] = await model([{ role: "user", content }], options);
  const given = (found!.parsed ?? {}) as Record<string, unknown>;
  if (!given.size) return; // it was stopped
  // such templates have no place for calls and results
  const call = inWords({ name: "draw_circle", arguments: given });
  told({ role: "assistant", content: call }, call, true);
  const words = draw(given);
  told({ role: "tool", content: words }, words, true);
  told({ role: "assistant", content: words }, words);
}

/** Draws a circle and says so. The arguments are checked: a model may give any values. */
function draw({ color, size }: Record<string, unknown>): string {
  const { properties } = TOOL.parameters;
  if (!(properties.color.enum as readonly unknown[]).includes(color))
    return `There is no such color. There are ${properties.color.enum.join(", ")}.`;
  const canvas = $<HTMLCanvasElement>("canvas");
  const context = canvas.getContext("2d")!;
  const radius = size === "large" ? 70 : 25;
  const within = (length: number) => radius + Math.random() * (length - 2 * radius);
  context.fillStyle = String(color);
  context.beginPath();
  context.arc(within(canvas.width), within(canvas.height), radius, 0, 2 * Math.PI);
  context.fill();
  const words = `A ${size === "large" ? "large" : "small"} ${color} circle is drawn.`;
  canvas.setAttribute("aria-label", words);
  count("drawn");
  return words;
}

// The form

async function fill(): Promise<void> {
  const model = needed(write);
  const stop = new InterruptableStoppingCriteria();
  stopping = stop;
  ready();
  try {
    const notes = $<HTMLTextAreaElement>("notes").value;
    const content = `${notes}\n\nWrite this as JSON: name, guests, day, outside.`;
    await model([{ role: "user", content }], {
      max_new_tokens: 120,
      do_sample: false,
      return_full_text: false,
      response_format: { type: "json_schema", json_schema: { schema: FORM } },
      on_parsed: (value) => set(value as Record<string, unknown>),
      stopping_criteria: stop,
    });
    figures(model);
    count("filled");
  } finally {
    stopping = undefined;
    ready();
  }
}

function set({ name, guests, day, outside }: Record<string, unknown>): void {
  input("field-name").value = String(name ?? "");
  input("field-guests").value = String(guests ?? "");
  input("field-day").value = String(day ?? "");
  input("field-outside").checked = outside === true;
}

// Documents

async function add(files: readonly File[]): Promise<void> {
  hideError();
  try {
    index ??= await newIndex();
    for (const file of files) {
      const words = (await file.text()).split(/\s+/).filter(Boolean);
      for (let at = 0; at < words.length; at += WORDS / 2) {
        showProgress(`Reading ${file.name}`, at / words.length);
        await index.add(`${file.name}: ${words.slice(at, at + WORDS).join(" ")}`);
        if (at + WORDS >= words.length) break;
      }
    }
  } finally {
    showProgress(undefined);
    documentsInWords();
  }
}

async function newIndex(): Promise<TextIndex> {
  showProgress("Loading the model that finds passages");
  embed ??= await pipeline("embeddings", await ofHub(query.get("embed") ?? MINILM), optionsOf());
  // MiniLM's files on the hub do not name its pooling
  const pooling = query.has("embed") ? {} : { pooling: "mean" as const };
  return embed.index([], { precision: "int8", ...pooling });
}

function documentsInWords(): void {
  const passages = index?.length ?? 0;
  $("forget").hidden = !passages;
  $("documents-words").textContent = passages
    ? `It answers from ${number(passages)} passages.`
    : "";
}

pressed("load", async () => load(await ofHub(SMOLLM2)));
chosen("files", load);
chosen("documents", add);
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const files = Array.from(event.dataTransfer?.files ?? []);
  if (files.length) add(files).catch(showError);
});
pressed("forget", async () => {
  await index?.dispose();
  index = undefined;
  documentsInWords();
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send().catch(showError);
});
$("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send().catch(showError);
});
pressed("stop", () => stopping?.interrupt());
pressed("again", async () => {
  while (turns.length && turns.at(-1)!.message.role !== "user") turns.pop();
  await answer();
});
pressed("clear", restart);
pressed("fill", fill);
pressed("learn", learn);
$("learned").addEventListener("change", () => {
  thumbs.use(needed(write), input("learned").checked).catch(showError);
});
ready();
if (query.has("model")) load(query.get("model")!).catch(showError);
else $("status").textContent = "Ready to load a model";
