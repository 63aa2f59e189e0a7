// From a model's place to a decoder that runs: finds the files, uses what an earlier visit compiled
// or compiles, and streams the weights straight into the engine's memory.

import {
  InputError,
  ModelError,
  OutOfMemory,
  PackageError,
  TokenizerError,
  type EdgewiseError,
} from "../../shared/errors.ts";
import { Engine, withKernels } from "../../device/engine.ts";
import { locate, sortFiles, TEXT_FILES } from "./hub.ts";
import { checkRoom, checkTable, decoderOf, EngineDecoder, Weights } from "./decoder.ts";
import {
  makePackage,
  openPackage,
  type DecoderInfo,
  type Manifest,
  type OpenPackage,
  type ProgramInfo,
} from "../package/package.ts";
import { platform } from "../../shared/platform.ts";
import { Compiler, MissingFile } from "../compiler-client.ts";
import {
  BlobSource,
  endsEarly,
  HandedSource,
  scatter,
  toBlob,
  type Extent,
  type Handed,
} from "../../shared/files/source.ts";
import {
  digestReads,
  findCompiled,
  forgetCompiled,
  keepCompiled,
  KeptSource,
  type Reads,
} from "../files/storage.ts";
import { digestOf, sha256 } from "../../shared/sha256.ts";
import { parseConfig, Tokenizer } from "../text/tokenizer.ts";
import { Adapters } from "../training/adapters.ts";
import { COMPILER } from "../../shared/version.ts";
import { warm } from "../../device/warm.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { HttpSource, NotFound } from "../../shared/files/http.ts";
import { message } from "../../shared/words.ts";
import type { Urls, LoadRequest, ModelInfo, ProgressEvent } from "../../protocol/loading.ts";
import { isEdgewise, readAll, type ByteSource } from "../../shared/files/stream.ts";
import { NOTES } from "../package/notes.ts";

/** A loaded language model and all that belongs to it. */
export interface Model {
  engine: Engine;
  decoder: EngineDecoder;
  tokenizer: Tokenizer;
  info: ModelInfo;
  weights: Weights;
  adapters: Adapters;
  /** How it can be trained; empty where it cannot. */
  programs: Map<string, ProgramInfo>;
  /** The plans of that. */
  files: Map<string, Uint8Array>;
  /** Stands for the model: what was trained on one fits another of the same key. */
  key: string;
  /** Its name, for errors. */
  where: string;
  urls: Urls;
  /** The .onnx file that it was compiled from, and what belongs to it; undefined for packages. */
  onnx: (() => Promise<Onnx>) | undefined;
}

/** `graph`: the name of the .onnx file among `files`. */
export interface Onnx {
  graph: string;
  files: Map<string, Blob>;
}

type Progress = (event: ProgressEvent) => void;
type Texts = Map<string, string>;

/** What one load needs everywhere: the request, abort, progress, and how files are fetched. */
class Job {
  readonly model: string;
  /**
   * Made as soon as the texts are there, so that a broken one is found before anything takes long.
   */
  tokenizer: Tokenizer | undefined;
  private compiler: Compiler | undefined;
  private readonly opened: (HttpSource | KeptSource)[] = [];

  constructor(
    readonly request: LoadRequest,
    readonly signal: AbortSignal,
    readonly progress: Progress,
  ) {
    this.model =
      typeof request.model === "string"
        ? request.model
        : "port" in request.model
          ? request.model.name
          : (request.model[0]?.name ?? "files");
  }

  warn = (text: string): void =>
    this.progress({ status: "warning", name: this.model, message: text });

  /** The compiler; asked for early, it starts while files are still on their way. */
  python(): Compiler {
    return (this.compiler ??= new Compiler(this.request.urls, this.signal));
  }

  end(): void {
    this.compiler?.end();
  }

  /** Ends the compiler, and connections that were opened and not read. */
  close(): void {
    this.end();
    for (const source of this.opened) source.cancel();
  }

  /**
   * Nothing that was kept of this model is to be used again: some of it is damaged. A package is
   * one file, so that of it not even the part that has come can be trusted.
   */
  async forget(e: unknown): Promise<void> {
    for (const source of this.opened)
      if (source instanceof KeptSource)
        await (e instanceof PackageError ? source.forget() : source.distrust());
  }

