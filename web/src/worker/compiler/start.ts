// Starts Python: Pyodide, restored from a snapshot with Edgewise imported (python/edgewise/
// snapshot.py) where there is one, else from its standard library and Edgewise's wheel.

import type { FromCompiler, PythonFile, PythonFiles, PythonUrls } from "../../protocol/compiler.ts";
import { type PlainError, plainError } from "../../protocol/errors.ts";
import { bytesOf, HttpSource } from "../../shared/files/http.ts";
import { isAbsent } from "../../shared/files/own.ts";
import { checkDigest, isEdgewise } from "../../shared/files/stream.ts";
import { digestOf, sha256 } from "../../shared/sha256.ts";
import { VERSION } from "../../shared/version.ts";
import { stalled, stallTimeout, within } from "../../shared/watchdog.ts";
import { message } from "../../shared/words.ts";
import { alive, checked, compileWasm, NO_LIBRARY, streamOf, watchedFetch } from "./downloads.ts";
import { Snapshot } from "./snapshot.ts";

/** A Python object as a function. */
export type PyProxy = (...args: unknown[]) => {
  toJs(options: object): unknown;
  destroy(): void;
};

/** What is used of Pyodide's API. */
export interface Pyodide {
  unpackArchive(buffer: ArrayBuffer, format: string): void;
  runPython(code: string): PyProxy;
  toPy(value: unknown): unknown;
}

/** Python that has started: its entry for pages, and the milliseconds that it took. */
export interface PythonRuntime {
  run: PyProxy;
  pyodide: Pyodide;
  ms: number;
}

/** Why Python did not start. */
export type Failure = Extract<FromCompiler, { error: PlainError }>;

/** Python's entry for pages: takes files and JSON, returns an answer or an error as a list. */
const ENTRY = "from edgewise.page import run\nrun";
const RESUME = "from edgewise.snapshot import resume\nresume";

// Downloads that report their own failures use it while Pyodide's go through watchedFetch.
const plainFetch = globalThis.fetch.bind(globalThis);

const SCRIPT_PATIENCE = 4; // times the stall timeout: scripts come without a sign of progress

/** An error of the compiler as a message. */
export function failure(what: string, where: string, remedy: string): Failure {
  return {
    error: { name: "EngineError", what, where, remedy, stack: "", fields: {} },
    missing: undefined,
  };
}

type LoadPyodide = (options: Record<string, unknown>) => Promise<Pyodide>;

/** What is used of Pyodide's Emscripten module, and of the settings that it is made with. */
interface PyodideModule {
  HEAPU8: Uint8Array;
  _malloc(bytes: number): number;
}
interface ModuleSettings {
  API: { abiVersion: string };
}
type CreateModule = (settings: ModuleSettings) => Promise<PyodideModule>;

/**
 * Pyodide's scripts and WebAssembly. By itself it requests each after the one before has run; here
 * all are requested at once, beside the snapshot.
 */
interface Parts {
  load: Promise<LoadPyodide>;
  create: Promise<CreateModule>;
  wasm: Promise<WebAssembly.Module>;
}

/** Python's files: their addresses, and their SHA-256 where these are known. */
interface Place {
  files: PythonFiles;
  digest(file: PythonFile): string | undefined;
}

/**
 * The address that a script can be imported from: its own, or, where it has to have a hash or
 * another name (a bundler would compile a .mjs file once more), that of a copy.
 */
