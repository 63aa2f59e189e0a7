// The room "Listen": writes down what a microphone or a file says, with the time of each word. Uses
// only the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS, ?threads=N.

import {
  Aborted,
  InputError,
  type ModelSource,
  type PipelineOptions,
  pipeline,
  type SpeechRecognitionPipeline,
} from "edgewise";
import { $, input, number, seconds, swap } from "../page.ts";
import { MorseKey, spelled } from "./morse.ts";
import { offerReal } from "./real.ts";
import {
  chosen,
  count,
  hideError,
  modelOf,
  needed,
  onKey,
  pressed,
  query,
  showError,
  showProgress,
  unused,
} from "./room.ts";
import { type Clip, copyOf, drawWave, inFrames, Recording, samplesOf, wavOf } from "./sounds.ts";
import { Speaker } from "./speaker.ts";

const LIVE_S = 12; // seconds of a waveform while the microphone is on
const AGAIN_MS = 1200; // between transcripts of a recording, of models without streams
const SOON_S = 0.02; // to a word, which is as good as there
const LATEST_S = 20; // of a recording that are transcribed meanwhile

/** Reads Morse code as the small one does, and learns: it has the form of Whisper. */
const LEARNER = new URL("learner.edge", location.href);
/** How a model of the user is compiled to learn. */
const TRAINING: PipelineOptions["training"] = { r: 8, batch_size: 1 };

let listen: SpeechRecognitionPipeline | undefined;
/** Where the model is from; undefined: it came with the page. */
let source: ModelSource | undefined;
/** Whether models are compiled to learn. */
let learns = false;
/** The model that learns, while it is loaded. */
let asked: ModelSource | undefined;
/** What was heard last. */
let latest: { sound: Blob | Clip; text: string } | undefined;
/** What the model can do, as far as is known. */
let can = { words: true, streamer: true, streams: true };
let recording: Recording | undefined;
let working: AbortController | undefined;
let shown: Clip = { array: new Float32Array(), sampling_rate: 16_000 };
/** Seconds before its beginning that belong to the times of words. */
let since = 0;
let address = "";

const audio = $<HTMLAudioElement>("audio");
const wave = $<HTMLCanvasElement>("wave");

// The model

const load = modelOf<SpeechRecognitionPipeline>({
  sample: "morse.edge",
  async open(model, options, isSample, claim) {
    const isLearner = asked === LEARNER;
    const training = learns && !isLearner ? { training: TRAINING } : {};
    const loaded = await pipeline("automatic-speech-recognition", model, {
      ...options,
      ...training,
    });
    if (!claim()) return unused(loaded);
    drop();
    void listen?.dispose();
    listen = loaded;
    source = isSample ? undefined : model;
    const isMorse = isSample || isLearner;
    can = { words: !isLearner, streamer: true, streams: true };
    $("morse").hidden = !isMorse;
    $("samples").hidden = isMorse;
    speaker.changed();
    for (const id of ["microphone", "beep", "key"]) input(id).disabled = false;
    return loaded;
  },
});

/** The model, if it learns; else another one is loaded, or the same is compiled again. */
async function learning(): Promise<SpeechRecognitionPipeline | undefined> {
  if (!listen?.info.training?.length) {
    learns = true;
    asked = source ?? LEARNER;
    await load(asked);
    learns = false;
    asked = undefined;
  }
  if (listen?.info.training?.length) return listen;
  if ($("error").hidden)
    throw new InputError(
      "this model does not learn from recordings",
      "",
      "Choose the folder of a Whisper model, or a package that was built with --train lora.",
    );
  return undefined;
}

const speaker = new Speaker({ learning, heard: () => latest, quiet: drop });

// Results

interface Heard {
  text: string;
  timestamp?: readonly [number | null, number | null] | null;
}

