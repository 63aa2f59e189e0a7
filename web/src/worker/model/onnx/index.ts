// The part of the worker for models that are no packages: finds their files, and their plans in the
// browser's storage or by compiling them.

import type { Device } from "../../../device/device.ts";
import { targetOf } from "../../../device/open.ts";
import { EMBEDDINGS } from "../../../gen/manifest.ts";
import type { Compiled } from "../../../protocol/compiler.ts";
import { PackageError } from "../../../shared/errors.ts";
import { NotFound } from "../../../shared/files/connection.ts";
import { BlobSource, toBlob } from "../../../shared/files/source.ts";
import { type ByteSource, isEdgewise } from "../../../shared/files/stream.ts";
import { message } from "../../../shared/words.ts";
import { MissingFile } from "../../compiler-client.ts";
import {
  digestReads,
  findCompiled,
  forgetCompiled,
  keepCompiled,
  type Reads,
} from "../../files/compiled.ts";
import { compiledKey } from "../../files/compiled-key.ts";
import type { Downloads, Remote } from "../../files/downloads.ts";
import type { Listing } from "../../files/listing.ts";
import type { Manifest } from "../../package/manifest.ts";
import { makePackage, type OpenPackage, openPackage } from "../../package/package.ts";
import { fillBeside } from "../fill.ts";
import type { Job, Texts } from "../job.ts";
import type { Onnx } from "../model.ts";
import {
  type Beside,
  type FoundModel,
  fromPackage,
  GENAI_CONFIG,
  lasting,
  TASK_FILES,
  TEXT_FILES,
  textsOf,
} from "../packages.ts";
import {
  dtypeWords,
  type FoundGraph,
  isAlone,
  listedGraphs,
  openGraphs,
  readFirst,
} from "./graphs.ts";
import { alternativesIn, folderTexts, locate, sortFiles } from "./hub.ts";
import { fetchTexts } from "./texts.ts";

export { modelFiles } from "./files.ts";

/** Finds a model that a user chose the files of. */
export async function fromChosen(
  job: Job,
  list: { name: string; blob: Blob }[],
  device: Promise<Device>,
): Promise<FoundModel> {
  const given = sortFiles(list, job.request);
  if (given.kind === "package") return fromPackage(job.blob(given.file, given.name), job);
  const texts: Texts = new Map();
  for (const name of [...TEXT_FILES, ...TASK_FILES, GENAI_CONFIG]) {
    const blob = given.files.get(name);
    if (blob) texts.set(name, await blob.text());
  }
  return fromFiles(job, given.graphs, given.files, texts, device);
}

/** The precision of files that the compiler chooses, where it was requested. */
function dtypesBeside({ request: { dtype } }: Job): Record<string, string> | undefined {
  if (typeof dtype === "string") return undefined;
  const asked = Object.entries(dtype).filter(([name]) => EMBEDDINGS.includes(name));
  return asked.length ? Object.fromEntries(asked) : undefined;
}

async function keyOf(job: Job, device: Promise<Device>, what: unknown): Promise<string> {
  const { capacity = null, cache_dtype = null, programs, task, max_length = null } = job.request;
  const { personalize } = job.request;
  const target = targetOf(await device);
  const dtypes = dtypesBeside(job);
  const trained = programs ? { programs } : {};
  const options =
    task === "text-generation"
      ? {
          ...{ capacity, cache_dtype, what },
          ...trained,
          ...(dtypes ? { dtypes } : {}),
        }
      : {
          ...{ task, max_length, capacity, cache_dtype, what },
          ...(personalize ? { personalize } : {}),
          ...trained,
        };
  const all = target === "cpu" ? options : { ...options, target };
  return compiledKey((await device).tableHash, all, job.downloads?.model.key);
}

