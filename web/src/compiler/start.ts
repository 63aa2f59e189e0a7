// Starts Python: Pyodide, restored from a snapshot with Edgewise imported (python/edgewise/
// snapshot.py) where there is one, else from its standard library and Edgewise's wheel.

import type { FromCompiler, PythonUrls } from "../protocol/compiler.ts";
import { type PlainError, plainError } from "../protocol/errors.ts";
import { EngineError, ModelError } from "../shared/errors.ts";
import { bytesOf, HttpSource, NotFound } from "../shared/files/http.ts";
import { isEdgewise } from "../shared/files/stream.ts";
import { stalled, stallTimeout, within } from "../shared/watchdog.ts";
import { message } from "../shared/words.ts";
import { alive, NO_LIBRARY, watchedFetch } from "./downloads.ts";

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

const SCRIPT_PATIENCE = 4; // times the stall timeout: scripts come without a sign of progress

/** An error of the compiler as a message. */
export function failure(what: string, where: string, remedy: string): Failure {
  return {
    error: { name: "EngineError", what, where, remedy, stack: "", fields: {} },
    missing: undefined,
  };
}

type LoadPyodide = (options: Record<string, unknown>) => Promise<Pyodide>;

/** Starts Python from the first place that has Pyodide. Errors come as a value. */
export async function startPython(places: PythonUrls[]): Promise<PythonRuntime | Failure> {
  const began = performance.now();
  let missing: unknown;
  for (const urls of places) {
    const opened = openSnapshot(urls.snapshotUrl);
    opened.catch(() => undefined);
    let loadPyodide: LoadPyodide;
    try {
      loadPyodide = await importPyodide(urls.pyodideUrl);
    } catch (e) {
      if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
      missing = e; // the server answers with 404, or with a page
      continue;
    }
    return load(loadPyodide, opened, urls, began);
  }
  return notStarted(missing, places);
}

function notStarted(e: unknown, places: PythonUrls[]): Failure {
  if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
  return failure(
    `Pyodide could not be started (${message(e)})`,
    places.map(({ pyodideUrl }) => pyodideUrl).join(", "),
    "Serve the files of the npm package pyodide there, or set env.pyodideUrl to where they " +
      "are; or give the page a package made by `edgewise build`.",
  );
}

type Opened = { bytes: Promise<Uint8Array> } | undefined;

async function load(
  loadPyodide: LoadPyodide,
  opened: Promise<Opened>,
  urls: PythonUrls,
  began: number,
): Promise<PythonRuntime | Failure> {
  const { pyodideUrl, wheelUrl } = urls;
  const wheelRemedy = "Serve Edgewise's wheel there, or set env.wheelUrl to where it is.";
  const downloadWheel = (): Promise<Uint8Array<ArrayBuffer>> => {
    const wheel = bytesOf(wheelUrl, "the compiler", wheelRemedy, { onBytes: alive });
    wheel.catch(() => undefined);
    return wheel;
  };
  let pyodide: Pyodide | undefined;
  let wheel: Promise<Uint8Array<ArrayBuffer>> | undefined;
  const plain = globalThis.fetch;
  try {
    globalThis.fetch = watchedFetch(plain);
    const snapshot = await opened;
    if (snapshot)
      pyodide = await loadPyodide({
        indexURL: pyodideUrl,
        _loadSnapshot: snapshot.bytes,
        stdLibURL: NO_LIBRARY, // the snapshot has it imported
      }).catch(() => undefined); // of another Pyodide, or damaged
    if (!pyodide) {
      wheel = downloadWheel();
      pyodide = await loadPyodide({ indexURL: pyodideUrl });
    }
    alive();
  } catch (e) {
    return notStarted(e, [urls]);
  } finally {
    globalThis.fetch = plain;
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
 * Opens the snapshot. Gives its content, still on its way, or undefined where there is none (a
 * wheel of one's own, an old browser): Python then starts without.
 */
async function openSnapshot(url: string): Promise<Opened> {
  if (typeof DecompressionStream !== "function") return undefined;
  const source = new HttpSource(url, { onBytes: alive });
  try {
    await source.open();
  } catch (e) {
    if (e instanceof NotFound) return undefined;
    if (!(e instanceof ModelError)) throw e;
    throw new EngineError(
      `the compiler could not be fetched (${e.what})`,
      url,
      "Check the network, and load the page again.",
    );
  }
  const chunks = source.stream();
  const packed = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(queue) {
      const { done, value } = await chunks.next();
      if (done) queue.close();
      else queue.enqueue(value.slice());
    },
    async cancel() {
      await chunks.return(undefined);
    },
  });
  const memory = packed.pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Response(memory).arrayBuffer().then((buffer) => new Uint8Array(buffer));
  bytes.catch(() => undefined);
  return { bytes };
}

/** Downloads a file while Python waits. */
function fetchNow(url: string): Uint8Array {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.responseType = "arraybuffer";
  request.send();
  if (request.status !== 200 || !request.response)
    throw new Error(`${url} could not be fetched (HTTP ${request.status})`);
  return new Uint8Array(request.response as ArrayBuffer);
}
