// What a page of each bundler and framework does: a text, the label of a picture, and a sound. The
// picture needs the engine with all kernels, the sound two parts of the worker; neither is in the
// one file.
import { pipeline } from "edgewise";

export async function everything() {
  const write = await pipeline("text-generation", "/model.edge");
  const [{ generated_text: text }] = await write("Once", { max_new_tokens: 8, do_sample: false });
  const see = await pipeline("image-classification", "/picture.edge");
  const data = new Uint8ClampedArray(8 * 8 * 4).map((_, i) => [9, 200, 9, 255][i % 4]);
  const [{ label }] = await see(new ImageData(data, 8, 8), { top_k: 1 });
  const clean = await pipeline("audio-to-audio", "/sound.edge", { sampling_rate: 8000 });
  const { audio } = await clean(new Float32Array(600).fill(0.5));
  const sound = [audio].flat()[0];
  return `${text} / ${label} / ${sound.length} samples of ${sound[599]}`;
}