  readTexts(texts: Texts, where: string): Tokenizer {
    return (this.tokenizer ??= new Tokenizer(
      texts.get("tokenizer.json"),
      texts.get("tokenizer_config.json"),
      texts.get("chat_template.jinja"),
      where,
      texts.get("special_tokens_map.json"),
    ));
  }

  http(url: string, keep: boolean): HttpSource | KeptSource {
    const file = new URL(url).pathname.split("/").pop() ?? url;
    const { integrity, fetch_options: fetchOptions } = this.request;
    const wanted =
      typeof integrity === "string"
        ? /\.(onnx|edge)$/.test(file)
          ? integrity
          : undefined
        : integrity?.[file];
    const digest = wanted === undefined ? undefined : digestOf(wanted);
    if (wanted !== undefined && digest === undefined)
      throw new InputError(
        `the integrity of ${file} is '${wanted.slice(0, 100)}'`,
        "options.integrity",
        "Give a SHA-256 as 64 hexadecimal digits, or as 'sha256-' and base64.",
      );
    const options = {
      signal: this.signal,
      onBytes: this.reporter(file),
      integrity: digest,
      fetchOptions,
    };
    const source =
      keep && this.request.cache_files
        ? new KeptSource(url, options, this.warn)
        : new HttpSource(url, options);
    this.opened.push(source);
    return source;
  }

  blob(blob: Blob, name: string): BlobSource {
    return new BlobSource(blob, name, { signal: this.signal, onBytes: this.reporter(name) });
  }

  handed(handed: Handed): HandedSource {
    return new HandedSource(handed, { signal: this.signal, onBytes: this.reporter(handed.name) });
  }

  /** Progress of one file, at most every 50 ms. */
  private reporter(file: string): (loaded: number, total: number | undefined) => void {
    let last = 0;
    let begun = false;
    this.progress({ status: "initiate", name: this.model, file });
    return (loaded, total) => {
      const now = performance.now();
      if (!begun) this.progress({ status: "download", name: this.model, file });
      begun = true;
      const end = loaded === total;
      if (!end && now - last < 50) return;
      last = now;
      this.progress({
        status: "progress",
        name: this.model,
        file,
        progress: total ? (100 * loaded) / total : 0,
        loaded,
        total: total ?? 0,
      });
      if (end) this.progress({ status: "done", name: this.model, file });
    };
  }

  /**
   * The texts of a folder that are there. Those that every model has are demanded later, by what
   * needs them.
   */
  async texts(folder: string): Promise<Texts> {
    const texts: Texts = new Map();
    const get = async (name: string) => {
      const url = new URL(name, folder).href;
      try {
        texts.set(name, new TextDecoder().decode(await readAll(this.http(url, true), 256 << 20)));
      } catch (e) {
        if (!(e instanceof NotFound)) throw e;
        if (![403, 404, 410].includes(e.status)) throw notThere(e);
      }
    };
    await Promise.all(
      ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"].map(get),
    );
    const config = texts.get("tokenizer_config.json");
    // Templates have had a file of their own since 2025; it is asked for where the config does not
    // say (null says that there is none).
    if (
      config !== undefined &&
      !("chat_template" in parseConfig(config, new URL("tokenizer_config.json", folder).href))
    )
      await get("chat_template.jinja");
    return texts;
  }
}

/** What a missing file is to those who asked for it. */
export function notThere(e: NotFound): EdgewiseError {
  const remedy =
    e.status === 401 || e.status === 403
      ? "The server does not let this page read it: use a public model, or pass headers in " +
        "fetch_options."
      : "Check the model's name, the revision and the dtype; for files of your own, the address.";
  return new ModelError(
    e.status === 404
      ? "there is no such file (HTTP 404)"
      : `the server refused it (HTTP ${e.status})`,
    e.url,
    remedy,
  );
}

