// The room "Talk": somebody speaks, and is answered aloud. Uses only the public API of Edgewise.
//
// Settings in the address: ?threads=N.

import {
  Aborted,
  env,
  type ModelSource,
  pipeline,
  type SpeechRecognitionPipeline,
  type TextGenerationPipeline,
  type TextToSpeechPipeline,
  type VoiceActivityPipeline,
} from "edgewise";
import { atHand } from "../models.ts";
import { $, input, megabytes, seconds, swap } from "../page.ts";
import { Conversation, type Parts, type State, type Times } from "./conversation.ts";
import { Ears } from "./ears.ts";
import { NO_LEXICON, phonemizerOf, readLexicon } from "./phonemes.ts";
import { joined, Player } from "./player.ts";
import { addressOf, keepMade, madeModels } from "./real.ts";
import {
  count,
  hideError,
  needed,
  optionsOf,
  pressed,
  pressedOnce,
  showError,
  showProgress,
} from "./room.ts";
import { type Clip, drawWave, inFrames, Recording } from "./sounds.ts";

const LIVE_S = 6; // seconds of the waveform
const WORDS: Record<State | "listening" | "hearing" | "off", string> = {
  off: "Not ready yet",
  ready: "Ready",
  listening: "Listening: say something",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking: interrupt it whenever you like",
};
/** The real models, in the order in which they are loaded. */
const REAL = [
  { room: "vad", id: "onnx-community/silero-vad", title: "Silero VAD", licence: "MIT" },
  {
    room: "speak",
    id: "onnx-community/Kokoro-82M-v1.0-ONNX",
    title: "Kokoro 82M",
    licence: "Apache-2.0",
  },
  {
    room: "listen",
    id: "onnx-community/whisper-tiny.en",
    title: "Whisper tiny.en",
    licence: "MIT",
  },
  {
    room: "chat",
    id: "HuggingFaceTB/SmolLM2-135M-Instruct",
    title: "SmolLM2 135M",
    licence: "Apache-2.0",
  },
] as const;
const STARTS = ["Once upon a time there was a little owl", "The dog was sad because"];
const QUESTIONS = [
  "What is the capital of France?",
  "Why is the sky blue?",
  "Tell me a story about a small robot.",
];

const parts: Partial<Parts> = {};
let detect: VoiceActivityPipeline | undefined;
let listening: AbortController | undefined;
let held: Recording | undefined;
let best = Infinity;
/** The newest sound of the microphone. */
let live: Float32Array[] = [];
let rate = 48_000;

const player = new Player();
const wave = $<HTMLCanvasElement>("wave");

const conversation = new Conversation(() => parts as Parts, player, {
  state: (state) => {
    show(state === "ready" && listening ? "listening" : state);
    if (state === "speaking") count("speaking");
  },
  line,
  times,
  leftOut: (is) => {
    $("left-out").hidden = !is;
  },
});

// What is shown

function show(state: keyof typeof WORDS): void {
  $("doing").textContent = WORDS[state];
  $("doing").dataset.state = state;
  allow("stop", state === "thinking" || state === "speaking");
  allow("clear", $("messages").childElementCount > 0);
}

/** Whether a button may be pressed. It keeps the focus. */
function allow(id: "stop" | "clear", may: boolean): void {
  $(id).setAttribute("aria-disabled", String(!may));
}

const allowed = (id: string): boolean => $(id).getAttribute("aria-disabled") !== "true";

/** Forgets the conversation, and shows none. */
function clear(): void {
  conversation.clear();
  $("messages").replaceChildren();
  allow("clear", false);
}

function line(role: "user" | "assistant", words: string): (words?: string) => void {
  const item = document.createElement("li");
  item.className = role;
  const who = document.createElement("span");
  who.className = "visually-hidden";
  who.textContent = role === "user" ? "You: " : "Model: ";
  const said = document.createElement("span");
  said.className = "said";
  said.textContent = words;
  item.append(who, said);
  $("messages").append(item);
  item.scrollIntoView({ block: "nearest" });
  allow("clear", true);
  return (changed) => {
    if (changed === undefined) item.remove();
    else said.textContent = changed;
    $("messages").scrollTop = $("messages").scrollHeight;
  };
}

function times({ pause, heard, written, sound }: Times): void {
  const told = (id: string, ms: number | undefined) => {
    $(`figure-${id}`).textContent = ms === undefined ? "–" : seconds(ms);
  };
  told("pause", pause);
  told("heard", heard);
  told("written", written);
  told("sound", sound);
  if (sound !== undefined) best = Math.min(best, sound);
  told("best", Number.isFinite(best) ? best : undefined);
}

const draw = inFrames(() => drawWave(wave, joined(live.map(clipOf)), LIVE_S));
const clipOf = (array: Float32Array): Clip => ({ array, sampling_rate: rate });

