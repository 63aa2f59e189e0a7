// Finds the plans of a model: in a package, in the browser's storage, or by compiling them.

import type { Device } from "../../device/device.ts";
import type { Compiled } from "../../protocol/compiler.ts";
import type { ModelInfo } from "../../protocol/loading.ts";
import { ModelError, PackageError } from "../../shared/errors.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { BlobSource, type Extent, toBlob } from "../../shared/files/source.ts";
import { type ByteSource, isEdgewise } from "../../shared/files/stream.ts";
import { message } from "../../shared/words.ts";
import { MissingFile } from "../compiler-client.ts";
import {
  digestReads,
  findCompiled,
  forgetCompiled,
  keepCompiled,
  type Reads,
} from "../files/compiled.ts";
import { compiledKey } from "../files/compiled-key.ts";
import type { Downloads, Remote } from "../files/downloads.ts";
import type { Listing } from "../files/listing.ts";
import type { Manifest } from "../package/manifest.ts";
import { makePackage, type OpenPackage, openPackage } from "../package/package.ts";
import { fillBeside } from "./fill.ts";
import { folderTexts, locate, sortFiles, TASK_FILES, TEXT_FILES } from "./hub.ts";
import type { Job, Texts } from "./job.ts";
import type { Onnx } from "./model.ts";

/** A model whose plans are available and whose weights can be filled. */
export interface FoundModel {
  manifest: Manifest;
  where: string;
  origin: ModelInfo["origin"];
  dtype: string;
  compileMs: number;
  onnx?: (() => Promise<Onnx>) | undefined;
  /** Fills the weights; returns the package's other files, and tokenizer and config files. */
  fill(extents: Map<string, Extent[]>): Promise<{ files: Map<string, Uint8Array>; texts: Texts }>;
}

export async function find(job: Job, device: Promise<Device>): Promise<FoundModel> {
  const { request } = job;
  if (typeof request.model === "string") {
    const place = locate(request.model, request.base, request);
    if (place.kind === "package") {
      await job.begin(place.url, () => [place.url]);
      return fromPackage(job.http(place.url));
    }
    return fromAddress(job, place.graphs, place.folder, device);
  }
  if ("port" in request.model) return fromPackage(job.handed(request.model));
  const given = sortFiles(request.model, request.dtype);
  if (given.kind === "package") return fromPackage(job.blob(given.file, given.name));
  const texts: Texts = new Map();
  for (const name of [...TEXT_FILES, ...TASK_FILES]) {
    const blob = given.files.get(name);
    if (blob) texts.set(name, await blob.text());
  }
  return fromFiles(
    job,
    given.graph,
    given.files,
    texts,
    request.dtype === "auto" ? "" : request.dtype,
    device,
  );
}

async function fromPackage(source: ByteSource): Promise<FoundModel> {
  const opened = await openPackage(source);
  const fill: FoundModel["fill"] = async (extents) => {
    await opened.finish(extents);
    return { files: opened.files, texts: textsOf(opened) };
  };
  return {
    manifest: opened.manifest,
    where: source.name,
    origin: "package",
    dtype: "",
    compileMs: 0,
    fill,
  };
}

function textsOf(opened: OpenPackage): Texts {
  const texts: Texts = new Map();
  for (const name of [...TEXT_FILES, ...TASK_FILES]) {
    const bytes = opened.files.get(name);
    if (bytes) texts.set(name, new TextDecoder().decode(bytes));
  }
  return texts;
}

async function keyOf(job: Job, device: Promise<Device>, what: unknown): Promise<string> {
  const { capacity = null, cache_dtype = null, programs, task, max_length = null } = job.request;
  const options =
    task === "text-generation"
      ? { capacity, cache_dtype, ...(programs ? { programs } : {}), what }
      : { task, max_length, what };
  return compiledKey((await device).tableHash, options, job.downloads?.model.key);
}

