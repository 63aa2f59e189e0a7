// The room "See": teaches a model of pictures the things of its user, by camera or files. Uses only
// the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS, ?threads=N.

import {
  type ImageClassificationPipeline,
  InputError,
  type PersonalPipeline,
  personalize,
  pipeline,
} from "edgewise";
import { lossChart } from "../chart.ts";
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
  onKey,
  pressed,
  pressedOnce,
  query,
  showError,
  unused,
} from "./room.ts";
import { newPictures, samplePictures } from "./samples.ts";

type Format = "onnx" | "edge";
type Personal = PersonalPipeline<ImageClassificationPipeline>;

/** A thing with its pictures. */
interface Thing {
  name: HTMLInputElement;
  thumbs: HTMLElement;
  pictures: ImageBitmap[];
}

const SIDE = 224; // pixels of the pictures that are kept
const HOLD_MS = 250; // between pictures while a button is held
const STEPS = 300;
const OWN = 5; // labels of the model itself that are shown while it has learned no things
const video = $<HTMLVideoElement>("video");
const things: Thing[] = [];
const chart = lossChart($("chart"));
let see: ImageClassificationPipeline | undefined;
let mine: Personal | undefined;
let watching = false;
/** A picture that was tried, while there is no camera. */
let tried: ImageBitmap | undefined;
/** Names of things by the labels of the head. */
let known: string[] = [];
/** Whether the model is the one that comes with the page. */
let isOwn = false;

// The model

const load = modelOf<ImageClassificationPipeline>({
  sample: "see.edge",
  async open(model, options, isSample, claim) {
    const loaded = await pipeline("image-classification", model, { ...options, personalize: true });
    const taught = await personalize(loaded).catch((e: unknown) => {
      void loaded.dispose();
      throw e;
    });
    if (!claim()) return unused(loaded);
    void see?.dispose();
    [see, mine, known, isOwn] = [loaded, taught, [], isSample];
    input("camera").disabled = input("use-samples").disabled = false;
    void learn();
    return loaded;
  },
});

// Things

function addThing(name: string): Thing {
  const index = things.length + 1;
  const item = document.createElement("li");
  item.className = "thing";
  item.innerHTML =
    '<input type="text" maxlength="40"><div class="buttons"><button type="button" class="take">' +
    '</button><label class="button">Pictures<input type="file" accept="image/*" multiple ' +
    'class="visually-hidden"></label><button type="button" class="plain">Remove</button></div>' +
    '<div class="thumbs"></div>';
  const field = item.querySelector<HTMLInputElement>("input[type=text]")!;
  field.value = field.dataset.given = name;
  field.setAttribute("aria-label", `Name of thing ${index}`);
  const take = item.querySelector<HTMLButtonElement>(".take")!;
  take.textContent = `Take a picture (${index})`;
  const thing: Thing = { name: field, thumbs: item.querySelector(".thumbs")!, pictures: [] };
  holds(take, () => void snap(thing).catch(showError));
  chosen(item.querySelector<HTMLInputElement>("input[type=file]")!, (files) => give(thing, files));
  item.querySelector(".plain")!.addEventListener("click", () => {
    remove(thing);
    void learn();
  });
  field.addEventListener("change", () => void learn());
  things.push(thing);
  $("things").append(item);
  return thing;
}

function remove(thing: Thing): void {
  things.splice(things.indexOf(thing), 1);
  for (const picture of thing.pictures) picture.close();
  thing.thumbs.parentElement!.remove();
  things.forEach((one, i) => {
    one.thumbs.parentElement!.querySelector(".take")!.textContent = `Take a picture (${i + 1})`;
  });
}

/** Acts when a button is pressed, and again and again while it is held. */
function holds(button: HTMLButtonElement, act: () => void): void {
  let timer: ReturnType<typeof setInterval> | undefined;
  const stop = () => clearInterval(timer);
  button.addEventListener("pointerdown", () => {
    stop();
    timer = setInterval(act, HOLD_MS);
  });
  for (const name of ["pointerup", "pointerleave", "pointercancel"])
    button.addEventListener(name, stop);
  button.addEventListener("click", act);
}

/** Takes a picture of a thing with the camera. */
async function snap(thing: Thing): Promise<void> {
  if (!watching) return void ($("note").textContent = "Turn the camera on first.");
  await keep(thing, [await square(video)]);
}

async function give(thing: Thing, files: File[]): Promise<void> {
  const pictures: ImageBitmap[] = [];
  try {
    for (const file of files) pictures.push(await squareOf(file));
  } finally {
    await keep(thing, pictures); // those before a damaged one
  }
}