async function importable({ files, digest }: Place, file: PythonFile): Promise<string> {
  const url = files[file];
  if (!digest(file) && /\.m?js(?=$|[?#])/.test(url)) return url;
  const script = await checked(url, plainFetch, digest(file));
  return URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
}

function requestParts(place: Place): Parts {
  const script = async (file: PythonFile): Promise<unknown> => {
    const url = await importable(place, file);
    const patience = SCRIPT_PATIENCE * stallTimeout();
    const module = await within(
      import(/* webpackIgnore: true */ /* @vite-ignore */ url),
      () => stalled("the server", url, "Check the network.", patience),
      patience,
    );
    alive();
    return module;
  };
  const parts = {
    wasm: compileWasm(place.files.wasm, plainFetch, place.digest("wasm")),
    load: script("loader").then((m) => (m as { loadPyodide: LoadPyodide }).loadPyodide),
    create: script("module").then((m) => (m as { default: CreateModule }).default),
  };
  for (const part of [parts.wasm, parts.load, parts.create]) part.catch(() => undefined);
  return parts;
}

const INSTALL =
  `Run \`npm install edgewise-compiler@${VERSION}\` and add ` +
  '`import "edgewise-compiler"` to the page; or serve node_modules/edgewise-compiler/dist in the ' +
  "folder of env.filesUrl; or give the page a package made by `edgewise build`.";

/**
 * Starts Python, from elsewhere if the page does not serve its files. Errors come as a value.
 */
export async function startPython({ files, other }: PythonUrls): Promise<PythonRuntime | Failure> {
  const began = performance.now();
  const { loader, wheel } = files;
  const known = loader && wheel;
  const first = known
    ? await start({ files, digest: () => undefined }, began)
    : failure("the page has no address of Python's files", "edgewise-compiler", INSTALL);
  if (!("error" in first) || !other) return first;
  if (known && !(await isAbsent(loader)) && !(await isAbsent(wheel))) return first;
  const digest = (file: PythonFile): string | undefined => digestOf(other.integrity[file]);
  const second = await start({ files: other.files, digest }, began);
  if ("error" in second)
    return failure(
      `the page does not serve Python's files (${first.error.what}), and ${second.error.what}`,
      second.error.where,
      INSTALL,
    );
  console.warn(
    `edgewise: Python's files come from ${other.files.wheel}, as the page does not serve them. ` +
      INSTALL,
  );
  return second;
}

async function start(place: Place, began: number): Promise<PythonRuntime | Failure> {
  const parts = requestParts(place);
  const opened = openSnapshot(place);
  try {
    return await load(await parts.load, parts, opened, place, began);
  } catch (e) {
    void opened.then((snapshot) => snapshot?.cancel());
    return notStarted(e, place);
  }
}

function notStarted(e: unknown, { files }: Place): Failure {
  if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
  return failure(`Pyodide could not be started (${message(e)})`, files.loader, INSTALL);
}

const never = (): Promise<never> => new Promise(() => undefined);

async function load(
  loadPyodide: LoadPyodide,
  parts: Parts,
  opened: Promise<Snapshot | undefined>,
  place: Place,
  began: number,
): Promise<PythonRuntime | Failure> {
  const { files, digest } = place;
  const wheelRemedy = "Serve Edgewise's wheel there, or set env.wheelUrl to where it is.";
  const downloadWheel = (): Promise<Uint8Array<ArrayBuffer>> => {
    const wheel = bytesOf(files.wheel, "the compiler", wheelRemedy, {
      onBytes: alive,
      fetch: plainFetch,
      integrity: digest("wheel"),
    });
    wheel.catch(() => undefined);
    return wheel;
  };
  let pyodide: Pyodide | undefined;
  let wheel: Promise<Uint8Array<ArrayBuffer>> | undefined;
  const { instantiateStreaming } = WebAssembly;
  // Pyodide only logs that its WebAssembly is missing, and would never end
  const broken = parts.wasm.then(never);
  broken.catch(() => undefined);
  try {
    const library = digest("library");
    const digests = new Map(library ? [[files.library, library]] : []);
    globalThis.fetch = watchedFetch(plainFetch, files.wasm, digests);
    WebAssembly.instantiateStreaming = async (_, imports) => {
      const module = await parts.wasm;
      return { module, instance: await WebAssembly.instantiate(module, imports) };
    };
    const snapshot = await opened;
    alive(); // what follows has its own time
    if (snapshot) {
      const restoring = run(loadPyodide, await parts.create, files, snapshot);
      pyodide = await Promise.race([restoring.catch(() => undefined), broken]);
    }
    if (!pyodide) {
      wheel = downloadWheel();
      const starting = run(loadPyodide, await parts.create, files);
      pyodide = await Promise.race([starting, broken, wheel.then(never)]);
    }
    alive();
  } catch (e) {
    return notStarted(e, place);
  } finally {
    globalThis.fetch = plainFetch;
    WebAssembly.instantiateStreaming = instantiateStreaming;
  }
  try {
    if (wheel) pyodide.unpackArchive((await wheel).buffer, "wheel");
    else
      pyodide.runPython(RESUME)(
        () => fetchNow(files.library, digest("library")),
        () => fetchNow(files.wheel, digest("wheel")),
      );
    const entry = pyodide.runPython(ENTRY);
    postMessage({ started: true } satisfies FromCompiler);
    return { run: entry, pyodide, ms: performance.now() - began };
  } catch (e) {
    if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
    return failure(`the compiler could not be installed (${message(e)})`, files.wheel, wheelRemedy);
  }
}

/**
 * Runs Pyodide, without packages that it can load.
 * @param snapshot of the memory; rejects if it is of another Pyodide, or damaged
 */
async function run(
  loadPyodide: LoadPyodide,
  create: CreateModule,
  files: PythonFiles,
  snapshot?: Snapshot,
): Promise<Pyodide> {
  let noPackages = (_lock: object): void => undefined;
  return loadPyodide({
    indexURL: files.wasm.replace(/[^/]*$/, ""), // named in messages alone
    ...(snapshot && { _loadSnapshot: snapshot.head() }),
    stdLibURL: snapshot ? NO_LIBRARY : files.library, // the snapshot has it imported
    // instead of pyodide-lock.json, the list of packages that Pyodide can load
    lockFileContents: new Promise((resolve) => (noPackages = resolve)),
    // the memory that Pyodide starts with may be smaller than the snapshot
    async createPyodideModule(settings: ModuleSettings) {
      const module = await create(settings);
      noPackages({ info: { abi_version: settings.API.abiVersion }, packages: {} });
      const size = (await snapshot?.size()) ?? 0;
      while (module.HEAPU8.length < size)
        if (!module._malloc(size - module.HEAPU8.length)) throw new Error("out of memory");
      await snapshot?.restore(module.HEAPU8);
      return module;
    },
  });
}

/**
 * Opens the snapshot. Returns its content, still on its way, or undefined if it cannot be had (a
 * wheel of one's own, an old browser, a server that refuses): Python then starts without.
 */
async function openSnapshot({ files, digest }: Place): Promise<Snapshot | undefined> {
  const url = files.snapshot;
  if (!url || typeof DecompressionStream !== "function") return undefined;
  const integrity = digest("snapshot");
  const source = new HttpSource(url, { onBytes: alive, fetch: plainFetch, integrity });
  try {
    await source.open();
  } catch {
    return undefined;
  }
  const compressed = streamOf(source, (e) => e);
  return new Snapshot(compressed.pipeThrough(new DecompressionStream("gzip")));
}

/** Downloads a file while Python waits. */
function fetchNow(url: string, digest?: string): Uint8Array {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.responseType = "arraybuffer";
  request.timeout = SCRIPT_PATIENCE * stallTimeout();
  request.send();
  if (request.status !== 200 || !request.response)
    throw new Error(`${url} could not be fetched (HTTP ${request.status})`);
  const file = new Uint8Array(request.response as ArrayBuffer);
  if (digest) checkDigest(sha256(file), digest, url);
  return file;
}