async function fromAddress(
  job: Job,
  graphs: { url: string; dtype: string }[],
  folder: string,
  device: Promise<Device>,
): Promise<FoundModel> {
  const downloads = await job.begin(folder, (listing) => wantedFiles(listing, graphs, folder, job));
  const reading = job.texts(folder);
  reading.catch(() => undefined);
  const { graph, dtype } = await firstGraph(job, graphs);
  const beside = (name: string) => job.http(new URL(encodeURI(name), graph.url).href);
  const texts = await reading;
  job.readTexts(texts, folder);

  // With an ETag or a date, a stored package can be matched without reading the model, and the
  // weights are streamed from the network.
  const tagged = graph.validator !== undefined && graph.size !== undefined;
  const key =
    tagged && job.request.cache
      ? await keyOf(job, device, {
          url: graph.url,
          validator: graph.validator,
          size: graph.size,
          config: texts.get("config.json") ?? "",
          ...(job.request.task === "text-generation"
            ? {}
            : { texts: [...texts].filter(([name]) => name !== "tokenizer.json").sort() }),
        })
      : undefined;
  const stored = key && (await matchStored(key, graph, beside));
  if (stored) {
    const { opened, sources } = stored;
    return {
      ...fromCache(opened, sources, texts, dtype, key, graph.name),
      onnx: () => downloadAll(downloads, graph.name, sources),
    };
  }
  if (tagged || !job.request.cache) job.python();
  const files = new Map<string, Blob>([[graph.name, await toBlob(graph)]]);
  for (const [name, text] of texts) files.set(name, new Blob([text]));
  const tags: Record<string, string> = {};
  const fetchMissing = async (name: string) => {
    const other = beside(name);
    await other.open();
    files.set(name, await toBlob(other));
    tags[name] = `${other.validator} ${other.size}`;
  };
  return fromFiles(job, graph.name, files, texts, dtype, device, { key, tags, fetchMissing });
}

/** The files of a hub's listing that loading reads. */
function wantedFiles(
  listing: Listing,
  graphs: { url: string }[],
  folder: string,
  { request: { task } }: Job,
): string[] {
  const { url: graph } = graphs.find(({ url }) => listing.find(url)) ?? graphs[0]!;
  return [
    ...folderTexts(task)
      .map((name) => new URL(name, folder).href)
      .filter((url) => listing.find(url)),
    graph,
    ...listing.from(`${graph}_data`),
  ];
}

/** Opens the first graph that exists. `dtype`: its precision, "" if none was requested. */
async function firstGraph(
  job: Job,
  graphs: { url: string; dtype: string }[],
): Promise<{ graph: Remote; dtype: string }> {
  for (const { url, dtype } of graphs) {
    try {
      if (job.downloads!.known(url) === null) throw new NotFound(url, 404);
      const graph = job.http(url);
      await graph.open();
      return { graph, dtype: dtype === "auto" ? "" : dtype };
    } catch (e) {
      if (!(e instanceof NotFound) || e.status !== 404 || graphs.length === 1) throw e;
    }
  }
  throw new ModelError(
    "there is no .onnx file of any dtype",
    new URL(".", graphs[0]!.url).href,
    `Tried ${graphs.map((g) => g.url.split("/").pop()).join(", ")}. Check the model's ` +
      "name, or give dtype, subfolder and model_file_name.",
  );
}

/** A stored package, if the server still has the same versions of the files of its weights. */
async function matchStored(
  key: string,
  graph: Remote,
  beside: (name: string) => Remote,
): Promise<{ opened: OpenPackage; sources: Map<string, Remote> } | undefined> {
  const cached = await findCompiled(key, undefined);
  const opened = cached && (await openPackage(cached, true));
  if (!opened) return undefined;
  const { manifest } = opened;
  const sources = new Map([[graph.name, graph]]);
  const noted = (manifest.cache as { tags?: Record<string, string> } | undefined)?.tags ?? {};
  let fits = true;
  for (const { file } of manifest.weights.values()) {
    if (manifest.files.has(file) || sources.has(file)) continue;
    const other = beside(file);
    await other.open();
    sources.set(file, other);
    fits &&= noted[file] === `${other.validator} ${other.size}`;
  }
  if (fits) return { opened, sources };
  for (const [name, source] of sources) if (name !== graph.name) source.cancel();
  return undefined;
}

/** Reads the files of a model whose plans were stored. */
async function downloadAll(
  downloads: Downloads,
  graph: string,
  sources: ReadonlyMap<string, Remote>,
): Promise<Onnx> {
  const read = Array.from(
    sources,
    async ([name, { url }]): Promise<[string, Blob]> => [name, await toBlob(downloads.source(url))],
  );
  return { graph, files: new Map(await Promise.all(read)) };
}

