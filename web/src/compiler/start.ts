// Starts Python: Pyodide, restored from a snapshot with Edgewise imported (python/edgewise/
// snapshot.py) where there is one, else from its standard library and Edgewise's wheel.

import type { FromCompiler, PythonUrls } from "../protocol/compiler.ts";
import { type PlainError, plainError } from "../protocol/errors.ts";
import { bytesOf, HttpSource } from "../shared/files/http.ts";
import { isEdgewise } from "../shared/files/stream.ts";
import { stalled, stallTimeout, within } from "../shared/watchdog.ts";
import { message } from "../shared/words.ts";
import { alive, NO_LIBRARY, streamOf, watchedFetch } from "./downloads.ts";

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

/** Starts Python. Errors come as a value. */
export async function startPython(urls: PythonUrls): Promise<PythonRuntime | Failure> {
  const began = performance.now();
  if (!urls.pyodideUrl || !urls.wheelUrl)
    return failure(
      "the location of Python's files is not configured in this bundle",
      urls.pyodideUrl ? "env.wheelUrl" : "env.pyodideUrl",
      "Serve the folder pyodide/ and the wheel of Edgewise's package, and set env.pyodideUrl and " +
        "env.wheelUrl; or give the page a package made by `edgewise build`.",
    );
  const opened = openSnapshot(urls.snapshotUrl);
  try {
    return await load(await importPyodide(urls.pyodideUrl), opened, urls, began);
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

type Opened = { bytes: Promise<Uint8Array>; cancel(): void } | undefined;

async function load(
  loadPyodide: LoadPyodide,
  opened: Promise<Opened>,
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
  try {
    globalThis.fetch = watchedFetch(plainFetch);
    const snapshot = await opened;
    if (snapshot) pyodide = await restore(loadPyodide, snapshot.bytes, pyodideUrl);
    if (!pyodide) {
      wheel = downloadWheel();
      pyodide = await loadPyodide({ indexURL: pyodideUrl });
    }
    alive();
  } catch (e) {
    return notStarted(e, urls);
  } finally {
    globalThis.fetch = plainFetch;
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

/** What is used of Pyodide's Emscripten module. */
interface PyodideModule {
  HEAP8: Int8Array;
  _malloc(bytes: number): number;
}

/** Python as it was in the snapshot; undefined if that is of another Pyodide, or damaged. */
async function restore(
  loadPyodide: LoadPyodide,
  bytes: Promise<Uint8Array>,
  folder: string,
): Promise<Pyodide | undefined> {
  const script = new URL("pyodide.asm.mjs", folder).href;
  const { default: create } = (await import(
    /* webpackIgnore: true */ /* @vite-ignore */ script
  )) as { default: (settings: object) => Promise<PyodideModule> };
  return loadPyodide({
    indexURL: folder,
    _loadSnapshot: bytes,
    stdLibURL: NO_LIBRARY, // the snapshot has it imported
    // the memory that Pyodide starts with may be smaller than the snapshot
    async createPyodideModule(settings: object) {
      const module = await create(settings);
      const { length } = await bytes;
      while (module.HEAP8.length < length)
        if (!module._malloc(length - module.HEAP8.length)) throw new Error("out of memory");
      return module;
    },
  }).catch(() => undefined);
}

async function importPyodide(folder: string): Promise<LoadPyodide> {
  const script = new URL("pyodide.mjs", folder).href;
  const patience = SCRIPT_PATIENCE * stallTimeout();
  const module = (await within(
    import(/* webpackIgnore: true */ /* @vite-ignore */ script),
    () => stalled("the server", script, "Check the network.", patience),
    patience,
  )) as { loadPyodide: LoadPyodide };
  alive();
  return module.loadPyodide;
}

/**
 * Opens the snapshot. Returns its content, still on its way, or undefined if it cannot be had (a
 * wheel of one's own, an old browser, a server that refuses): Python then starts without.
 */
async function openSnapshot(url: string): Promise<Opened> {
  if (!url || typeof DecompressionStream !== "function") return undefined;
  const source = new HttpSource(url, { onBytes: alive, fetch: plainFetch });
  try {
    await source.open();
  } catch {
    return undefined;
  }
  const canceled = new AbortController();
  const memory = streamOf(source, (e) => e).pipeThrough(new DecompressionStream("gzip"), {
    signal: canceled.signal,
  });
  const bytes = new Response(memory).arrayBuffer().then((buffer) => new Uint8Array(buffer));
  bytes.catch(() => undefined);
  return { bytes, cancel: () => canceled.abort() };
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
