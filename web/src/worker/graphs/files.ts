// The files of a model of several graphs: those that exist of the names that a kind knows, or a
// package with them.

import type { DType, LoadRequest } from "../../protocol/loading.ts";
import { InputError, PackageError } from "../../shared/errors.ts";
import { Job, type Progress, type Texts } from "../model/job.ts";
import { type Filled, fillModel } from "../model/load.ts";
import { firstOf } from "../model/onnx/first.ts";
import { graphFiles } from "../model/onnx/graphs.ts";
import { locate } from "../model/onnx/hub.ts";
import { fetchTexts } from "../model/onnx/texts.ts";
import type { Manifest } from "../package/manifest.ts";

/** A model: its graphs by name, what lies beside files, and its small files. */
export interface FoundGraphs {
  graphs: Map<string, string | Blob>;
  external: Record<string, Blob>;
  texts: Texts;
  where: string;
  /** A package, whose programs are graphs, too. */
  packed?: Filled;
}

/**
 * Finds the graphs of a model.
 * @param stems names of files without suffix and extension; those that exist are found
 * @param names of small files
 * @throws InputError if there is none; PackageError if a package is for another task
 */
export async function findGraphs(
  request: LoadRequest,
  stems: readonly string[],
  names: readonly string[],
  signal: AbortSignal,
  progress: Progress,
): Promise<FoundGraphs> {
  const { model } = request;
  if (isPackage(model)) return packed(request, signal, progress);
  const found = Array.isArray(model)
    ? await chosen(model, request, stems, names)
    : await atAddress(model as string, request, stems, names, signal, progress);
  if (found.graphs.size) return found;
  throw noGraphs(stems, found.where);
}

/** The error of a model that has no such graphs. */
export const noGraphs = (stems: readonly string[], where: string): InputError =>
  new InputError(
    `it has none of ${stems.map((stem) => `${stem}.onnx`).join(", ")}`,
    where,
    "Give the model's folder, or the address of its .onnx file.",
  );

/** Whether a model is a package, or a stream, which only packages are. */
function isPackage(model: LoadRequest["model"]): boolean {
  if (Array.isArray(model)) return model.some(({ name }) => name.endsWith(".edge"));
  return typeof model === "object" || /\.edge([?#]|$)/.test(model);
}

async function packed(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<FoundGraphs> {
  const check = ({ task, programs }: Manifest, where: string): void => {
    if (task === request.task && programs) return;
    throw new PackageError(
      `it was built for '${task}'`,
      where,
      `Build it with \`edgewise build --task ${request.task}\`.`,
    );
  };
  const filled = await fillModel(request, signal, progress, check, (made) => made);
  const { texts, found } = filled;
  return { graphs: new Map(), external: {}, texts, where: found.where, packed: filled };
}

/** Where a graph may be, in order of preference. */
function candidates({ dtype, subfolder }: LoadRequest, stem: string): string[] {
  const own: DType = typeof dtype === "object" ? (dtype[stem] ?? "auto") : dtype;
  const [[file] = []] = graphFiles("", own, subfolder, stem);
  return file!.candidates.map(({ path }) => path);
}

async function chosen(
  list: { name: string; blob: Blob }[],
  request: LoadRequest,
  stems: readonly string[],
  names: readonly string[],
): Promise<FoundGraphs> {
  const base = (name: string) => name.slice(name.lastIndexOf("/") + 1);
  const files = new Map(list.map(({ name, blob }) => [base(name), blob]));
  const where = list[0]?.name ?? "files";
  const graphs = new Map<string, Blob>();
  for (const stem of stems) {
    const name = candidates(request, stem)
      .map(base)
      .find((path) => files.has(path));
    if (name) graphs.set(stem, files.get(name)!);
  }
  const onnx = list.filter(({ name }) => name.endsWith(".onnx"));
  if (!graphs.size && onnx.length === 1) graphs.set("model", onnx[0]!.blob);
  const texts: Texts = new Map();
  for (const name of names) {
    const blob = files.get(base(name));
    if (blob) texts.set(name, await blob.text());
  }
  return { graphs, external: Object.fromEntries(files), texts, where };
}

async function atAddress(
  model: string,
  request: LoadRequest,
  stems: readonly string[],
  names: readonly string[],
  signal: AbortSignal,
  progress: Progress,
): Promise<FoundGraphs> {
  const job = new Job(request, signal, progress);
  const graphs = new Map<string, string>();
  try {
    const { folder, graphFolder, graphs: one } = locate(model, request.base, request);
    const url = (name: string): string => new URL(name, folder).href;
    await job.begin(folder, (listing) => names.map(url).filter((file) => listing.find(file)));
    const texts = await fetchTexts(job, folder, names);
    if (/\.onnx([?#]|$)/.test(model)) graphs.set("model", one[0]![0]!.candidates[0]!.path);
    else
      for (const stem of stems) {
        const found = await firstOf(
          job,
          candidates(request, stem).map((path) => new URL(path, graphFolder).href),
        );
        if (found) graphs.set(stem, found);
      }
    return { graphs, external: {}, texts, where: model };
  } finally {
    job.close();
  }
}