async function fromFiles(
  job: Job,
  graph: string,
  files: Map<string, Blob>,
  texts: Texts,
  dtype: string,
  device: Promise<Device>,
  from: {
    key?: string | undefined;
    tags?: Record<string, string>;
    fetchMissing?: (name: string) => Promise<void>;
  } = {},
): Promise<FoundModel> {
  const onnx = async () => ({ graph, files });
  job.readTexts(texts, graph);
  // Files chosen by the user have no ETag: the key consists of their names and sizes, and the
  // ranges that the compiler read are compared.
  const sizes = Array.from(files, ([name, blob]) => [name, blob.size]).sort();
  const key = !job.request.cache
    ? undefined
    : (from.key ?? (await keyOf(job, device, { graph, sizes })));
  if (key && !from.key) {
    const cached = await findCompiled(key, files);
    const opened = cached && (await openPackage(cached, true));
    if (opened)
      return { ...fromCache(opened, blobSources(job, files), texts, dtype, key, graph), onnx };
  }
  const compiled = await compile(job, graph, files, from.fetchMissing);
  job.end();
  const { manifest, reads, ms } = compiled;
  const noted: Reads & { tags: Record<string, string> } = {
    ranges: reads,
    sha256: (await digestReads(reads, files)) ?? "",
    tags: from.tags ?? {},
  };
  const made = makePackage({ ...parsed(manifest, graph), cache: noted }, compiled.files);
  const opened = await openPackage(new BlobSource(made, graph), true);
  if (key) await keepCompiled(key, made, job.warn);
  return {
    ...fromCache(opened, blobSources(job, files), texts, dtype, key, graph),
    origin: "compiled",
    compileMs: ms.pyodide + ms.compile,
    onnx,
  };
}

/** Compiles a model, fetching files that it refers to and that are missing. */
async function compile(
  job: Job,
  graph: string,
  files: Map<string, Blob>,
  fetchMissing: ((name: string) => Promise<void>) | undefined,
): Promise<Compiled> {
  const { task, capacity, cache_dtype, programs, max_length } = job.request;
  const options = {
    ...(task === "text-generation" ? { of: "package" } : { of: "task", task }),
    model_file: graph,
    ...(capacity === undefined ? {} : { capacity }),
    ...(cache_dtype === undefined ? {} : { cache_dtype }),
    ...(programs ? { programs } : {}),
    ...(max_length === undefined ? {} : { max_length }),
  };
  const onStage = (stage: "pyodide" | "compile" | "done", words: string) =>
    job.progress({ status: "compile", name: job.model, stage, message: words });
  for (let attempts = 0; ; attempts++) {
    try {
      return await job.python().compile(files, options, onStage);
    } catch (e) {
      if (!(e instanceof MissingFile)) throw e;
      if (!fetchMissing || files.has(e.file) || attempts >= 8) throw e.error;
      await fetchMissing(e.file);
    }
  }
}

function parsed(manifest: string, where: string): Record<string, unknown> {
  try {
    return JSON.parse(manifest) as Record<string, unknown>;
  } catch (e) {
    throw new PackageError(
      `the compiler's manifest is not JSON (${message(e)})`,
      where,
      "This is a bug in Edgewise; please report it.",
    );
  }
}

function blobSources(job: Job, files: Map<string, Blob>): Map<string, ByteSource> {
  return new Map(Array.from(files, ([name, blob]) => [name, job.blob(blob, name)]));
}

/** A package whose weights are in the model's files. */
function fromCache(
  opened: OpenPackage,
  sources: Map<string, ByteSource>,
  texts: Texts,
  dtype: string,
  key: string | undefined,
  where: string,
): FoundModel {
  const { manifest } = opened;
  const fill: FoundModel["fill"] = async (extents) => {
    try {
      await fillBeside(opened, extents, sources, where);
    } catch (e) {
      if (key && isEdgewise(e) && e instanceof PackageError) await forgetCompiled(key);
      throw e;
    }
    return { files: opened.files, texts: new Map([...textsOf(opened), ...texts]) };
  };
  return { manifest, where, origin: "cache", dtype, compileMs: 0, fill };
}