/** The middle of a file's picture. */
async function squareOf(file: File): Promise<ImageBitmap> {
  let whole: ImageBitmap;
  try {
    whole = await createImageBitmap(file);
  } catch {
    throw new InputError(
      `${file.name} is no picture that this browser reads`,
      "",
      "Choose a picture, such as a JPEG or PNG file.",
    );
  }
  try {
    return await square(whole);
  } finally {
    whole.close();
  }
}

/** The middle of a picture, as it is shown. */
function square(given: HTMLVideoElement | HTMLCanvasElement | ImageBitmap): Promise<ImageBitmap> {
  const isVideo = given instanceof HTMLVideoElement;
  const width = isVideo ? given.videoWidth : given.width;
  const height = isVideo ? given.videoHeight : given.height;
  const side = Math.min(width, height);
  return createImageBitmap(given, (width - side) / 2, (height - side) / 2, side, side, {
    resizeWidth: SIDE,
    resizeHeight: SIDE,
    resizeQuality: "high",
  });
}

async function keep(thing: Thing, pictures: ImageBitmap[]): Promise<void> {
  for (const picture of pictures) {
    thing.pictures.push(picture);
    const thumb = Object.assign(document.createElement("canvas"), { width: 80, height: 80 });
    thumb.getContext("2d")!.drawImage(picture, 0, 0, 80, 80);
    thing.thumbs.append(thumb);
  }
  await learn();
}

// Learning

let learning: Promise<void> | undefined;
let again = false;

/** Learns all things, once more at the end if something changed meanwhile. */
function learn(): Promise<void> {
  again = true;
  learning ??= (async () => {
    while (again) {
      again = false;
      await lesson().catch(showError);
    }
    learning = undefined;
  })();
  return learning;
}

async function lesson(): Promise<void> {
  const given = new Map<string, ImageBitmap[]>();
  for (const { name, pictures } of things)
    if (pictures.length) {
      const label = name.value.trim() || name.placeholder;
      given.set(label, [...(given.get(label) ?? []), ...pictures]);
    }
  const total = [...given.values()].reduce((sum, one) => sum + one.length, 0);
  $("figure-examples").textContent = number(total);
  if (!mine || given.size < 2) {
    known = [];
    keepable(false);
    $("verdict").textContent = given.size
      ? "Show it one more thing."
      : "Show it two things or more.";
    if (!watching) await look();
    return;
  }
  $("note").textContent = "Learning";
  const enough = [...given.values()].every((one) => one.length > 2);
  const { losses, ms, validation, labels } = await mine.teach(Object.fromEntries(given), {
    validation_split: enough ? 0.25 : 0,
  });
  known = Object.keys(labels);
  keepable(true);
  $("learning").hidden = false;
  chart.begin(STEPS, losses);
  $("figure-learning").textContent = seconds(ms.training);
  $("figure-picture").textContent = seconds(ms.features / Math.max(1, total));
  $("figure-accuracy").textContent =
    validation?.accuracy == null ? "–" : `${number(100 * validation.accuracy)} %`;
  $("learn-words").textContent =
    `Its last lesson: ${total} pictures of ${given.size} things, ${seconds(ms.training)}` +
    (validation ? `; ${validation.count} pictures were held out to check it` : "");
  $("note").textContent = "";
  count("lessons");
  if (!watching) await look();
}

// Seeing

/** Shows the scores of what the camera sees, or of the picture that was tried. */
async function look(): Promise<void> {
  const picture = watching ? await square(video) : tried;
  try {
    // the picture is copied
    if (picture && mine && known.length) show(await mine(picture, { top_k: null }), known);
    else if (picture && see && !isOwn) {
      const found = await see(picture, { top_k: OWN });
      show(
        found,
        found.map(({ label }) => label),
      );
    }
  } finally {
    if (picture !== tried) picture?.close();
  }
}

/** Shows the scores of these labels. */
function show(found: readonly { label: string; score: number }[], labels: string[]): void {
  const rows = new Map(found.map(({ label, score }) => [label, score]));
  const names = labels.filter((label) => rows.has(label));
  bars(
    $("scores"),
    names.map((label) => ({
      label,
      part: rows.get(label)!,
      text: `${number(100 * rows.get(label)!)} %`,
    })),
  );
  const [first] = found;
  if (!first) return;
  const words = first.score > 0.6 ? `This is “${first.label}”.` : "It is not sure.";
  if ($("verdict").textContent !== words) $("verdict").textContent = words;
  document.body.dataset.seen = first.label;
}