function heardSound(piece: Float32Array, sampling_rate: number): void {
  rate = sampling_rate;
  live.push(piece);
  live = live.slice((-LIVE_S * rate) / 1024);
  draw();
}

// The models

async function loadSmall(): Promise<void> {
  const here = async (name: string) => atHand(new URL(name, location.href));
  const [write, speak] = await Promise.all([
    pipeline("text-generation", await here("model.edge"), optionsOf()),
    pipeline("text-to-speech", await here("speak.edge"), optionsOf()),
  ]);
  if (parts.write) return void Promise.all([write.dispose(), speak.dispose()]); // real ones are
  use(write, speak);
  offer(STARTS);
}

function use(write: TextGenerationPipeline, speak: TextToSpeechPipeline): void {
  void parts.write?.dispose();
  void parts.speak?.dispose();
  Object.assign(parts, { write, speak, phonemizer: phonemizerOf(speak) });
  input("say").disabled = false;
  const { flavour, threads, memory } = write.info;
  $("status").textContent =
    `Engine: ${flavour}, ${threads === 1 ? "1 thread" : `${threads} threads`} · ready · ` +
    `memory of the writer ${megabytes(memory.engine)}`;
  best = Infinity;
  times({ pause: 0 });
  show("ready");
}

/** Where a real model is, made with the page or on the hub, and its title. */
async function sourceOf({
  room,
  id,
  title,
}: (typeof REAL)[number]): Promise<{ from: ModelSource; title: string }> {
  const [made] = await madeModels(room);
  if (!made) return { from: id, title };
  const hub = /^hub\/([^/]+\/[^/]+)\//.exec(made.file);
  if (!hub) return { from: addressOf(made), title: made.title };
  env.remoteHost = new URL("real/hub/", location.href).href;
  return { from: hub[1]!, title: made.title };
}

/** Opens the real models one after the other: each needs the whole processor to be compiled. */
async function loadReal(): Promise<void> {
  hideError();
  const host = env.remoteHost;
  const opened: { dispose(): Promise<void> }[] = [];
  const open = async <T extends { dispose(): Promise<void> }>(
    at: number,
    load: (source: ModelSource, options: ReturnType<typeof optionsOf>) => Promise<T>,
  ): Promise<T> => {
    try {
      const { from, title } = await sourceOf(REAL[at]!);
      showProgress(`Loading ${title}, ${at + 1} of ${REAL.length}`);
      const model = await load(from, optionsOf());
      opened.push(model);
      return model;
    } finally {
      env.remoteHost = host;
    }
  };
  try {
    const hasLexicon = await readLexicon();
    const vad = await open(0, (from, o) => pipeline("voice-activity-detection", from, o));
    const speak = await open(1, (from, o) =>
      pipeline("text-to-speech", from, typeof from === "string" ? { ...o, dtype: "q8" } : o),
    );
    const listen = await open(2, (from, o) => pipeline("automatic-speech-recognition", from, o));
    const write = await open(3, (from, o) =>
      pipeline("text-generation", from, typeof from === "string" ? { ...o, dtype: "q4" } : o),
    );
    clear();
    begin(vad, listen);
    use(write, speak);
    const lacks = parts.phonemizer && !hasLexicon;
    $("model-words").textContent = `In use: the real ones.${lacks ? ` ${NO_LEXICON}` : ""}`;
    void keepMade();
  } catch (e) {
    for (const model of opened) void model.dispose();
    throw e;
  } finally {
    showProgress(undefined);
  }
}

/** It hears from now on. */
function begin(vad: VoiceActivityPipeline, listen: SpeechRecognitionPipeline): void {
  detect = vad;
  parts.listen = listen;
  swap("microphone", "real");
  $("hold").hidden = false;
  $("hold-words").hidden = false;
  offer(QUESTIONS);
  document.body.dataset.real = "1";
}

/** Samples to press. */
function offer(samples: readonly string[]): void {
  $("samples").replaceChildren(
    ...samples.map((words) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      pressed(button, () => answerWords(words));
      return button;
    }),
  );
  if (!parts.listen) return;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "A recording: President Kennedy, 1961";
  pressed(button, async () => {
    const found = await fetch(new URL("samples/kennedy.mp3", location.href));
    await player.allow();
    await answer({ clip: await found.blob(), ended: performance.now() });
  });
  $("samples").append(button);
}

// Turns

async function answer(said: Parameters<Conversation["answer"]>[0], pause?: number): Promise<void> {
  hideError();
  if (await conversation.answer(said, pause)) count("answered");
}

async function answerWords(words: string): Promise<void> {
  needed(parts.write);
  await player.allow();
  await answer({ words, ended: performance.now() });
}