/** Finds a model by its address or id. */
export async function fromPlace(
  job: Job,
  model: string,
  device: Promise<Device>,
): Promise<FoundModel> {
  const { task, cache, base: site } = job.request;
  const { graphs: named, graphFolder, folder } = locate(model, site, job.request);
  const within = (found?: Listing) => alternativesIn(found, named, folder, job.request);
  const downloads = await job.begin(folder, (listing) => [
    ...folderTexts(task)
      .map((name) => new URL(name, folder).href)
      .filter((url) => listing.find(url)),
    ...listedGraphs(listing, within(listing), graphFolder),
  ]);
  const alternatives = within(downloads.listed);
  const reading = fetchTexts(job, folder);
  reading.catch(() => undefined);
  const open = async (url: string) => {
    if (downloads.known(url) === null) throw new NotFound(url, 404);
    const source = job.http(url);
    await source.open();
    return source;
  };
  const opened = await openGraphs(alternatives, graphFolder, open);
  const graphs = [...opened.keys()];
  const [{ name: first }, graph] = [...opened][0]!;
  const sources = new Map(Array.from(opened, ([{ name }, source]) => [name, source]));
  // names of a graph that is alone are relative to its folder, others to the model's
  const base = isAlone(alternatives) ? graph.url : graphFolder;
  const urlBeside = (name: string) => new URL(encodeURI(name), base).href;
  const texts = await reading;
  job.readTexts(texts, folder);

  // With an ETag or a date, a stored package can be matched without reading the model, and the
  // weights are streamed from the network.
  const versions = Array.from(sources.values(), ({ url, validator, size }) => ({
    ...{ url, validator, size },
  }));
  const tagged = versions.every(
    ({ validator, size }) => validator !== undefined && size !== undefined,
  );
  const key =
    tagged && cache
      ? await keyOf(job, device, {
          ...(versions.length === 1 ? versions[0] : { versions }),
          texts: [...texts].filter(([name]) => name !== "tokenizer.json").sort(),
        })
      : undefined;
  const stored = key && (await matchStored(key, sources, (name) => job.http(urlBeside(name))));
  const kept = new Map<string, ByteSource>(sources);
  if (stored) for (const [name, source] of sources) kept.set(name, await lasting(job, source));
  if (stored)
    return {
      ...fromCache(job, stored, kept, texts, dtypeOf(graphs), key, first),
      beside: addressed(urlBeside),
      onnx: () => downloadAll(downloads, first, sources, texts),
    };
  if (tagged || !cache) job.python();
  const files = await blobsOf(sources, texts);
  const tags: Record<string, string> = {};
  const fetchMissing = async (names: readonly string[]) => {
    const found = await readFirst(names, (name) => open(urlBeside(name)), toBlob);
    if (!found) return false;
    const [name, other, blob] = found;
    files.set(name, blob);
    tags[name] = `${other.validator} ${other.size}`;
    return true;
  };
  const beside = addressed(urlBeside);
  return fromFiles(job, graphs, files, texts, device, { key, tags, fetchMissing, beside });
}

/** The precision of the files; "" where none was requested. */
function dtypeOf(graphs: readonly FoundGraph[]): string {
  const words = dtypeWords(graphs);
  return words === "auto" ? "" : words;
}

/** A stored package, if the server still has the same versions of the files of its weights. */
async function matchStored(
  key: string,
  sources: Map<string, Remote>,
  beside: (name: string) => Remote,
): Promise<OpenPackage | undefined> {
  const cached = await findCompiled(key, undefined);
  const opened = cached && (await openPackage(cached, true));
  if (!opened) return undefined;
  const { manifest } = opened;
  const others = new Map<string, Remote>();
  const noted = (manifest.cache as { tags?: Record<string, string> } | undefined)?.tags ?? {};
  let fits = true;
  // a graph that was fetched for the compiler may have all of its weights in another file
  const read = [
    ...Array.from(manifest.weights.values(), ({ file }) => file),
    ...Object.keys(noted),
  ];
  for (const file of read) {
    if (manifest.files.has(file) || sources.has(file) || others.has(file)) continue;
    const other = beside(file);
    await other.open();
    others.set(file, other);
    fits &&= noted[file] === `${other.validator} ${other.size}`;
  }
  for (const [name, source] of others)
    if (fits) sources.set(name, source);
    else source.cancel();
  return fits ? opened : undefined;
}

/** Reads the files of a model whose plans were stored. */
async function downloadAll(
  downloads: Downloads,
  graph: string,
  sources: ReadonlyMap<string, Remote>,
  texts: Texts,
): Promise<Onnx> {
  const read = Array.from(
    sources,
    async ([name, { url }]): Promise<[string, Blob]> => [name, await toBlob(downloads.source(url))],
  );
  const files = new Map(await Promise.all(read));
  for (const [name, text] of texts) files.set(name, new Blob([text]));
  return { graph, files };
}

/** The contents of opened files, and of texts. */
async function blobsOf(
  sources: ReadonlyMap<string, Remote>,
  texts: Texts,
): Promise<Map<string, Blob>> {
  const files = new Map<string, Blob>();
  for (const [name, source] of sources) files.set(name, await toBlob(source));
  for (const [name, text] of texts) files.set(name, new Blob([text]));
  return files;
}

