// The room "Who speaks": learns voices from a few recordings and tells whose voice it hears. Uses
// only the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS, ?threads=N.

import { InputError, pipeline, type SpeakerVerificationPipeline } from "edgewise";
import { $, input, number, seconds } from "../page.ts";
import { offerReal } from "./real.ts";
import {
  bars,
  chosen,
  count,
  download,
  hideError,
  isNamed,
  modelOf,
  needed,
  onKey,
  pressed,
  pressedOnce,
  query,
  unused,
} from "./room.ts";
import { newRecordings, sampleVoices } from "./samples.ts";
import {
  type Clip,
  copyOf,
  drawWave,
  inFrames,
  longEnough,
  Recording,
  samplesOf,
} from "./sounds.ts";
import { cosine, equalErrorRate, heldOut, meanOf, unit } from "./voices.ts";

/** A recording of a voice. */
interface Sample {
  sound: Blob | Clip;
  /** Of the model in use. */
  vector: number[];
  item: HTMLElement;
}

/** A voice with its recordings. */
interface Voice {
  name: HTMLInputElement;
  item: HTMLElement;
  samples: Sample[];
  /** Of a file of voices, which has no recordings. */
  kept: number[] | undefined;
}

const MIN_S = 1; // of a recording
const DRAWN_S = 8; // of the recording of a voice
const LATEST_S = 3; // that are compared while the microphone is on
const AGAIN_MS = 500; // between comparisons
const QUIET = 0.004; // root mean square below which nobody speaks
const THRESHOLDS = { sample: 0.6, own: 0.75 };

let who: SpeakerVerificationPipeline | undefined;
let recording: { voice: Voice | undefined; own: Recording } | undefined;
let shown: Clip = { array: new Float32Array(), sampling_rate: 16_000 };
/** The vector of what was tried last. */
let heard: number[] | undefined;
const voices: Voice[] = [];
const wave = $<HTMLCanvasElement>("wave");

// The model

const load = modelOf<SpeakerVerificationPipeline>({
  sample: "voice.edge",
  async open(model, options, isSample, claim) {
    const loaded = await pipeline("speaker-verification", model, options);
    const vectors = await vectorsOf(loaded);
    if (!claim()) return unused(loaded);
    void who?.dispose();
    who = loaded;
    input("listen").disabled = input("use-samples").disabled = false;
    input("threshold").value = String(isSample ? THRESHOLDS.sample : THRESHOLDS.own);
    heard = undefined;
    for (const voice of voices) voice.kept = undefined; // another model's
    for (const [sample, vector] of vectors) sample.vector = vector;
    update();
    return loaded;
  },
});

/** What a model makes of all recordings. If it refuses one, it is disposed of. */
async function vectorsOf(model: SpeakerVerificationPipeline): Promise<Map<Sample, number[]>> {
  const vectors = new Map<Sample, number[]>();
  try {
    for (;;) {
      // there may be more of them meanwhile
      const next = voices.flatMap(({ samples }) => samples).find((one) => !vectors.has(one));
      if (!next) return vectors;
      vectors.set(next, await enrolled(model, next.sound));
    }
  } catch (e) {
    void model.dispose();
    throw e;
  }
}

/** The unit vector of a recording, of the model that is in use when it is there. */
async function vectorOf(sound: Blob | Clip): Promise<number[]> {
  for (;;) {
    const model = needed(who);
    try {
      const vector = await enrolled(model, sound);
      if (model === who) return vector;
    } catch (e) {
      if (model === who) throw e;
    }
  }
}

async function enrolled(model: SpeakerVerificationPipeline, sound: Blob | Clip): Promise<number[]> {
  const began = performance.now();
  const vector = await model.enrol("recording", copyOf(sound));
  delete model.voices.recording;
  $("figure-clip").textContent = seconds(performance.now() - began);
  return unit(vector);
}

// Voices

function addVoice(name: string, kept?: number[]): Voice {
  const item = document.createElement("li");
  item.className = "thing";
  item.innerHTML =
    '<input type="text" maxlength="40"><div class="buttons"><button type="button" class="take">' +
    '</button><label class="button">Sounds<input type="file" accept="audio/*" multiple ' +
    'class="visually-hidden"></label><button type="button" class="plain">Remove</button></div>' +
    '<ul class="clips"></ul>';
  const field = item.querySelector<HTMLInputElement>("input[type=text]")!;
  field.value = field.dataset.given = name;
  const voice: Voice = { name: field, item, samples: [], kept };
  pressed(item.querySelector<HTMLButtonElement>(".take")!, () => record(voice));
  chosen(item.querySelector<HTMLInputElement>("input[type=file]")!, async (files) => {
    for (const file of files) await keep(voice, file, await samplesOf(file));
  });
  pressed(item.querySelector<HTMLElement>(".plain")!, () => {
    if (recording?.voice === voice) recording.own.discard();
    voices.splice(voices.indexOf(voice), 1);
    item.remove();
    update();
  });
  field.addEventListener("change", () => update());
  voices.push(voice);
  $("voices").append(item);
  update();
  return voice;
}

