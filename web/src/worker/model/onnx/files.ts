// What a page asks of a model without loading it: its texts, and which graph it has.

import type { LoadRequest, ModelFiles } from "../../../protocol/loading.ts";
import { InputError } from "../../../shared/errors.ts";
import { Job, type Progress } from "../job.ts";
import { TEXT_FILES } from "../packages.ts";
import { firstOf } from "./first.ts";
import { locate } from "./hub.ts";
import { fetchTexts } from "./texts.ts";

/** The files of a model in a folder or on a hub. @throws InputError, ModelError, Aborted */
export async function modelFiles(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<ModelFiles> {
  const { model, base } = request;
  if (typeof model !== "string" || /\.edge([?#]|$)/.test(model))
    throw new InputError(
      "it is no model's folder or id",
      String(model).slice(0, 200),
      "Give one; a package's tokenizer is that of its pipeline.",
    );
  const job = new Job(request, signal, progress);
  try {
    const { folder, graphFolder, graphs } = locate(model, base, request);
    const url = (name: string): string => new URL(name, folder).href;
    await job.begin(folder, (listing) => TEXT_FILES.map(url).filter((file) => listing.find(file)));
    const texts = Object.fromEntries(await fetchTexts(job, folder, TEXT_FILES));
    const candidates = graphs.flatMap(([graph]) => graph?.candidates ?? []);
    const places = candidates.map(({ path }) => new URL(path, graphFolder).href);
    return { texts, onnx: await firstOf(job, places) };
  } finally {
    job.close();
  }
}