/** Turns the microphone on, or off. */
async function listen(): Promise<void> {
  if (listening) return silence();
  const own = (listening = new AbortController());
  hideError();
  pressedIs(true);
  const ears = new Ears(
    needed(detect),
    {
      begins: () => {
        conversation.stop(); // whoever speaks is not interrupted
        show("hearing");
        count("begun");
      },
      pauses: (clip, ended, pause) => void answer({ clip, ended }, pause).catch(showError),
      nothing: () => show("listening"),
      sound: heardSound,
    },
    () => !conversation.busy || conversation.speaks,
  );
  try {
    await player.allow();
    if (own.signal.aborted) return; // pressed again meanwhile
    show("listening");
    await ears.run(own.signal);
  } catch (e) {
    if (!(e instanceof Aborted)) throw e;
  } finally {
    if (listening === own) silence();
  }
}

/** Turns the microphone off. */
function silence(): void {
  listening?.abort();
  listening = undefined;
  conversation.stop();
  pressedIs(false);
}

function pressedIs(on: boolean): void {
  $("microphone").setAttribute("aria-pressed", String(on));
  $("microphone").textContent = on ? "Stop listening" : "Talk to it";
}

/** Records while a button is held, and answers when it is let go. */
async function hold(down: boolean): Promise<void> {
  if (!down) return held?.stop();
  if (held) return;
  if (listening) silence();
  conversation.stop();
  hideError();
  const own = (held = new Recording(29));
  $("hold").setAttribute("aria-pressed", "true");
  show("hearing");
  try {
    await player.allow();
    if (own.ended) return; // let go at once
    await own.run(() => {
      const piece = own.last(1024 / 48_000);
      heardSound(piece.array, piece.sampling_rate);
    });
    const clip = own.last();
    held = undefined;
    $("hold").setAttribute("aria-pressed", "false");
    if (own.seconds > 0.3) await answer({ clip, ended: performance.now() });
  } catch (e) {
    if (!(e instanceof Aborted)) throw e;
  } finally {
    if (held === own) held = undefined;
    $("hold").setAttribute("aria-pressed", String(Boolean(held)));
    if (!conversation.busy) show("ready");
  }
}

// The page's elements

$("hold").addEventListener("pointerdown", ({ button, pointerId }) => {
  if (button !== 0) return;
  $("hold").setPointerCapture(pointerId); // it may move, since lines come and go
  void hold(true).catch(showError);
});
for (const name of ["pointerup", "pointercancel", "lostpointercapture"])
  $("hold").addEventListener(name, () => held?.stop());
for (const [name, down] of [
  ["keydown", true],
  ["keyup", false],
] as const)
  $("hold").addEventListener(name, (event) => {
    if (event.code !== "Space" && !event.repeat) return;
    event.preventDefault(); // no click
    if (event.code === "Space" && !event.repeat) void hold(down).catch(showError);
  });
// a click without a pointer, by Enter or a screen reader: one begins, the next one ends
$("hold").addEventListener("click", ({ detail }) => {
  if (detail === 0) void hold(!held).catch(showError);
});
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") conversation.stop();
});
for (const target of [window, $("hold")]) // which then gets no keyup
  target.addEventListener("blur", () => held?.stop());
window.addEventListener("pagehide", () => {
  silence();
  held?.discard();
});
pressed("microphone", listen);
pressed("stop", () => {
  if (allowed("stop")) conversation.stop();
});
pressed("error-close", hideError);
pressed("clear", () => {
  if (allowed("clear")) clear();
});
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = input("words").value.trim();
  if (!words) return;
  input("words").value = "";
  answerWords(words).catch(showError);
});

/** The button that loads the real models, with their sizes and licences. */
async function offerAll(): Promise<void> {
  const made = await Promise.all(REAL.map(({ room }) => madeModels(room)));
  const bytes = made.reduce((sum, [one]) => sum + (one?.bytes ?? 0), 0);
  const whole = made.every(([one]) => one);
  const button = document.createElement("button");
  button.type = "button";
  button.id = "real";
  button.className = "primary";
  button.textContent = whole
    ? `Load the real ones, ${megabytes(bytes)}`
    : "Load the real ones, from the hub";
  $("choices").append(button);
  const lines = REAL.map(({ title, licence }, i) => {
    const [one] = made[i]!;
    return one
      ? `${one.title}, ${megabytes(one.bytes)} (${one.licence})`
      : `${title}, from the hub (${licence})`;
  });
  for (const { title, bytes, licence } of await madeModels("lexicon"))
    lines.push(`${title}, ${megabytes(bytes)} (${licence})`);
  $("real-list").replaceChildren(
    ...lines.map((text) => Object.assign(document.createElement("li"), { textContent: text })),
  );
  pressedOnce("real", loadReal);
}

show("off");
void offerAll();
showProgress("Loading the models");
try {
  await loadSmall();
} catch (e) {
  showError(e);
} finally {
  showProgress(undefined);
}
