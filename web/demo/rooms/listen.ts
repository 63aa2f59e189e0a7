// The room "Listen": writes down what a microphone or a file says, with the time of each word. Uses
// only the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS, ?threads=N.

import { Aborted, InputError, pipeline, type SpeechRecognitionPipeline } from "edgewise";
import { $, input, number, seconds } from "../page.ts";
import { MorseKey, spelled } from "./morse.ts";
import {
  chosen,
  count,
  hideError,
  modelOf,
  onKey,
  pressed,
  query,
  showError,
  showProgress,
} from "./room.ts";
import { type Clip, drawWave, Recording, samplesOf, wavOf } from "./sounds.ts";

const LIVE_S = 12; // seconds of a waveform while the microphone is on
const AGAIN_MS = 1200; // between transcripts of a recording, of models without streams
const LATEST_S = 20; // of a recording that are transcribed meanwhile

let listen: SpeechRecognitionPipeline | undefined;
/** What the model can do, as far as is known. */
let can = { words: true, streamer: true, streams: true };
let recording: Recording | undefined;
let working: AbortController | undefined;
let shown: Clip = { array: new Float32Array(), sampling_rate: 16_000 };
let address = "";

const audio = $<HTMLAudioElement>("audio");
const wave = $<HTMLCanvasElement>("wave");

// The model

const load = modelOf<SpeechRecognitionPipeline>({
  sample: "morse.edge",
  async open(model, options, isSample) {
    stop();
    const loaded = await pipeline("automatic-speech-recognition", model, options);
    void listen?.dispose();
    listen = loaded;
    can = { words: true, streamer: true, streams: true };
    $("morse").hidden = !isSample;
    for (const id of ["microphone", "beep", "key"]) input(id).disabled = false;
    return loaded;
  },
});

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
  $("partial").textContent = partial;
}

function figures(length: number, taken: number, text: string): void {
  $("figure-sound").textContent = `${number(length, 1)} s`;
  $("figure-time").textContent = seconds(taken);
  $("figure-speed").textContent = `${number((1000 * length) / taken, 1)} ×`;
  $("figure-words").textContent = number(text.split(/\s+/).filter(Boolean).length);
}

/** Shows a sound, and makes it playable. */
function present(clip: Clip | undefined, file: Blob): void {
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
      return await listen!(sound, {
        ...(can.words ? { return_timestamps: "word" as const } : {}),
        ...(can.streamer ? { streamer: said } : {}),
        onProgress: (part) => {
          if (part < 1) showProgress("Listening", part);
        },
        signal,
      });
    } catch (e) {
      const where = e instanceof InputError ? e.where : "";
      if (can.streamer && where === "options.streamer") can.streamer = false;
      else if (can.words && where === "options.return_timestamps") can.words = false;
      else throw e;
    } finally {
      showProgress(undefined);
    }
  }
}

/** Transcribes a sound that is complete. */
async function hear(sound: Blob | Clip, length: number | undefined): Promise<void> {
  if (!listen) return;
  stop();
  const own = (working = new AbortController());
  busy(true);
  hideError();
  write([], "…");
  let soFar = "";
  try {
    const began = performance.now();
    const { text, chunks } = await transcript(sound, own.signal, (piece) => {
      soFar += piece;
      write([], soFar);
    });
    const taken = performance.now() - began;
    write(chunks?.some(({ timestamp }) => timestamp) ? chunks : [{ text }]);
    if (!text.trim()) write([], "It heard no words.");
    figures(length ?? audio.duration, taken, text);
    document.body.dataset.heard = text.trim();
    count("transcripts");
  } catch (e) {
    write([], "");
    if (!(e instanceof Aborted)) showError(e);
  } finally {
    if (working === own) {
      working = undefined;
      busy(false);
    }
  }
}

function busy(is: boolean): void {
  $("stop").hidden = !is;
  $("microphone").hidden = is;
}

/** Ends what is going on. */
function stop(): void {
  working?.abort();
  working = undefined;
  recording?.stop();
}

// The microphone