/** Shows words, each with its time if there is one. */
function write(parts: readonly Heard[], partial = ""): void {
  $("text").replaceChildren(
    ...parts.flatMap(({ text, timestamp }) => {
      const start = timestamp?.[0];
      if (start == null) return [text];
      const word = document.createElement("ruby");
      const time = document.createElement("rt");
      time.textContent = number(start, start < 60 ? 1 : 0);
      word.append(text.trim(), time);
      word.dataset.start = String(start);
      word.dataset.end = String(timestamp?.[1] ?? start + 1);
      return [word, " "];
    }),
  );
  $("text").tabIndex = $("text").querySelector("ruby") ? 0 : -1; // for the arrow keys
  const spaced = !parts.length || parts.at(-1)!.timestamp;
  $("partial").textContent = spaced ? partial.trimStart() : partial;
}

function figures(length?: number, taken?: number, text?: string): void {
  $("figure-sound").textContent = length ? `${number(length, 1)} s` : "–";
  $("figure-time").textContent = taken ? seconds(taken) : "–";
  $("figure-speed").textContent = length && taken ? `${number((1000 * length) / taken, 1)} ×` : "–";
  $("figure-words").textContent =
    text === undefined ? "–" : number(text.split(/\s+/).filter(Boolean).length);
}

/** Shows a sound, and makes it playable. */
function present(clip: Clip | undefined, file: Blob, before = 0): void {
  since = before;
  shown = clip ?? { array: new Float32Array(), sampling_rate: 16_000 };
  drawWave(wave, shown);
  URL.revokeObjectURL(address);
  address = URL.createObjectURL(file);
  audio.src = address;
  audio.hidden = false;
}

// Transcripts

/** Asks for all that the model can do; what it cannot is not asked for again. */
async function transcript(
  sound: Blob | Clip,
  signal: AbortSignal,
  said: (text: string) => void,
): Promise<{ text: string; chunks?: Heard[] }> {
  for (;;) {
    try {
      return await listen!(copyOf(sound), {
        ...speaker.options,
        ...(can.words ? { return_timestamps: "word" as const } : {}),
        ...(can.streamer ? { streamer: said } : {}),
        onProgress: (part) => {
          if (part < 1 && !signal.aborted) showProgress("Listening", part);
        },
        signal,
      });
    } catch (e) {
      const where = e instanceof InputError ? e.where : "";
      if (can.streamer && where === "options.streamer") can.streamer = false;
      else if (can.words && where === "options.return_timestamps") can.words = false;
      else throw e;
    }
  }
}

/** Transcribes a sound that is complete. */
async function hear(sound: Blob | Clip, length: number | undefined): Promise<void> {
  needed(listen);
  drop();
  const own = (working = new AbortController());
  busy(true);
  hideError();
  write([], "…");
  let soFar = "";
  try {
    const began = performance.now();
    const { text, chunks } = await transcript(sound, own.signal, (piece) => {
      soFar += piece;
      if (!own.signal.aborted) write([], soFar);
    });
    if (working !== own) return;
    const taken = performance.now() - began;
    write(chunks?.some(({ timestamp }) => timestamp) ? chunks : [{ text }]);
    if (!text.trim()) write([], "It heard no words.");
    figures(length ?? (audio.duration || undefined), taken, text);
    document.body.dataset.heard = text.trim();
    latest = { sound, text: text.trim() };
    speaker.update();
    count("transcripts");
  } catch (e) {
    if (working !== own) return;
    write([], e instanceof Aborted ? "Stopped." : "");
    if (!(e instanceof Aborted)) showError(e);
  } finally {
    if (working === own) ended();
  }
}

/** Nothing is transcribed any more. */
function ended(): void {
  if (working) showProgress(undefined);
  working = undefined;
  busy(false);
}

function busy(is: boolean): void {
  if (is) swap("stop", "microphone");
  else swap("microphone", "stop");
}

/** Ends what is going on, and shows what came of it. */
function stop(): void {
  working?.abort();
  recording?.stop();
}