/** Adds a recording to a voice. */
async function keep(voice: Voice, sound: Blob | Clip, drawn: Clip | undefined): Promise<void> {
  hideError();
  const vector = await vectorOf(sound);
  if (!voices.includes(voice)) return; // it was removed
  const item = document.createElement("li");
  item.innerHTML =
    '<canvas class="wave"></canvas><span></span>' +
    '<button type="button" class="plain" aria-label="Remove this recording">×</button>';
  const sample = { sound, vector, item };
  if (drawn) item.querySelector("span")!.textContent = `${number(secondsOf(drawn), 1)} s`;
  pressed(item.querySelector("button")!, () => {
    voice.samples.splice(voice.samples.indexOf(sample), 1);
    item.remove();
    update();
  });
  voice.samples.push(sample);
  voice.item.querySelector(".clips")!.append(item);
  if (drawn) drawWave(item.querySelector("canvas")!, drawn);
  count("recordings");
  update();
}

const secondsOf = ({ array, sampling_rate }: Clip): number => array.length / sampling_rate;

/** The vectors of voices by name. */
function known(): Map<string, number[]> {
  const found = new Map<string, number[][]>();
  for (const { name, samples, kept } of voices) {
    const vectors = [...(kept ? [kept] : []), ...samples.map(({ vector }) => vector)];
    const label = name.value.trim() || "a voice";
    if (vectors.length) found.set(label, [...(found.get(label) ?? []), ...vectors]);
  }
  return new Map([...found].map(([label, vectors]) => [label, meanOf(vectors)]));
}

/** Shows what has changed. */
function update(): void {
  voices.forEach(({ name, item }, i) => {
    name.setAttribute("aria-label", `Name of voice ${i + 1}`);
    const take = item.querySelector<HTMLButtonElement>(".take")!;
    const records = recording !== undefined && recording.voice === voices[i];
    take.textContent = records ? "Stop" : `Record (${i + 1})`;
    take.classList.toggle("primary", records);
    take.disabled = !who;
  });
  const names = known();
  const samples = voices.reduce((sum, { samples }) => sum + samples.length, 0);
  $("figure-voices").textContent = number(names.size);
  $("figure-clips").textContent = number(samples);
  input("save").disabled = !names.size;
  const { same, others } = heldOut(voices.map((v) => v.samples.map(({ vector }) => vector)));
  const measured = equalErrorRate(same, others);
  $("figure-eer").textContent = measured ? `${number(100 * measured.rate)} %` : "–";
  $("note").textContent = measured
    ? `${same.length} recordings were compared with the voices as if they were new: ` +
      `${number(100 * measured.rate)} % errors of each kind from ` +
      `${number(measured.threshold, 2)} on.`
    : names.size > 1
      ? "With two recordings of a voice, the others are measured with it: its errors are shown."
      : "";
  showScores();
}

// Who it is

function showScores(): void {
  const names = known();
  const threshold = Number(input("threshold").value);
  $("threshold-value").textContent = number(threshold, 2);
  const found = heard
    ? Array.from(names, ([label, voice]) => ({ label, score: cosine(heard!, voice) }))
    : [];
  bars(
    $("scores"),
    found.map(({ label, score }) => ({
      label,
      part: score,
      text: number(score, 2),
      high: score >= threshold,
    })),
  );
  const [best] = found.sort((a, b) => b.score - a.score);
  const words = !names.size
    ? "Record two voices or more."
    : !best
      ? "Press “Who is it?” and speak, or try a sound."
      : best.score >= threshold
        ? `This is “${best.label}”.`
        : "It is nobody of these.";
  if ($("verdict").textContent !== words) $("verdict").textContent = words;
  document.body.dataset.who = best && best.score >= threshold ? best.label : "";
}

let compared = 0;

async function compare(sound: Blob | Clip): Promise<void> {
  const own = ++compared;
  const vector = await vectorOf(sound);
  if (own !== compared) return; // something else was tried meanwhile
  heard = vector;
  count("compared");
  showScores();
}

// The microphone