/** Loads a model. When it fails, everything that was begun has been let go of. */
export async function loadModel(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<Model> {
  const job = new Job(request, signal, progress);
  const started = performance.now();
  const { urls } = request;
  const options = {
    ...urls,
    flavour: request.flavour,
    ...(request.threads === undefined ? {} : { threads: request.threads }),
  };
  let opening = Engine.open(options);
  opening.catch(() => undefined);
  try {
    const found = await find(job, opening);
    throwIfAborted(signal);
    const { manifest, where } = found;
    checkTable(await opening, manifest, where);
    const described = decoderOf(manifest, where);
    if (request.cache_dtype !== undefined && request.cache_dtype !== described.cacheDtype)
      throw new InputError(
        `the package was built to keep keys and values as ${described.cacheDtype}, not as ` +
          `'${String(request.cache_dtype)}'`,
        "options.cache_dtype",
        "Build it with `edgewise build --cache-dtype`, or give the model's .onnx file.",
      );
    checkRoom(manifest, described, where);
    opening = withKernels(await opening, options, manifest.kernels, where);
    const engine = await opening;
    throwIfAborted(signal);
    const weights = new Weights(engine, manifest);
    const filling = found.fill(weights.extents(manifest, where));
    if (manifest.training.size) void warm(engine);
    const { files, texts } = await filling;
    throwIfAborted(signal);
    const generation = parseConfig(texts.get("generation_config.json"), "generation_config.json");
    const config = parseConfig(texts.get("config.json"), "config.json");
    const tokenizer = job.readTexts(texts, where);
    const decoder = within(
      described,
      () =>
        new EngineDecoder(
          engine,
          described,
          weights,
          files,
          generation,
          config,
          where,
          !manifest.training.size,
        ),
    );
    progress({ status: "ready", name: job.model, task: "text-generation" });
    const adapters = new Adapters(engine, weights, decoder, manifest);
    const programs = manifest.training;
    const plans = new Map<string, Uint8Array>();
    if (files.has(NOTES)) plans.set(NOTES, files.get(NOTES)!);
    for (const { plans: of } of programs.values())
      for (const { file } of of.values()) plans.set(file, files.get(file)!);
    const key = sha256(
      JSON.stringify(Array.from(manifest.weights.values(), ({ name, bytes }) => [name, bytes])),
    ).slice(0, 16);
    const info: ModelInfo = {
      ...engine.choice,
      isolated: platform().isolated,
      origin: found.origin,
      dtype: found.dtype,
      capacity: decoder.max_length,
      cacheDtype: described.cacheDtype,
      vocabSize: decoder.vocab_size,
      hasChatTemplate: tokenizer.hasChatTemplate,
      training: Array.from(programs.values(), (p) => ({
        adapter: p.lora ? "lora" : "full",
        batch: p.batch,
        sequence: p.sequence,
        learning_rate: p.optimizer.lr,
        optimizer: p.optimizer.type,
        ...(p.lora ? { r: p.lora.r, lora_alpha: p.lora.lora_alpha } : {}),
      })),
      memory: {
        engine: engine.memoryBytes,
        weights: weights.bytes,
        cachePerSequence: decoder.cacheBytes,
      },
      ms: {
        engine: engine.instantiateMs,
        compile: found.compileMs,
        load: performance.now() - started,
      },
    };
    return {
      engine,
      decoder,
      tokenizer,
      info,
      weights,
      adapters,
      programs,
      files: plans,
      key,
      where,
      urls,
      onnx: found.onnx,
    };
  } catch (e) {
    opening.then(
      (engine) => engine.close(),
      () => undefined,
    );
    if (e instanceof ModelError || e instanceof PackageError || e instanceof TokenizerError)
      await job.forget(e);
    throw e instanceof NotFound ? notThere(e) : e;
  } finally {
    job.close();
  }
}

/** What is too much for the memory says how long the sequences are that it was to be for. */
function within<T>({ capacity }: DecoderInfo, work: () => T): T {
  try {
    return work();
  } catch (e) {
    if (!(e instanceof OutOfMemory)) throw e;
    throw new OutOfMemory(
      `${e.what}; the model was compiled for sequences of up to ${capacity} tokens`,
      e.where,
      `${e.remedy} Or give a smaller capacity.`,
    );
  }
}

interface Found {
  manifest: Manifest;
  where: string;
  origin: ModelInfo["origin"];
  dtype: string;
  compileMs: number;
  onnx?: (() => Promise<Onnx>) | undefined;
  /**
   * Streams the weights in; gives the package's other files, and the texts (tokenizer, configs).
   */
  fill(extents: Map<string, Extent[]>): Promise<{ files: Map<string, Uint8Array>; texts: Texts }>;
}

async function find(job: Job, engine: Promise<Engine>): Promise<Found> {
  const { request } = job;
  if (typeof request.model === "string") {
    const place = locate(request.model, request.base, request);
    if (place.kind === "package") return fromPackage(job, job.http(place.url, true));
    return fromAddress(job, place.graphs, place.folder, engine);
  }
  if ("port" in request.model) return fromPackage(job, job.handed(request.model));
  const given = sortFiles(request.model, request.dtype);
  if (given.kind === "package") return fromPackage(job, job.blob(given.file, given.name));
  const texts: Texts = new Map();
  for (const name of TEXT_FILES) {
    const blob = given.files.get(name);
    if (blob) texts.set(name, await blob.text());
  }
  return fromFiles(
    job,
    given.graph,
    given.files,
    texts,
    request.dtype === "auto" ? "" : request.dtype,
    engine,
  );
}

async function fromPackage(job: Job, source: ByteSource): Promise<Found> {
  const opened = await openPackage(source);
  const fill: Found["fill"] = async (extents) => {
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
  for (const name of TEXT_FILES) {
    const bytes = opened.files.get(name);
    if (bytes) texts.set(name, new TextDecoder().decode(bytes));
  }
  return texts;
}

/**
 * What decides about a compiled package: this compiler, the engine's table of kernels, and `what`:
 * the model and how it was to be compiled.
 */
export function compiledKey(tableHash: number, what: Record<string, unknown>): string {
  return JSON.stringify({ compiler: COMPILER, table: tableHash, ...what });
}

async function keyOf(job: Job, engine: Promise<Engine>, what: unknown): Promise<string> {
  return compiledKey((await engine).tableHash, {
    capacity: job.request.capacity ?? null,
    cache_dtype: job.request.cache_dtype ?? null,
    ...(job.request.programs ? { programs: job.request.programs } : {}),
    what,
  });
}

async function fromAddress(
  job: Job,
  graphs: { url: string; dtype: string }[],
  folder: string,
  engine: Promise<Engine>,
): Promise<Found> {
  const reading = job.texts(folder);
  reading.catch(() => undefined);
  let source: HttpSource | KeptSource | undefined;
  let dtype = "";
  for (const graph of graphs) {
    const candidate = job.http(graph.url, true);
    try {
      await candidate.open();
      [source, dtype] = [candidate, graph.dtype === "auto" ? "" : graph.dtype];
      break;
    } catch (e) {
      if (!(e instanceof NotFound)) throw e;
      if (e.status === 404 && graph !== graphs[graphs.length - 1]) continue;
      if (graphs.length > 1 && e.status === 404)
        throw new ModelError(
          "there is no .onnx file of any dtype",
          new URL(".", graph.url).href,
          `Tried ${graphs.map((g) => g.url.split("/").pop()).join(", ")}. Check the model's ` +
            "name, or give dtype, subfolder and model_file_name.",
        );
      throw e;
    }
  }
  const graph = source!;
  const beside = (name: string) => job.http(new URL(encodeURI(name), graph.url).href, true);
  const texts = await reading;
  job.readTexts(texts, folder);

  // With an ETag or a date, an earlier visit's package is known to fit without reading the model
  // first: weights stream from the network.
  const tagged = graph.validator !== undefined && graph.size !== undefined;
  const config = texts.get("config.json") ?? "";
  const key =
    tagged && job.request.cache
      ? await keyOf(job, engine, {
          url: graph.url,
          validator: graph.validator,
          size: graph.size,
          config,
        })
      : undefined;
  if (key) {
    const cached = await findCompiled(key, undefined);
    const opened = cached && (await openPackage(cached, true));
    if (opened) {
      const sources = new Map<string, ByteSource>([[graph.name, graph]]);
      const noted =
        (opened.manifest.cache as { tags?: Record<string, string> } | undefined)?.tags ?? {};
      let fits = true;
      for (const { file } of opened.manifest.weights.values()) {
        if (opened.manifest.files.has(file) || sources.has(file)) continue;
        const other = beside(file);
        await other.open();
        sources.set(file, other);
        fits &&= noted[file] === `${other.validator} ${other.size}`;
      }
      const again = async () => ({
        graph: graph.name,
        files: new Map(
          await Promise.all(
            Array.from(
              sources.keys(),
              async (name): Promise<[string, Blob]> => [
                name,
                await toBlob(name === graph.name ? new HttpSource(graph.url) : beside(name)),
              ],
            ),
          ),
        ),
      });
      if (fits)
        return { ...fromCache(opened, sources, texts, dtype, key, graph.name), onnx: again };
      for (const [name, s] of sources) if (name !== graph.name) (s as HttpSource).cancel?.();
    }
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
  return fromFiles(job, graph.name, files, texts, dtype, engine, { key, tags, fetchMissing });
}

async function fromFiles(
  job: Job,
  graph: string,
  files: Map<string, Blob>,
  texts: Texts,
  dtype: string,
  engine: Promise<Engine>,
  from: {
    key?: string | undefined;
    tags?: Record<string, string>;
    fetchMissing?: (name: string) => Promise<void>;
  } = {},
): Promise<Found> {
  const { cache, capacity, cache_dtype, programs } = job.request;
  const onnx = async () => ({ graph, files });
  job.readTexts(texts, graph);
  // Files that were given have no ETag: the key is their names and sizes, and the ranges that the
  // compiler read are compared.
  const sizes = Array.from(files, ([name, blob]) => [name, blob.size]).sort();
  const key = !cache ? undefined : (from.key ?? (await keyOf(job, engine, { graph, sizes })));
  if (key && !from.key) {
    const cached = await findCompiled(key, files);
    const opened = cached && (await openPackage(cached, true));
    if (opened)
      return { ...fromCache(opened, blobSources(job, files), texts, dtype, key, graph), onnx };
  }
  let compiled;
  const onStage = (stage: "pyodide" | "compile" | "done", words: string) =>
    job.progress({ status: "compile", name: job.model, stage, message: words });
  for (let attempts = 0; !compiled; attempts++) {
    try {
      compiled = await job.python().compile(
        files,
        {
          model_file: graph,
          ...(capacity === undefined ? {} : { capacity }),
          ...(cache_dtype === undefined ? {} : { cache_dtype }),
          ...(programs ? { programs } : {}),
        },
        onStage,
      );
    } catch (e) {
      if (!(e instanceof MissingFile)) throw e;
      if (!from.fetchMissing || files.has(e.file) || attempts >= 8) throw e.error;
      await from.fetchMissing(e.file);
    }
  }
  job.end();
  const { manifest: json, reads } = compiled;
  const compileMs = compiled.ms.pyodide + compiled.ms.compile;
  let parsed: Record<string, unknown>;
  try {
    parsed = JSON.parse(json) as Record<string, unknown>;
  } catch (e) {
    throw new PackageError(
      `the compiler's manifest is not JSON (${message(e)})`,
      graph,
      "This is a mistake in Edgewise; please report it.",
    );
  }
  const noted: Reads & { tags: Record<string, string> } = {
    ranges: reads,
    sha256: (await digestReads(reads, files)) ?? "",
    tags: from.tags ?? {},
  };
  const made = makePackage({ ...parsed, cache: noted }, compiled.files);
  const opened = await openPackage(new BlobSource(made, graph), true);
  if (key) await keepCompiled(key, made, job.warn);
  return {
    ...fromCache(opened, blobSources(job, files), texts, dtype, key, graph),
    origin: "compiled",
    compileMs,
    onnx,
  };
}

function blobSources(job: Job, files: Map<string, Blob>): Map<string, ByteSource> {
  return new Map(Array.from(files, ([name, blob]) => [name, job.blob(blob, name)]));
}

/**
 * Fills the places of a package's weights, those that lie in the package and those in the model's
 * own files: each file is read once, as a stream.
 */
export async function fillBeside(
  { manifest, finish }: OpenPackage,
  extents: Map<string, Extent[]>,
  sources: Map<string, ByteSource>,
  where: string,
): Promise<void> {
  await finish(extents);
  for (const [file, list] of extents) {
    if (manifest.files.has(file)) continue;
    const source = sources.get(file);
    if (!source)
      throw new ModelError(
        `it needs the file '${file}' for its weights, which is not among those given`,
        where,
        `Give ${file} along with ${where}.`,
      );
    const end = list.reduce((most, e) => Math.max(most, e.start + e.bytes), 0);
    if (source.size !== undefined && source.size < end) throw endsEarly(file, end);
    if (source instanceof BlobSource) await source.gather(list);
    else if ((await scatter(source.stream(), 0, list)) < end) throw endsEarly(file, end);
  }
}

/** A package whose weights lie in the model's files. */
function fromCache(
  opened: OpenPackage,
  sources: Map<string, ByteSource>,
  texts: Texts,
  dtype: string,
  key: string | undefined,
  where: string,
): Found {
  const { manifest } = opened;
  const fill: Found["fill"] = async (extents) => {
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
