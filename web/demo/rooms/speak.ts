// The room "Speak": reads a text aloud, sentence by sentence. Uses only the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS of an .edge file, ?threads=N.

import { Aborted, InputError, pipeline, type TextToSpeechPipeline } from "edgewise";
import { $, input, number, seconds, swap } from "../page.ts";
import { NO_LEXICON, phonemizerOf, readLexicon, useLexicon } from "./phonemes.ts";
import { joined, Player } from "./player.ts";
import { offerReal } from "./real.ts";
import {
  chosen,
  count,
  download,
  hideError,
  modelOf,
  needed,
  pressed,
  query,
  showError,
  unused,
} from "./room.ts";
import { type Clip, drawWave, wavOf } from "./sounds.ts";

const MAX_TEXT = 20_000; // characters of a file
const TEXTS = [
  [
    "The north wind",
    "The North Wind and the Sun were disputing which was the stronger, when a traveler came " +
      "along wrapped in a warm cloak. They agreed that the one who first made the traveler take " +
      "his cloak off should be considered stronger than the other.",
  ],
  [
    "Numbers",
    "In 1969, on July 20th at 10:56, two people walked on the moon. It cost $25.8 billion.",
  ],
  ["A question", "Can you hear me? Then say so, please!"],
] as const;

let speak: TextToSpeechPipeline | undefined;
let phonemizer: ReturnType<typeof phonemizerOf>;
/** What is read. */
let reading: AbortController | undefined;
let clips: Clip[] = [];
/** Seconds of the clips. */
let made = 0;

const player = new Player();
const wave = $<HTMLCanvasElement>("wave");
const words = $<HTMLTextAreaElement>("words");

// The model

const load = modelOf<TextToSpeechPipeline>({
  sample: "speak.edge",
  async open(model, options, isSample, claim) {
    const hasLexicon = isSample || (await readLexicon());
    const ofHub = typeof model === "string" ? { dtype: "q8" as const } : {};
    const loaded = await pipeline("text-to-speech", model, { ...options, ...ofHub });
    const reader = phonemizerOf(loaded);
    if (!claim()) return unused(loaded);
    stop();
    void speak?.dispose();
    speak = loaded;
    phonemizer = reader;
    $("voices").hidden = loaded.info.speech?.type !== "kokoro";
    input("read").disabled = false;
    const note = $("lexicon-words");
    if (!hasLexicon && reader) note.textContent = NO_LEXICON;
    else if (note.textContent === NO_LEXICON) note.textContent = "";
    return loaded;
  },
});

// Reading

/** A sentence of the text, while it is spoken. */
function shown(text: string): HTMLElement {
  const span = document.createElement("span");
  span.textContent = text;
  $("spoken").append(span, " ");
  return span;
}

/** Marks the sentence that is heard. */
function hear(span: HTMLElement, text: string, clip: Clip): void {
  for (const other of $("spoken").children) other.classList.toggle("now", other === span);
  $("phonemes").textContent = phonemizer?.(text) ?? "";
  drawWave(wave, clip);
  count("heard");
}

function figures(began: number, first: number | undefined): void {
  const taken = performance.now() - began;
  $("figure-first").textContent = first === undefined ? "–" : seconds(first);
  $("figure-sound").textContent = `${number(made, 1)} s`;
  $("figure-time").textContent = seconds(taken);
  $("figure-speed").textContent = `${number((1000 * made) / Math.max(taken, 1), 1)} ×`;
}

async function read(): Promise<void> {
  const model = needed(speak);
  const text = words.value.trim();
  if (!text) throw new InputError("there is no text", "", "Write something to be read.");
  if (phonemizer && !/[a-z0-9]/i.test(text))
    throw new InputError("there is nothing to say", "", "Write words in English letters.");
  stop();
  hideError();
  const own = (reading = new AbortController());
  busy(true);
  clips = [];
  made = 0;
  $("spoken").replaceChildren();
  await player.allow();
  try {
    await say(model, text, own);
    if (reading === own && !own.signal.aborted) await player.ended();
  } catch (e) {
    if (reading === own && !(e instanceof Aborted)) {
      player.stop();
      showError(e);
    }
  } finally {
    if (reading === own) ended();
  }
}

/** Speaks a text, each sentence as soon as it is made. */
async function say(model: TextToSpeechPipeline, text: string, own: AbortController) {
  const began = performance.now();
  let first: number | undefined;
  const options = {
    signal: own.signal,
    ...(phonemizer ? { phonemizer, speed: Number(input("speed").value) } : {}),
    ...($("voices").hidden ? {} : { voice: input("voice").value.trim() }),
  };
  for await (const part of model.stream(text, options)) {
    if (own.signal.aborted) return;
    const clip = { array: part.audio, sampling_rate: part.sampling_rate };
    const span = shown(part.text);
    clips.push(clip);
    made += clip.array.length / clip.sampling_rate;
    const wait = player.add(clip, () => hear(span, part.text, clip));
    first ??= performance.now() - began + wait;
    figures(began, first);
  }
  input("save").disabled = !clips.some(({ array }) => array.length);
  count("read");
}

function stop(): void {
  reading?.abort();
  player.stop();
  ended();
}

/** Nothing is read any more. */
function ended(): void {
  reading = undefined;
  busy(false);
  for (const span of $("spoken").children) span.classList.remove("now");
}

function busy(is: boolean): void {
  if (is) swap("stop", "read");
  else swap("read", "stop");
}

// The page's elements

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  read().catch(showError);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) read().catch(showError);
});
pressed("stop", stop);
pressed("error-close", hideError);
pressed("save", () => download(wavOf(joined(clips)), "speech.wav"));
chosen("text-file", async ([file]) => {
  const text = await file!.text();
  words.value = text.slice(0, MAX_TEXT);
  $("cut").hidden = text.length <= MAX_TEXT;
  words.focus();
});
chosen("lexicon", async ([file]) => {
  const known = useLexicon(await file!.text());
  if (speak) phonemizer = phonemizerOf(speak);
  $("lexicon-words").textContent = `${number(known)} words`;
});
for (const [name, text] of TEXTS) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  $("texts").append(button);
  pressed(button, () => {
    words.value = text;
    $("cut").hidden = true;
    return read();
  });
}
window.addEventListener("pagehide", stop);

void offerReal("speak", load, {
  id: "onnx-community/Kokoro-82M-v1.0-ONNX",
  title: "Kokoro 82M",
  licence: "Apache-2.0",
});
await load(query.get("model") ?? undefined);
