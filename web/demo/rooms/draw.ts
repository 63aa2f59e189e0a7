// The room "Draw": makes pictures of texts, and shows each step. Uses only the public API of
// Edgewise.
//
// Settings in the address: ?model=ADDRESS, ?threads=N.

import { Aborted, pipeline, type RawImage, type TextToImagePipeline } from "edgewise";
import { $, input, seconds } from "../page.ts";
import {
  count,
  download,
  hideError,
  modelOf,
  needed,
  onKey,
  pressed,
  query,
  showError,
  unused,
} from "./room.ts";

/** Prompts for the model that comes with the page. */
const IDEAS = [
  "a big red heart",
  "a small blue star at the top left",
  "a green flower",
  "a yellow moon on the right",
  "a ring",
];
const MAX_KEPT = 12;
/** Settings of the model that comes with the page, and of others. */
const SETTINGS = { sample: { steps: 20, guidance: 3 }, own: { steps: 20, guidance: 7.5 } };

let draw: TextToImagePipeline | undefined;
let drawing: AbortController | undefined;
let finished: RawImage | undefined;
const canvas = $<HTMLCanvasElement>("picture");

/** The elements of what decides a picture. */
const DECIDING = ["prompt", "negative", "steps", "guidance", "seed"] as const;
type Settings = Record<(typeof DECIDING)[number], string>;

// The model

const load = modelOf<TextToImagePipeline>({
  sample: "draw.edge",
  async open(model, options, isSample, claim) {
    const loaded = await pipeline("text-to-image", model, options);
    if (!claim()) return unused(loaded);
    drawing?.abort();
    void draw?.dispose();
    draw = loaded;
    const { steps, guidance } = isSample ? SETTINGS.sample : SETTINGS.own;
    input("steps").value = String(steps);
    input("guidance").value = String(guidance);
    $("starts").hidden = !isSample;
    $("words-known").hidden = !isSample;
    input("draw").disabled = false;
    return loaded;
  },
});

// Drawing

/** A setting; undefined if it is empty. */
const setting = (id: string): number | undefined =>
  input(id).value === "" ? undefined : Number(input(id).value);

async function make(): Promise<void> {
  const model = needed(draw);
  drawing?.abort();
  const own = (drawing = new AbortController());
  const settings = Object.fromEntries(DECIDING.map((id) => [id, input(id).value])) as Settings;
  const prompt = settings.prompt.trim();
  hideError();
  busy(true);
  say(`Drawing “${prompt}”`);
  showSteps(0, 1);
  const began = performance.now();
  try {
    const { images, seeds, nsfw_content_detected } = await model(prompt, {
      num_inference_steps: setting("steps"),
      guidance_scale: setting("guidance"),
      seed: setting("seed") ?? Math.floor(Math.random() * 2 ** 31),
      negative_prompt: input("negative").value.trim() || undefined,
      preview_steps: 1,
      signal: own.signal,
      onStep({ step, steps, previews: [preview] }) {
        if (own !== drawing) return;
        if (preview) show(preview, prompt);
        showSteps(step + 1, steps);
        const each = (performance.now() - began) / (step + 1);
        $("figure-time").textContent = seconds(each);
        $("figure-left").textContent = seconds(each * (steps - step - 1));
      },
    });
    if (own !== drawing) return;
    finished = images[0]!;
    show(finished, prompt);
    $("figure-seed").textContent = String(seeds[0]);
    say(
      nsfw_content_detected?.[0]
        ? "The safety checker has blackened the picture."
        : `“${prompt}”, in ${seconds(performance.now() - began)}`,
    );
    remember(finished, { ...settings, prompt, seed: String(seeds[0]) }, model);
    input("save").disabled = false;
    document.body.dataset.seed = String(seeds[0]);
    count("drawn");
  } catch (e) {
    if (own !== drawing) return;
    say(e instanceof Aborted ? "Stopped." : "Nothing was drawn.");
    if (!(e instanceof Aborted)) showError(e);
  } finally {
    if (own === drawing) {
      drawing = undefined;
      busy(false);
    }
  }
}

function busy(is: boolean): void {
  input("stop").disabled = !is;
  $("draw").textContent = is ? "Draw again" : "Draw";
}

const say = (words: string): void => void ($("verdict").textContent = words);

function showSteps(done: number, steps: number): void {
  const bar = $("steps-bar");
  bar.setAttribute("aria-valuemax", String(steps));
  bar.setAttribute("aria-valuenow", String(done));
  $("steps-done").style.width = `${(100 * done) / steps}%`;
  $("figure-step").textContent = done ? `${done} of ${steps}` : "–";
  document.body.dataset.step = String(done);
}

/** Shows a picture or a preview, which is smaller. */
function show(image: RawImage, prompt: string): void {
  const { width, height } = image;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.getContext("2d")!.drawImage(image.toCanvas(), 0, 0);
  canvas.setAttribute("aria-label", prompt);
}

/** Keeps a picture in the list of earlier ones; a press on it brings it and its settings back. */
function remember(image: RawImage, settings: Settings, model: TextToImagePipeline): void {
  const { prompt, seed } = settings;
  const button = Object.assign(document.createElement("button"), { type: "button" });
  const small = document.createElement("canvas");
  small.width = small.height = 96;
  small.getContext("2d")!.drawImage(image.toCanvas(), 0, 0, 96, 96);
  button.append(small);
  button.setAttribute("aria-label", `${prompt}, seed ${seed}`);
  button.title = `${prompt}, seed ${seed}`;
  pressed(button, () => {
    if (drawing) return;
    finished = image;
    show(image, prompt);
    if (model !== draw) return say(`“${prompt}”, of a model before this one.`);
    for (const id of DECIDING) input(id).value = settings[id];
    say(`“${prompt}”. Its seed and settings are back: “Draw” gives it again.`);
  });
  const item = document.createElement("li");
  item.append(button);
  $("pictures").prepend(item);
  while ($("pictures").childElementCount > MAX_KEPT) $("pictures").lastElementChild!.remove();
}

// The page's elements

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  make().catch(showError);
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $<HTMLFormElement>("form").requestSubmit($("draw"));
});
pressed("stop", () => drawing?.abort());
pressed("save", async () => {
  if (finished) download(await finished.toBlob(), "picture.png");
});
pressed("error-close", hideError);
onKey((key) => {
  if (key === "Escape") drawing?.abort();
});
for (const idea of IDEAS) {
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.textContent = idea;
  pressed(button, () => {
    input("prompt").value = idea;
    return make();
  });
  $("starts").append(button);
}

await load(query.get("model") ?? undefined);