async function fromFiles(
  job: Job,
  graphs: readonly FoundGraph[],
  files: Map<string, Blob>,
  texts: Texts,
  device: Promise<Device>,
  from: {
    key?: string | undefined;
    tags?: Record<string, string>;
    fetchMissing?: FetchMissing;
    beside?: NonNullable<FoundModel["beside"]>;
  } = {},
): Promise<FoundModel> {
  const graph = graphs[0]!.name;
  const dtype = dtypeOf(graphs);
  const also = { onnx: async () => ({ graph, files }), beside: from.beside ?? besideOf(files) };
  job.readTexts(texts, graph);
  // Files chosen by the user have no ETag: the key consists of their names and sizes, and the
  // ranges that the compiler read are compared.
  const sizes = Array.from(files, ([name, blob]) => [name, blob.size]).sort();
  const key = !job.request.cache
    ? undefined
    : (from.key ?? (await keyOf(job, device, { graphs: graphs.map((g) => g.name), sizes })));
  if (key && !from.key) {
    const cached = await findCompiled(key, files);
    const opened = cached && (await openPackage(cached, true));
    if (opened)
      return {
        ...fromCache(job, opened, blobSources(job, files), texts, dtype, key, graph),
        ...also,
      };
  }
  const compiled = await compile(job, graphs, files, targetOf(await device), from.fetchMissing);
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
    ...fromCache(job, opened, blobSources(job, files), texts, dtype, key, graph),
    origin: "compiled",
    compileMs: ms.pyodide + ms.compile,
    ...also,
  };
}

/** Files at addresses. */
function addressed(url: (name: string) => string): NonNullable<FoundModel["beside"]> {
  return (file) => ({ model: url(file), external: {} });
}

/** Files that a user chose, by names relative to one of them. */
function besideOf(files: ReadonlyMap<string, Blob>): (file: string) => Beside {
  return (file) => {
    const folder = file.slice(0, file.lastIndexOf("/") + 1);
    const others = [...files].filter(([name]) => name !== file && name.startsWith(folder));
    const external = others.map(([name, blob]) => [name.slice(folder.length), blob]);
    return {
      model: new File([files.get(file)!], file.slice(folder.length)),
      external: Object.fromEntries(external) as Record<string, Blob>,
    };
  };
}

/** Adds a file that has one of these names; false if there is none. */
type FetchMissing = (names: readonly string[]) => Promise<boolean>;

/** Compiles a model, fetching files that it refers to and that are missing. */
async function compile(
  job: Job,
  graphs: readonly FoundGraph[],
  files: Map<string, Blob>,
  target: Manifest["target"],
  fetchMissing: FetchMissing | undefined,
): Promise<Compiled> {
  const { task, capacity, cache_dtype, programs, max_length, personalize } = job.request;
  const dtypes = dtypesBeside(job);
  const options = {
    ...(task === "text-generation"
      ? { of: "package", model_file: graphs[0]!.name, ...(dtypes ? { dtypes } : {}) }
      : { of: "task", task, graphs: Object.fromEntries(graphs.map((g) => [g.stem, g.name])) }),
    target,
    ...(capacity === undefined ? {} : { capacity }),
    ...(cache_dtype === undefined ? {} : { cache_dtype }),
    ...(programs ? { programs } : {}),
    ...(max_length === undefined ? {} : { max_length }),
    ...(personalize ? { personalize } : {}),
  };
  const onStage = (stage: "pyodide" | "compile" | "done", words: string) =>
    job.progress({ status: "compile", name: job.model, stage, message: words });
  for (let attempts = 0; ; attempts++) {
    try {
      return await job.python().compile(files, options, onStage);
    } catch (e) {
      if (!(e instanceof MissingFile)) throw e;
      if (!fetchMissing || files.has(e.file) || attempts >= 8) throw e.error;
      if (!(await fetchMissing(e.names))) throw e.error;
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
  job: Job,
  opened: OpenPackage,
  sources: Map<string, ByteSource>,
  texts: Texts,
  dtype: string,
  key: string | undefined,
  where: string,
): FoundModel {
  const { manifest } = opened;
  const fillFrom = async (
    from: Map<string, ByteSource>,
    ...[extents, ready]: Parameters<FoundModel["fill"]>
  ) => {
    try {
      await fillBeside(opened, extents, from, where, ready);
    } catch (e) {
      if (key && isEdgewise(e) && e instanceof PackageError) await forgetCompiled(key);
      throw e;
    }
    return { files: opened.files, texts: new Map([...textsOf(opened), ...texts]) };
  };
  const fillSome: FoundModel["fill"] = async (...all) => {
    const from = new Map(sources);
    for (const [name, source] of sources) {
      const file = await source.asFile?.();
      if (file && !(source instanceof BlobSource)) from.set(name, job.blob(file, name));
    }
    return fillFrom(from, ...all);
  };
  const stored = async () => {
    const found = new Map<string, { blob: Blob; at: number }>();
    for (const [name, source] of sources) {
      const blob = await source.asFile?.();
      if (!blob) return undefined;
      found.set(name, { blob, at: 0 });
    }
    return found;
  };
  const kept = [...sources.values()].every((source) => source.asFile);
  return {
    ...{ manifest, where, origin: "cache", dtype, compileMs: 0, ahead: opened.ahead },
    fill: (...all) => fillFrom(sources, ...all),
    ...(kept ? { fillSome, stored } : {}),
  };
}
