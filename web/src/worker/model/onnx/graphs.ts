// Which .onnx files a task's model consists of: those of
// python/edgewise/logic/manifest/limits.py's GRAPHS, each in the first precision that exists.

import { EMBEDDINGS, GRAPHS, SUFFIX_OF } from "../../../gen/manifest.ts";
import type { DType } from "../../../protocol/loading.ts";
import { InputError, ModelError } from "../../../shared/errors.ts";
import { NotFound } from "../../../shared/files/connection.ts";
import type { Remote } from "../../files/downloads.ts";
import type { Listing } from "../../files/listing.ts";
import { checkDTypes, type DTypes, SUFFIX } from "../dtypes.ts";

const AUTO: Exclude<DType, "auto">[] = ["q8", "q4", "fp32", "fp16", "q4f16"];

/** A file of a model, and where it may be, in order of preference. */
export interface GraphFile {
  /** Name without suffix and extension, as in GRAPHS; for other tasks `model`. */
  stem: string;
  /** Whether a model may lack it. */
  optional: boolean;
  /** `path` is an address relative to the model's folder. */
  candidates: { path: string; dtype: string }[];
}

/** A file that was found. `name` is the one that the compiler knows it by. */
export interface FoundGraph {
  stem: string;
  name: string;
  dtype: string;
}

/** Whether a task's model has several files in any case. */
export function hasSeveral(task: string): boolean {
  const names = GRAPHS[task]?.[0];
  return names !== undefined && names[0] !== "model";
}

/** Whether a model has one file, which may have any name. */
export function isAlone(alternatives: readonly GraphFile[][]): boolean {
  return alternatives.every(({ length }) => length === 1);
}

/**
 * The files of a task's model: alternatives, of which the first is taken whose files exist.
 * @param name of the file of a task that has one: `model`
 * @throws InputError if `dtype` is none
 */
export function graphFiles(
  task: string,
  dtype: DTypes,
  subfolder: string,
  name: string,
): GraphFile[][] {
  if (hasSeveral(task) && name !== "model")
    throw new InputError(
      "the task has several files",
      "options.model_file_name",
      "Give the folder that has them.",
    );
  const several = name === "model" ? GRAPHS[task] : undefined;
  const inner = subfolder ? `${subfolder.replace(/^\/+|\/+$/g, "")}/` : "";
  const known = several?.flat().map((n) => n.replace("?", "")) ?? [name];
  if (task === "text-generation") known.push(...EMBEDDINGS); // which the compiler asks for
  if (typeof dtype === "object")
    dtype = Object.fromEntries(
      // a file that is alone in its folder has the folder's name, too
      Object.entries(dtype).map(([n, d]) => [known.includes(`${n}/model`) ? `${n}/model` : n, d]),
    );
  for (const given of typeof dtype === "object" ? Object.keys(dtype) : [])
    if (!known.includes(given))
      throw new InputError(
        `the task has no file '${given}'`,
        "options.dtype",
        `It has ${[...new Set(known)].join(", ")}.`,
      );
  return (several ?? [[name]]).map((names) =>
    names.map((one) => {
      const stem = one.replace("?", "");
      // exporters put .onnx files beside config.json as well
      const both = several?.some((all) => all.length > 1) || inner === "onnx/";
      const folders = stem.includes("/") ? [""] : both ? [...new Set([inner, ""])] : [inner];
      return {
        stem,
        optional: one.endsWith("?"),
        candidates: folders.flatMap((folder) =>
          dtypesOf(typeof dtype === "object" ? (dtype[stem] ?? "auto") : dtype).map(
            ([d, suffix]) => ({ path: `${folder}${stem}${suffix}.onnx`, dtype: d }),
          ),
        ),
      };
    }),
  );
}

/** Precisions with the suffixes of their files; of one that was asked for, all of them. */
function dtypesOf(dtype: DType): [Exclude<DType, "auto">, string][] {
  checkDTypes(dtype);
  if (dtype === "auto") return AUTO.map((d) => [d, SUFFIX[d]]);
  return SUFFIX_OF[dtype].map((suffix) => [dtype, suffix]);
}

/** The files of the first complete alternative; undefined if there is none. */
function firstOf<T>(
  alternatives: readonly GraphFile[][],
  find: (file: GraphFile) => T | undefined,
): Map<GraphFile, T> | undefined {
  for (const files of alternatives) {
    const found = new Map<GraphFile, T>();
    for (const file of files) {
      const one = find(file);
      if (one !== undefined) found.set(file, one);
    }
    if (files.every((file) => file.optional || found.has(file))) return found;
  }
  return undefined;
}

/** Addresses of the files of an alternative that a hub's listing has; undefined: it has none. */
function inListing(
  listing: Listing,
  alternatives: readonly GraphFile[][],
  folder: string,
): string[] | undefined {
  const found = firstOf(alternatives, ({ candidates }) =>
    candidates.map(({ path }) => urlOf(path, folder)).find((url) => listing.find(url)),
  );
  return found && [...found.values()];
}