/** Starts a recording of a voice, or of somebody to be recognised; or ends the present one. */
async function record(voice?: Voice): Promise<void> {
  if (!who) return;
  const before = recording;
  before?.own.stop();
  if (before && before.voice === voice) return;
  const own = new Recording(voice ? undefined : LATEST_S);
  recording = { voice, own };
  hideError();
  $("listen").textContent = voice ? "Who is it?" : "Stop";
  update();
  const drawn = voice ? DRAWN_S : LATEST_S;
  const draw = inFrames(() => {
    if (recording?.own !== own) return;
    shown = own.last(drawn);
    drawWave(wave, shown, drawn);
  });
  try {
    const whole = own.run(draw);
    if (voice) {
      await whole;
      if (own.discarded) return;
      const clip = longEnough(own.last(), MIN_S);
      await keep(voice, clip, clip);
    } else {
      const live = guess(own);
      await Promise.all([whole, live]);
    }
  } finally {
    own.stop();
    if (recording?.own === own) {
      recording = undefined;
      $("listen").textContent = "Who is it?";
    }
    update();
  }
}

/** Compares the latest seconds again and again. */
async function guess(own: Recording): Promise<void> {
  while (!own.ended) {
    await new Promise((done) => setTimeout(done, AGAIN_MS));
    const clip = own.last(LATEST_S);
    if (own.ended || secondsOf(clip) < MIN_S) continue;
    const power = clip.array.reduce((sum, x) => sum + x * x, 0) / clip.array.length;
    if (Math.sqrt(power) < QUIET) $("verdict").textContent = "It is quiet.";
    else await compare(clip);
  }
}

// Samples

/** Adds voices that the page has made, and offers more of their recordings to be tried. */
async function useSamples(): Promise<void> {
  if (!$("samples").childElementCount)
    for (const { name, clip } of newRecordings()) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.textContent = `A new recording: ${name}`;
      pressed(button, () => hear(clip, clip));
      $("samples").append(button);
    }
  $("samples").hidden = false;
  for (const { name, clips } of sampleVoices()) {
    const own = voices.find((voice) => voice.name.value === name);
    if (own?.samples.length || own?.kept) continue;
    const voice = own ?? addVoice(name);
    for (const clip of clips) await keep(voice, clip, clip);
  }
  withoutEmpty();
  $("samples").querySelector("button")!.focus();
}

/** Tells whose recording this is. */
async function hear(sound: Blob | Clip, drawn: Clip | undefined): Promise<void> {
  needed(who);
  recording?.own.stop();
  hideError();
  shown = drawn ?? shown;
  drawWave(wave, shown);
  await compare(sound);
}

// Files of voices

function save(): void {
  const file = { format: "edgewise-voices", voices: Object.fromEntries(known()) };
  download(new Blob([JSON.stringify(file)], { type: "application/json" }), "voices.json");
}

async function open(file: File): Promise<void> {
  const found = parsed(await file.text());
  if (!found)
    throw new InputError("it has no voices", file.name, "Give a file that this room has saved.");
  const size = found[0]![1].length;
  const own = (await vectorOf({ array: new Float32Array(16_000), sampling_rate: 16_000 })).length;
  if (found.some(([, vector]) => vector.length !== own))
    throw new InputError(
      `its voices have ${size} numbers, those of this model ${own}`,
      file.name,
      "Choose the model that they were recorded with.",
    );
  for (const [name, vector] of found) addVoice(name, unit(vector));
  withoutEmpty();
}

/** Removes voices without recordings, except those that the user has named. */
function withoutEmpty(): void {
  for (const voice of [...voices])
    if (
      !voice.kept &&
      !voice.samples.length &&
      !isNamed(voice.name) &&
      recording?.voice !== voice
    ) {
      voices.splice(voices.indexOf(voice), 1);
      voice.item.remove();
    }
  update();
}

/** The voices of a file; undefined if it is none. */
function parsed(text: string): [string, number[]][] | undefined {
  let file: { format?: unknown; voices?: unknown };
  try {
    file = JSON.parse(text) as typeof file;
  } catch {
    return undefined;
  }
  if (file?.format !== "edgewise-voices" || typeof file.voices !== "object") return undefined;
  const found = Object.entries(file.voices ?? {});
  const isVector = (v: unknown) => Array.isArray(v) && v.length > 0 && v.every(Number.isFinite);
  return found.length && found.every(([, v]) => isVector(v)) ? found : undefined;
}

// The page's elements

pressed("listen", () => record());
pressed("more", () => addVoice(`voice ${voices.length + 1}`).name.select());
pressed("save", save);
pressed("error-close", hideError);
pressedOnce("use-samples", useSamples);
chosen("try", async ([file]) => {
  needed(who);
  await hear(file!, await samplesOf(file!));
});
chosen("open", ([file]) => open(file!));
input("threshold").addEventListener("input", showScores);
onKey((key) => {
  if (key === "Escape") return recording?.own.stop();
  const voice = voices[Number(key) - 1];
  return voice && record(voice);
});
new ResizeObserver(() => {
  if (!recording) drawWave(wave, shown);
}).observe(wave);

addVoice("me");
addVoice("somebody else");
void offerReal("who", load, {
  id: "Xenova/wavlm-base-plus-sv",
  title: "WavLM",
  licence: "MIT",
});
await load(query.get("model") ?? undefined);