/** Ends what is going on, and shows nothing more of it: something else was chosen. */
function drop(): void {
  working?.abort();
  ended();
  recording?.discard();
  microphoneIs(undefined);
}

// The microphone

async function record(): Promise<void> {
  needed(listen);
  drop();
  const own = new Recording();
  microphoneIs(own);
  hideError();
  audio.pause();
  audio.hidden = true;
  write([], "Speak.");
  figures();
  const draw = inFrames(() => {
    if (recording === own) drawWave(wave, own.last(LIVE_S), LIVE_S);
  });
  try {
    if (can.streams) await streamed(own, draw);
    else await repeated(own, draw);
  } catch (e) {
    if (own.discarded) return;
    write([]);
    showError(e);
  } finally {
    own.stop();
    if (recording === own) microphoneIs(undefined);
  }
}

/** Sets what is recorded, and shows whether something is. */
function microphoneIs(own: Recording | undefined): void {
  recording = own;
  $("microphone").textContent = own ? "Stop listening" : "Use the microphone";
  $("microphone").setAttribute("aria-pressed", String(own !== undefined));
}

/** Text that is certain, and text that may change, while somebody speaks. */
async function streamed(own: Recording, draw: () => void): Promise<void> {
  const parts: Heard[] = [];
  let samples = false;
  try {
    const sound = own.sound(() => {
      samples = true;
      draw();
    });
    for await (const { committed, partial, timestamp } of listen!.stream(sound, { live: true })) {
      if (own.discarded) return;
      if (committed) parts.push({ text: committed, timestamp });
      write(parts, partial);
    }
  } catch (e) {
    // models without streams refuse the first piece
    if (!(e instanceof InputError && samples && /stream/.test(e.what))) throw e;
    if (own.discarded) return;
    can.streams = false;
    return own.stopped ? complete(own) : record();
  }
  if (own.discarded) return;
  const clip = own.last();
  write(clip.array.length ? parts : []);
  if (!clip.array.length) return;
  present(clip, wavOf(clip), own.since);
  const text = parts.map(({ text }) => text).join("");
  figures(own.since + own.seconds, undefined, text);
  document.body.dataset.heard = text;
  latest = { sound: clip, text: text.trim() };
  speaker.update();
  count("transcripts");
}

/** Transcribes the latest seconds again and again, and all of it at the end. */
async function repeated(own: Recording, draw: () => void): Promise<void> {
  const whole = own.run(draw);
  let failed: unknown;
  const live = (async () => {
    while (!own.ended) {
      await new Promise((done) => setTimeout(done, AGAIN_MS));
      if (own.ended || own.seconds < 1) continue;
      const { text } = await listen!(own.last(LATEST_S));
      if (!own.ended) write([], text || "…");
    }
  })().catch((e: unknown) => {
    failed = e;
    own.stop();
  });
  await whole;
  await live;
  if (failed) throw failed;
  await complete(own);
}

/** Transcribes a recording that has ended. */
async function complete(own: Recording): Promise<void> {
  if (own.discarded) return;
  const clip = own.last();
  if (!clip.array.length) return write([]);
  present(clip, wavOf(clip));
  await hear(clip, own.seconds);
}

// Morse code

async function beep(sound: Float32Array<ArrayBuffer>, play: boolean): Promise<void> {
  needed(listen);
  drop();
  const clip = { array: sound, sampling_rate: 16_000 };
  present(clip, wavOf(clip));
  if (play) void audio.play().catch(() => undefined); // no sound without a gesture
  await hear(clip, sound.length / 16_000);
}

const key = new MorseKey((sound) => void beep(sound, false).catch(showError));
for (const [name, down] of [
  ["pointerdown", true],
  ["pointerup", false],
  ["pointerleave", false],
  ["pointercancel", false],
] as const)
  $("key").addEventListener(name, () => {
    if (!down || !input("key").disabled) key.press(down);
  });