async function watch(): Promise<void> {
  let stream: MediaStream | undefined;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment", width: { ideal: 640 }, height: { ideal: 480 } },
    });
    video.srcObject = stream;
    await video.play();
  } catch (e) {
    for (const track of stream?.getTracks() ?? []) track.stop();
    video.srcObject = null;
    throw new InputError(
      `there is no camera (${e instanceof Error ? e.message : String(e)})`,
      "",
      "Allow it in the browser, or choose pictures from files.",
    );
  }
  watching = true;
  $("nothing").hidden = $("picture").hidden = true;
  video.hidden = false;
  $("camera").textContent = "Turn the camera off";
  while (watching) {
    await look().catch(showError);
    await new Promise((done) => setTimeout(done, 60));
  }
}

function unwatch(): void {
  watching = false;
  for (const track of (video.srcObject as MediaStream | null)?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  video.hidden = true;
  $("nothing").hidden = false;
  $("camera").textContent = "Use the camera";
}

async function tryPicture(file: File): Promise<void> {
  await attempt(await squareOf(file), file);
}

/** Shows a picture, and tells what it is. */
async function attempt(picked: ImageBitmap, file: Blob): Promise<void> {
  if (watching) unwatch();
  tried?.close();
  tried = picked;
  const picture = $<HTMLImageElement>("picture");
  URL.revokeObjectURL(picture.src);
  picture.src = URL.createObjectURL(file);
  picture.hidden = false;
  $("nothing").hidden = true;
  await look();
}

// Samples

/** Adds things that the page draws, and offers more of their pictures to be tried. */
async function useSamples(): Promise<void> {
  if (!$("samples").childElementCount)
    for (const { name, picture } of newPictures()) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.setAttribute("aria-label", `Try a new picture of ${name}`);
      button.append(picture);
      pressed(button, async () => {
        const blob = await new Promise<Blob | null>((done) => picture.toBlob(done));
        await attempt(await square(picture), blob!);
      });
      $("samples").append(button);
    }
  $("samples").hidden = false;
  const unnamed = things.filter(({ name, pictures }) => !pictures.length && !isNamed(name));
  for (const thing of unnamed) remove(thing);
  for (const { name, pictures } of samplePictures()) {
    const own = things.find((thing) => thing.name.value === name);
    if (own?.pictures.length) continue;
    await keep(own ?? addThing(name), await Promise.all(pictures.map(square)));
  }
  $("samples").querySelector("button")!.focus();
}

// Files

function keepable(learned: boolean): void {
  for (const id of ["save", "export-onnx", "export-edge"]) input(id).disabled = !learned;
}

/** The model with what it learned. The room's own is a package, whose graph is beside it. */
async function exported(format: Format): Promise<Blob> {
  if (!isOwn) return mine!.export(format);
  const learned = await mine!.save(); // before another model may be chosen
  const folder = new URL("see/", document.baseURI).href;
  const whole = await pipeline("image-classification", folder, { personalize: true });
  try {
    return await (await personalize(whole, learned)).export(format);
  } finally {
    await whole.dispose();
  }
}

let writing = false;

/** Gives the user the model as a file, one at a time. */
async function hand(format: Format): Promise<void> {
  if (writing) return;
  writing = true;
  $("note").textContent = "Python writes the file, which takes some seconds.";
  try {
    download(await exported(format), `my-things.${format}`);
  } finally {
    writing = false;
    $("note").textContent = "";
  }
}

// The page's elements

pressed("camera", () => (watching ? unwatch() : watch()));
pressedOnce("use-samples", useSamples);
pressed("more", () => addThing(`thing ${things.length + 1}`).name.select());
pressed("error-close", hideError);
chosen("try", ([file]) => tryPicture(file!));
chosen("open", async ([file]) => {
  if (!mine) return;
  known = Object.keys((await mine.load(file!)).labels);
  $("note").textContent = `It knows ${known.join(", ")}.`;
  keepable(true);
  await look();
});
pressed("export-onnx", () => hand("onnx"));
pressed("export-edge", () => hand("edge"));
pressed("save", async () => download(await mine!.save(), "my-things.safetensors"));
onKey((key) => {
  const thing = things[Number(key) - 1];
  return thing && snap(thing);
});

addThing("a cup");
addThing("keys");
addThing("other");
void offerReal("see", load, {
  id: "onnx-community/mobilenetv4_conv_small.e2400_r224_in1k",
  title: "MobileNetV4",
  licence: "Apache-2.0",
});
await load(query.get("model") ?? undefined);