async function record(): Promise<void> {
  if (!listen) return;
  const own = (recording = new Recording());
  hideError();
  audio.pause();
  audio.hidden = true;
  write([], "Speak.");
  $("microphone").textContent = "Stop listening";
  $("microphone").setAttribute("aria-pressed", "true");
  const draw = () => drawWave(wave, own.last(LIVE_S), LIVE_S);
  try {
    if (can.streams) await streamed(own, draw);
    else await repeated(own, draw);
  } catch (e) {
    showError(e);
  } finally {
    own.stop();
    recording = undefined;
    $("microphone").textContent = "Use the microphone";
    $("microphone").setAttribute("aria-pressed", "false");
  }
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
    for await (const { committed, partial, timestamp } of listen!.stream(sound, { interval: 1 })) {
      if (committed) parts.push({ text: committed, timestamp });
      write(parts, partial);
    }
  } catch (e) {
    // models without streams refuse the first piece
    if (!(e instanceof InputError && samples && /stream/.test(e.what))) throw e;
    can.streams = false;
    const again = (recording = new Recording());
    try {
      return await repeated(again, () => drawWave(wave, again.last(LIVE_S), LIVE_S));
    } finally {
      again.stop();
    }
  }
  const clip = own.last();
  if (!clip.array.length) return write([]);
  present(clip, wavOf(clip));
  document.body.dataset.heard = parts.map(({ text }) => text).join("");
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
  const clip = own.last();
  if (!clip.array.length) return write([]);
  present(clip, wavOf(clip));
  await hear(clip, own.seconds);
}

// Morse code

async function beep(sound: Float32Array, play: boolean): Promise<void> {
  const clip = { array: sound, sampling_rate: 16_000 };
  present(clip, wavOf(clip));
  if (play) void audio.play().catch(() => undefined); // no sound without a gesture
  await hear(clip, sound.length / 16_000);
}

const key = new MorseKey((sound) => void beep(sound, false));
for (const [name, down] of [
  ["pointerdown", true],
  ["pointerup", false],
  ["pointerleave", false],
  ["pointercancel", false],
] as const)
  $("key").addEventListener(name, () => {
    if (!input("key").disabled) key.press(down);
  });
for (const [name, down] of [
  ["keydown", true],
  ["keyup", false],
] as const)
  document.addEventListener(name, (event) => {
    const { target, code, repeat } = event;
    const free = target === document.body || target === $("key");
    if (code !== "Space" || !free || $("morse").hidden || input("key").disabled) return;
    event.preventDefault(); // no scrolling
    if (!repeat) key.press(down);
  });
$("beeps").addEventListener("submit", (event) => {
  event.preventDefault();
  const { sound, unknown } = spelled(input("words").value);
  $("morse-note").textContent = unknown ? `There is no beep for ${unknown}.` : "";
  if (sound) beep(sound, true).catch(showError);
});

// The page's elements

async function choose(file: File): Promise<void> {
  stop();
  present(await samplesOf(file), file);
  const length = shown.array.length / shown.sampling_rate;
  await hear(file, length || undefined);
}

pressed("microphone", () => (recording ? recording.stop() : record()));
pressed("stop", stop);
pressed("error-close", hideError);
chosen("sound", ([file]) => choose(file!));
chosen("folder", (files) => load(files));
onKey((pressed) => {
  if (pressed === "m" && !input("microphone").disabled)
    return recording ? recording.stop() : record();
  return pressed === "Escape" ? stop() : undefined;
});
audio.addEventListener("timeupdate", () => {
  for (const word of $("text").querySelectorAll("ruby")) {
    const { start, end } = word.dataset;
    const at = audio.currentTime;
    word.classList.toggle("now", !audio.paused && at >= Number(start) && at < Number(end));
  }
});
$("text").addEventListener("click", ({ target }) => {
  const word = (target as Element).closest("ruby");
  if (word) audio.currentTime = Number(word.dataset.start);
});
new ResizeObserver(() => {
  if (!recording) drawWave(wave, shown);
}).observe(wave);

await load(query.get("model") ?? undefined);