/** Whether a hub's listing has the files of an alternative. */
export function hasAny(
  listing: Listing,
  alternatives: readonly GraphFile[][],
  folder: string,
): boolean {
  return inListing(listing, alternatives, folder) !== undefined;
}

/** Addresses of the files in a hub's listing, with external data. */
export function listedGraphs(
  listing: Listing,
  alternatives: readonly GraphFile[][],
  folder: string,
): string[] {
  const first =
    inListing(listing, alternatives, folder) ??
    alternatives[0]!.map(({ candidates: [one] }) => urlOf(one!.path, folder));
  return first.flatMap((url) => [url, ...listing.from(`${url}_data`)]);
}

/** The address of a file of a model. */
export function urlOf(path: string, folder: string): string {
  return new URL(path, folder).href;
}

/**
 * Opens the files at an address.
 * @param open opens a file
 * @returns the files with their sources; those of a task with one file are named without folders
 * @throws ModelError if one is missing
 */
export async function openGraphs(
  alternatives: readonly GraphFile[][],
  folder: string,
  open: (url: string) => Promise<Remote>,
): Promise<Map<FoundGraph, Remote>> {
  const only = isAlone(alternatives);
  const opened = new Map<string, [FoundGraph, Remote] | undefined>();
  const files = new Map(alternatives.flat().map((file) => [file.stem, file]));
  const lacks = ({ stem, optional }: GraphFile) =>
    !optional && opened.has(stem) && !opened.get(stem);
  for (const { stem, candidates } of files.values()) {
    const wanted = alternatives.filter((all) => all.some((file) => file.stem === stem));
    const useless = wanted.every((all) => all.some(lacks));
    opened.set(stem, undefined);
    if (useless) continue;
    for (const { path, dtype } of candidates) {
      try {
        const source = await open(urlOf(path, folder));
        opened.set(stem, [{ stem, name: only ? source.name : path, dtype }, source]);
        break;
      } catch (e) {
        const last = only && files.size === 1 && candidates.length === 1;
        if (!(e instanceof NotFound) || e.status !== 404 || last) throw e;
      }
    }
    const found = firstOf(alternatives, (file) => opened.get(file.stem));
    const left = [...files.values()].filter((file) => !opened.has(file.stem));
    if (found && !left.some(({ optional }) => optional)) return new Map(found.values());
  }
  const tried = alternatives.flat().flatMap(({ candidates }) => candidates);
  throw new ModelError(
    only ? "there is no .onnx file of this dtype" : `it lacks ${wordsOf(alternatives)}`,
    folder,
    (only ? `Tried ${tried.map(({ path }) => path).join(", ")}. ` : "") +
      "Check the model's name, or give dtype, subfolder and model_file_name.",
  );
}

/**
 * Reads a file that the compiler asks for.
 * @param names that it may have; of several, the first that exists is read
 * @returns undefined if there are several and none exists
 */
export async function readFirst<T>(
  names: readonly string[],
  open: (name: string) => Promise<T>,
  read: (source: T) => Promise<Blob>,
): Promise<[name: string, source: T, blob: Blob] | undefined> {
  for (const name of names) {
    try {
      const source = await open(name);
      const blob = await read(source);
      // some servers answer with a page instead of 404; no .onnx file begins as one
      if (names.length === 1 || (await blob.slice(0, 1).text()) !== "<")
        return [name, source, blob];
    } catch (e) {
      if (names.length === 1 || !(e instanceof NotFound) || e.status !== 404) throw e;
    }
  }
  return undefined;
}

/** The names of alternatives, for errors. */
export function wordsOf(alternatives: readonly GraphFile[][]): string {
  const words = alternatives.map((files) =>
    files.flatMap(({ stem, optional }) => (optional ? [] : [`${stem}.onnx`])).join(", "),
  );
  return words.join("; or ");
}

/** The files among names that a user chose; undefined if they are not those of the task. */
export function namedGraphs(
  alternatives: readonly GraphFile[][],
  names: readonly string[],
): FoundGraph[] | undefined {
  const found = firstOf(alternatives, ({ stem, candidates }): FoundGraph | undefined => {
    for (const { path, dtype } of candidates) {
      // files may have been chosen without their folders
      const file = stem.includes("/") ? path : path.slice(path.lastIndexOf("/") + 1);
      const name = names.find((n) => n === file || n.endsWith(`/${file}`));
      if (name !== undefined) return { stem, name, dtype };
    }
    return undefined;
  });
  return found && [...found.values()];
}

/** The precision of all files; those of files that differ with their names. */
export function dtypeWords(graphs: readonly FoundGraph[]): string {
  const all = new Set(graphs.map(({ dtype }) => dtype));
  return all.size === 1
    ? graphs[0]!.dtype
    : graphs.map(({ stem, dtype }) => `${stem}: ${dtype}`).join(", ");
}