for (const [name, down] of [
  ["keydown", true],
  ["keyup", false],
] as const)
  document.addEventListener(name, (event) => {
    const { target, code, repeat } = event;
    const free = target === document.body || target === $("key");
    if (code === "Space" && !down) key.press(false); // wherever the focus is now
    if (code !== "Space" || !free || $("morse").hidden || input("key").disabled) return;
    event.preventDefault(); // no scrolling
    if (down && !repeat) key.press(true);
  });
window.addEventListener("blur", () => key.press(false)); // which then gets no keyup
$("beeps").addEventListener("submit", (event) => {
  event.preventDefault();
  const { sound, unknown } = spelled(input("words").value);
  $("morse-note").textContent = unknown ? `There is no beep for ${unknown}.` : "";
  if (sound) beep(sound, true).catch(showError);
});

// Samples

for (const button of document.querySelectorAll<HTMLElement>("#beep-samples button"))
  pressed(button, async () => {
    input("words").value = button.textContent!;
    await beep(spelled(button.textContent!, { noise: 0.05 }).sound!, true);
  });
for (const button of document.querySelectorAll<HTMLElement>("#samples button"))
  pressed(button, async () => {
    const { file } = button.dataset;
    const found = await fetch(new URL(`samples/${file}`, location.href));
    if (!found.ok) throw new InputError("the sample is not there", String(file), "Load it again.");
    await choose(new File([await found.blob()], file!));
  });

// The page's elements

async function choose(file: File): Promise<void> {
  needed(listen);
  drop();
  const own = (working = new AbortController());
  busy(true);
  const samples = await samplesOf(file);
  if (working === own) ended();
  if (own.signal.aborted) return; // by Stop, or by something else that was chosen
  present(samples, file);
  const length = shown.array.length / shown.sampling_rate;
  await hear(file, length || undefined);
}

/** Starts a recording; ends it, whereupon the rest of it is written; does without the rest. */
async function press(): Promise<void> {
  if (!recording) return record();
  if (recording.stopped) return drop();
  recording.stop();
  $("microphone").textContent = "Skip the rest";
}

pressed("microphone", press);
pressed("stop", stop);
pressed("error-close", hideError);
chosen("sound", ([file]) => choose(file!));
onKey((pressed) => {
  if (pressed === "m" && !input("microphone").disabled) return press();
  return pressed === "Escape" ? stop() : undefined;
});
/** Marks the word that is heard. */
function follow(): void {
  for (const word of $("text").querySelectorAll("ruby")) {
    const { start, end } = word.dataset;
    const at = audio.currentTime + since + SOON_S;
    word.classList.toggle("now", at >= Number(start) && at < Number(end));
  }
}
audio.addEventListener("timeupdate", follow);
/** Plays from a word on, or goes to it. */
function seek(word: HTMLElement | undefined): void {
  if (word) audio.currentTime = Math.max(0, Number(word.dataset.start) - since);
  follow(); // seeks that follow each other at once may have one event, before the last
}
$("text").addEventListener("click", ({ target }) =>
  seek((target as Element).closest("ruby") ?? undefined),
);
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  event.preventDefault(); // no scrolling
  const words = [...$("text").querySelectorAll<HTMLElement>("ruby")];
  const at = audio.currentTime + since;
  const next = words.find(({ dataset }) => Number(dataset.start) > at + SOON_S);
  const before = words.findLast(({ dataset }) => Number(dataset.start) < at - SOON_S);
  seek(event.key === "ArrowRight" ? next : before);
});
new ResizeObserver(() => {
  if (!recording) drawWave(wave, shown);
}).observe(wave);

void offerReal("listen", load, {
  id: "onnx-community/whisper-tiny.en",
  title: "Whisper tiny.en",
  licence: "MIT",
});
await load(query.get("model") ?? undefined);
