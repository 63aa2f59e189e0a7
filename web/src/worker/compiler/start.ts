// Starts Python: Pyodide, restored from a snapshot with Edgewise imported (python/edgewise/
// snapshot.py) where there is one, else from its standard library and Edgewise's wheel.

import type { FromCompiler, PythonUrls } from "../../protocol/compiler.ts";
import { type PlainError, plainError } from "../../protocol/errors.ts";
import { bytesOf, HttpSource } from "../../shared/files/http.ts";
import { isEdgewise } from "../../shared/files/stream.ts";
import { PYODIDE } from "../../shared/version.ts";
import { stalled, stallTimeout, within } from "../../shared/watchdog.ts";
import { message } from "../../shared/words.ts";
import { alive, compileWasm, NO_LIBRARY, streamOf, watchedFetch } from "./downloads.ts";
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
  wasmUrl: string;
}

function requestParts(folder: string): Parts {
  const wasmUrl = new URL("pyodide.asm.wasm", folder).href;
  const script = async (name: string): Promise<unknown> => {
    const url = new URL(name, folder).href;
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
    wasmUrl,
    wasm: compileWasm(wasmUrl, plainFetch),
    load: script("pyodide.mjs").then((m) => (m as { loadPyodide: LoadPyodide }).loadPyodide),
    create: script("pyodide.asm.mjs").then((m) => (m as { default: CreateModule }).default),
  };
  for (const part of [parts.wasm, parts.load, parts.create]) part.catch(() => undefined);
  return parts;
}

/** Starts Python. Errors come as a value. */
export async function startPython(urls: PythonUrls): Promise<PythonRuntime | Failure> {
  const began = performance.now();
  if (!urls.pyodideUrl || !urls.wheelUrl)
    return failure(
      "the location of Python's files is not configured in this bundle",
      urls.pyodideUrl ? "env.wheelUrl" : "env.pyodideUrl",
      `Run \`npm install pyodide@${PYODIDE}\`, serve the files of that package and the wheel ` +
        "and snapshot in node_modules/edgewise/dist, and set env.pyodideUrl and env.wheelUrl; or " +
        "give the page a package made by `edgewise build`.",
    );
  const parts = requestParts(urls.pyodideUrl);
  const opened = openSnapshot(urls.snapshotUrl);
  try {
    return await load(await parts.load, parts, opened, urls, began);
  } catch (e) {
    void opened.then((snapshot) => snapshot?.cancel());
    return notStarted(e, urls);
  }
}

function notStarted(e: unknown, { pyodideUrl }: PythonUrls): Failure {
  if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
  return failure(
    `Pyodide could not be started (${message(e)})`,
    pyodideUrl,
    "Serve the files of the npm package pyodide there, or set env.pyodideUrl to where they " +
      "are; or give the page a package made by `edgewise build`.",
  );
}

const never = (): Promise<never> => new Promise(() => undefined);

async function load(
  loadPyodide: LoadPyodide,
  parts: Parts,
  opened: Promise<Snapshot | undefined>,
  urls: PythonUrls,
  began: number,
): Promise<PythonRuntime | Failure> {
  const { pyodideUrl, wheelUrl } = urls;
  const wheelRemedy = "Serve Edgewise's wheel there, or set env.wheelUrl to where it is.";
  const downloadWheel = (): Promise<Uint8Array<ArrayBuffer>> => {
    const wheel = bytesOf(wheelUrl, "the compiler", wheelRemedy, {
      onBytes: alive,
      fetch: plainFetch,
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
    globalThis.fetch = watchedFetch(plainFetch, parts.wasmUrl);
    WebAssembly.instantiateStreaming = async (_, imports) => {
      const module = await parts.wasm;
      return { module, instance: await WebAssembly.instantiate(module, imports) };
    };
    const snapshot = await opened;
    alive(); // what follows has its own time
    if (snapshot) {
      const restoring = restore(loadPyodide, await parts.create, snapshot, pyodideUrl);
      pyodide = await Promise.race([restoring, broken]);
    }
    if (!pyodide) {
      wheel = downloadWheel();
      const starting = loadPyodide({ indexURL: pyodideUrl });
      pyodide = await Promise.race([starting, broken, wheel.then(never)]);
    }
    alive();
  } catch (e) {
    return notStarted(e, urls);
  } finally {
    globalThis.fetch = plainFetch;
    WebAssembly.instantiateStreaming = instantiateStreaming;
  }
  try {
    if (wheel) pyodide.unpackArchive((await wheel).buffer, "wheel");
    else
      pyodide.runPython(RESUME)(
        () => fetchNow(new URL("python_stdlib.zip", pyodideUrl).href),
        () => fetchNow(wheelUrl),
      );
    const run = pyodide.runPython(ENTRY);
    postMessage({ started: true } satisfies FromCompiler);
    return { run, pyodide, ms: performance.now() - began };
  } catch (e) {
    if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
    return failure(`the compiler could not be installed (${message(e)})`, wheelUrl, wheelRemedy);
  }
}

/** Python as it was in the snapshot; undefined if that is of another Pyodide, or damaged. */
async function restore(
  loadPyodide: LoadPyodide,
  create: CreateModule,
  snapshot: Snapshot,
  folder: string,
): Promise<Pyodide | undefined> {
  let noPackages = (_lock: object): void => undefined;
  return loadPyodide({
    indexURL: folder,
    _loadSnapshot: snapshot.head(),
    stdLibURL: NO_LIBRARY, // the snapshot has it imported
    // instead of pyodide-lock.json, the list of packages that Pyodide can load
    lockFileContents: new Promise((resolve) => (noPackages = resolve)),
    // the memory that Pyodide starts with may be smaller than the snapshot
    async createPyodideModule(settings: ModuleSettings) {
      const module = await create(settings);
      noPackages({ info: { abi_version: settings.API.abiVersion }, packages: {} });
      const size = await snapshot.size();
      while (module.HEAPU8.length < size)
        if (!module._malloc(size - module.HEAPU8.length)) throw new Error("out of memory");
      await snapshot.restore(module.HEAPU8);
      return module;
    },
  }).catch(() => undefined);
}

/**
 * Opens the snapshot. Returns its content, still on its way, or undefined if it cannot be had (a
 * wheel of one's own, an old browser, a server that refuses): Python then starts without.
 */
async function openSnapshot(url: string): Promise<Snapshot | undefined> {
  if (!url || typeof DecompressionStream !== "function") return undefined;
  const source = new HttpSource(url, { onBytes: alive, fetch: plainFetch });
  try {
    await source.open();
  } catch {
    return undefined;
  }
  const compressed = streamOf(source, (e) => e);
  return new Snapshot(compressed.pipeThrough(new DecompressionStream("gzip")));
}

/** Downloads a file while Python waits. */
function fetchNow(url: string): Uint8Array {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.responseType = "arraybuffer";
  request.timeout = SCRIPT_PATIENCE * stallTimeout();
  request.send();
  if (request.status !== 200 || !request.response)
    throw new Error(`${url} could not be fetched (HTTP ${request.status})`);
  return new Uint8Array(request.response as ArrayBuffer);
}
