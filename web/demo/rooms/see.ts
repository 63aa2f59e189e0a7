// The room "See": teaches a model of pictures the things of its user, by camera or files. Uses only
// the public API of Edgewise.
//
// Settings in the address: ?model=ADDRESS, ?threads=N.

import {
  type ImageClassificationPipeline,
  type ModelSource,
  type PersonalPipeline,
  personalize,
  pipeline,
} from "edgewise";
import { lossChart } from "../chart.ts";
import { $, input, megabytes, number, seconds, tellError } from "../page.ts";

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
const query = new URLSearchParams(location.search);
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

const showError = (e: unknown): void => tellError("error", e);

// The model

async function load(model: ModelSource): Promise<void> {
  $("error").hidden = true;
  $("progress").hidden = false;
  $("progress-bar").parentElement!.classList.add("busy");
  try {
    const threads = Number(query.get("threads")) || undefined;
    const loaded = await pipeline("image-classification", model, {
      threads,
      personalize: true,
      cache_files: true,
      progress_callback: (event) => {
        if (event.status === "compile")
          $("progress-words").textContent = "Python compiles the model";
      },
    });
    const taught = await personalize(loaded).catch((e: unknown) => {
      void loaded.dispose();
      throw e;
    });
    void see?.dispose();
    [see, mine] = [loaded, taught];
    const { flavour, threads: count, ms, memory } = loaded.info;
    $("status").textContent =
      `Engine: ${flavour}, ${count === 1 ? "1 thread" : `${count} threads`} · ` +
      `ready in ${seconds(ms.load)} · weights ${megabytes(memory.weights)}`;
    await learn();
  } catch (e) {
    showError(e);
  } finally {
    $("progress").hidden = true;
    input("camera").disabled = !see;
  }
}

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
  field.value = name;
  field.setAttribute("aria-label", `Name of thing ${index}`);
  const take = item.querySelector<HTMLButtonElement>(".take")!;
  take.textContent = `Take a picture (${index})`;
  const thing: Thing = { name: field, thumbs: item.querySelector(".thumbs")!, pictures: [] };
  holds(take, () => void snap(thing));
  const files = item.querySelector<HTMLInputElement>("input[type=file]")!;
  files.addEventListener("change", () => {
    void give(thing, Array.from(files.files ?? []));
    files.value = "";
  });
  item.querySelector(".plain")!.addEventListener("click", () => {
    things.splice(things.indexOf(thing), 1);
    item.remove();
    things.forEach((one, i) => {
      one.thumbs.parentElement!.querySelector(".take")!.textContent = `Take a picture (${i + 1})`;
    });
    void learn();
  });
  field.addEventListener("change", () => void learn());
  things.push(thing);
  $("things").append(item);
  return thing;
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
  try {
    const pictures: ImageBitmap[] = [];
    for (const file of files)
      pictures.push(await square(await createImageBitmap(file).catch(() => unreadable(file))));
    await keep(thing, pictures);
  } catch (e) {
    showError(e);
  }
}

function unreadable(file: File): never {
  throw new Error(`${file.name} is no picture that this browser reads`);
}

/** The middle of a picture, as it is shown. */
function square(given: HTMLVideoElement | ImageBitmap): Promise<ImageBitmap> {
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
    input("save").disabled = true;
    $("verdict").textContent = given.size
      ? "Show it one more thing."
      : "Show it two things or more.";
    return;
  }
  $("note").textContent = "Learning";
  const enough = [...given.values()].every((one) => one.length > 2);
  // each picture is sent as a copy
  const copies = await Promise.all(
    Array.from(
      given,
      async ([label, all]): Promise<[string, ImageBitmap[]]> => [
        label,
        await Promise.all(all.map((one) => createImageBitmap(one))),
      ],
    ),
  );
  const { losses, ms, validation, labels } = await mine.teach(Object.fromEntries(copies), {
    validation_split: enough ? 0.25 : 0,
  });
  known = Object.keys(labels);
  input("save").disabled = false;
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
  document.body.dataset.lessons = String(Number(document.body.dataset.lessons ?? 0) + 1);
  if (!watching) await look();
}

// Seeing

/** Shows the scores of what the camera sees, or of the picture that was tried. */
async function look(): Promise<void> {
  const picture = watching ? await square(video) : tried && (await createImageBitmap(tried));
  if (!picture || !mine || !known.length) return;
  const found = await mine(picture, { top_k: null });
  show(found);
}

function show(found: readonly { label: string; score: number }[]): void {
  const rows = new Map(found.map(({ label, score }) => [label, score]));
  const names = known.filter((label) => rows.has(label));
  const body = $("scores");
  while (body.childElementCount > names.length) body.lastElementChild!.remove();
  names.forEach((label, i) => {
    const score = rows.get(label)!;
    let row = body.children[i];
    if (!row) {
      row = document.createElement("tr");
      row.innerHTML = '<th scope="row"></th><td><meter max="1"></meter></td><td></td>';
      body.append(row);
    }
    row.querySelector("th")!.textContent = label;
    row.querySelector("meter")!.value = score;
    row.lastElementChild!.textContent = `${number(100 * score)} %`;
  });
  const [first] = found;
  if (!first) return;
  const words = first.score > 0.6 ? `This is “${first.label}”.` : "It is not sure.";
  if ($("verdict").textContent !== words) $("verdict").textContent = words;
  document.body.dataset.seen = first.label;
}

async function watch(): Promise<void> {
  try {
    const stream = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment", width: { ideal: 640 }, height: { ideal: 480 } },
    });
    video.srcObject = stream;
    await video.play();
  } catch (e) {
    const why = e instanceof Error ? e.message : String(e);
    showError(new Error(`there is no camera (${why}); choose pictures from files`));
    return;
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
  if (watching) unwatch();
  tried = await square(await createImageBitmap(file).catch(() => unreadable(file)));
  const picture = $<HTMLImageElement>("picture");
  URL.revokeObjectURL(picture.src);
  picture.src = URL.createObjectURL(file);
  picture.hidden = false;
  $("nothing").hidden = true;
  await look();
}

// The page's elements

const chosen = (id: string, act: (files: File[]) => unknown): void =>
  input(id).addEventListener("change", () => {
    const files = Array.from(input(id).files ?? []);
    input(id).value = "";
    if (files.length) Promise.resolve(act(files)).catch(showError);
  });

$("camera").addEventListener("click", () => void (watching ? unwatch() : watch()));
$("more").addEventListener("click", () => addThing(`thing ${things.length + 1}`).name.select());
$("error-close").addEventListener("click", () => ($("error").hidden = true));
chosen("try", ([file]) => tryPicture(file!));
chosen("files", (files) => load(files));
chosen("open", async ([file]) => {
  known = Object.keys((await mine!.load(file!)).labels);
  $("note").textContent = `It knows ${known.join(", ")}.`;
  input("save").disabled = false;
  await look();
});
$("save").addEventListener("click", async () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await mine!.save());
  link.download = "my-things.safetensors";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
});
document.addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
  if (target instanceof HTMLInputElement || ctrlKey || metaKey || altKey) return;
  const thing = things[Number(key) - 1];
  if (thing) void snap(thing);
});

addThing("a cup");
addThing("keys");
addThing("other");
await load(query.get("model") ?? new URL("see.edge", location.href));
