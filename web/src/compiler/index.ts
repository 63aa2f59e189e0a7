// The compiler's worker: Pyodide, the edgewise wheel, one compilation, and then it is ended from
// outside with all its memory. Python sees the model's files through `Source`s that read from
// Blobs, so that weights never pass through it.

import type { FromCompiler, ToCompiler } from "../protocol/compiler.ts";
import { type PlainError, plainError } from "../protocol/errors.ts";
import { bytesOf, HttpSource, NotFound } from "../shared/files/http.ts";
import { isEdgewise } from "../shared/files/stream.ts";
import { holdLife } from "../shared/lives.ts";
import { joined } from "../shared/ranges.ts";
import { setStallTimeout, stalled, stallTimeout, Watchdog, within } from "../shared/watchdog.ts";

type PyProxy = (...args: unknown[]) => { toJs(options: object): unknown; destroy(): void };
interface Pyodide {
  unpackArchive(buffer: ArrayBuffer, format: string): void;
  runPython(code: string): PyProxy;
  toPy(value: unknown): unknown;
}

/** Python's entry for pages: takes files and JSON, returns an answer or an error as a list. */
const ENTRY = "from edgewise.page import run\nrun";

/** A file as Python sees it. */
class Source {
  readonly size: number;
  readonly ranges: [number, number][] = [];
  private readonly reader = new FileReaderSync();

  constructor(
    readonly name: string,
    private readonly blob: Blob,
  ) {
    this.size = blob.size;
  }

  read(offset: number, size: number): Uint8Array {
    const from = Number(offset);
    const bytes = Math.max(0, Math.min(Number(size), this.size - from));
    this.ranges.push([from, bytes]);
    return new Uint8Array(this.reader.readAsArrayBuffer(this.blob.slice(from, from + bytes)));
  }
}

const SCRIPT_PATIENCE = 4; // times the stall timeout: scripts come without a sign of progress

type Run = { run: PyProxy; pyodide: Pyodide; ms: number };
type Failure = Extract<FromCompiler, { error: PlainError }>;

function failure(what: string, where: string, remedy: string): Failure {
  return {
    error: { name: "EngineError", what, where, remedy, stack: "", fields: {} },
    missing: undefined,
  };
}

function words(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

export const alive = (): void => postMessage({ alive: true } satisfies FromCompiler);

/** Tells of an error of the start, which Pyodide might keep to itself or rename. */
function told(e: unknown): unknown {
  postMessage({
    error: { ...plainError(e), name: "EngineError" },
    missing: undefined,
  } satisfies FromCompiler);
  return e;
}

/**
 * In the place of `fetch` while Pyodide starts: a download that breaks or goes silent is taken up
 * again. WebAssembly comes as it is, since browsers keep compiled code only for their own
 * responses; when nothing comes any more, it is an error.
 */
function watchedFetch(plain: typeof fetch): typeof fetch {
  return async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    if ((init?.method ?? "GET") !== "GET" || !/^https?:/.test(url)) return plain(input, init);
    if (url.endsWith(".wasm")) {
      const controller = new AbortController();
      const silent = (): unknown => {
        controller.abort();
        return told(stalled("the server", url, "Check the network, and load the page again."));
      };
      const response = await within(plain(url, { ...init, signal: controller.signal }), silent);
      alive();
      if (response.ok) void followed(response.clone(), silent);
      return response;
    }
    const source = new HttpSource(url, { onBytes: alive, fetch: plain });
    try {
      await source.open();
    } catch (e) {
      if (e instanceof NotFound)
        return new Response(null, { status: e.status >= 200 ? e.status : 500 });
      throw told(e);
    }
    const chunks = source.stream();
    const body = new ReadableStream<Uint8Array>({
      async pull(queue) {
        const { done, value } = await chunks.next().catch((e: unknown) => Promise.reject(told(e)));
        if (done) queue.close();
        else queue.enqueue(value.slice());
      },
      async cancel() {
        await chunks.return(undefined);
      },
    });
    return new Response(body);
  };
}

/** Reads a copy of a response to see that it goes on. */
async function followed(copy: Response, silent: () => void): Promise<void> {
  const reader = copy.body!.getReader();
  const dog = new Watchdog(silent);
  dog.wake();
  try {
    while (!(await reader.read()).done) {
      dog.feed();
      alive();
    }
  } catch {
    // Whoever reads the response itself gets the same error.
  } finally {
    dog.stop();
  }
}

async function start(pyodideUrl: string, wheelUrl: string): Promise<Run | Failure> {
  const t0 = performance.now();
  const wheelRemedy = "Serve Edgewise's wheel there, or set env.wheelUrl to where it is.";
  const wheel = bytesOf(wheelUrl, "the compiler", wheelRemedy, { onBytes: alive });
  wheel.catch(() => undefined);
  let pyodide: Pyodide;
  const plain = globalThis.fetch;
  try {
    const script = new URL("pyodide.mjs", pyodideUrl).href;
    const patience = SCRIPT_PATIENCE * stallTimeout();
    const module = (await within(
      import(/* webpackIgnore: true */ /* @vite-ignore */ script),
      () => stalled("the server", script, "Check the network.", patience),
      patience,
    )) as { loadPyodide(o: object): Promise<Pyodide> };
    alive();
    globalThis.fetch = watchedFetch(plain);
    pyodide = await module.loadPyodide({ indexURL: pyodideUrl });
    alive();
  } catch (e) {
    return failure(
      `Pyodide could not be started (${words(e)})`,
      pyodideUrl,
      "Serve the files of the npm package pyodide there, or set env.pyodideUrl to where they " +
        "are; or give the page a package made by `edgewise build`.",
    );
  } finally {
    globalThis.fetch = plain;
  }
  try {
    pyodide.unpackArchive((await wheel).buffer, "wheel");
    const run = pyodide.runPython(ENTRY);
    postMessage({ started: true } satisfies FromCompiler);
    return { run, pyodide, ms: performance.now() - t0 };
  } catch (e) {
    if (isEdgewise(e)) return { error: plainError(e), missing: undefined };
    return failure(`the compiler could not be installed (${words(e)})`, wheelUrl, wheelRemedy);
  }
}

/**
 * The files of the latest compilation that had any: one without goes on with what Python keeps of
 * them.
 */
let given = new Map<string, Source>();

export function compile(
  { run, pyodide, ms }: Run,
  files: [string, Blob][],
  options: Record<string, unknown>,
): FromCompiler {
  const t0 = performance.now();
  const sources = new Map(files.map(([name, blob]) => [name, new Source(name, blob)]));
  if (sources.size && options.call !== "node") given = sources;
  // JSON, since its null is Python's None
  const result = run(pyodide.toPy(sources), JSON.stringify(options));
  const value = result.toJs({
    create_pyproxies: false,
    dict_converter: (entries: Iterable<[string, unknown]>) => new Map(entries),
  }) as unknown[];
  result.destroy();
  if (value.length === 5) {
    const [name, what, where, remedy, missing] = value as [
      string,
      string,
      string,
      string,
      string | undefined,
    ];
    return {
      error: { name, what, where, remedy, stack: "", fields: {} },
      missing: missing ?? undefined,
    };
  }
  const [manifest, made] = value as [string, Map<string, Uint8Array<ArrayBuffer>>];
  const reads = Object.fromEntries(Array.from(given, ([name, s]) => [name, joined(s.ranges)]));
  return {
    compiled: {
      manifest,
      files: made,
      reads,
      ms: { pyodide: ms, compile: performance.now() - t0 },
    },
  };
}

export let started: Promise<Run | Failure> | undefined;

addEventListener("message", async ({ data }: MessageEvent<ToCompiler>) => {
  if ("pyodideUrl" in data) {
    setStallTimeout(data.stallTimeout);
    holdLife(data.life, () => postMessage({ life: data.life } satisfies FromCompiler));
    alive();
    started = start(data.pyodideUrl, data.wheelUrl);
    const ready = await started;
    if ("error" in ready) postMessage(ready);
    return;
  }
  let reply: FromCompiler;
  try {
    const ready = await started!;
    reply = "error" in ready ? ready : compile(ready, data.files, data.options);
    const transfer =
      "compiled" in reply ? Array.from(reply.compiled.files.values(), (b) => b.buffer) : [];
    (postMessage as (m: FromCompiler, t: Transferable[]) => void)(reply, [...new Set(transfer)]);
  } catch (e) {
    postMessage(
      failure(
        `the compiler failed (${words(e)})`,
        "",
        "Compile the model ahead of time with `edgewise build`.",
      ) satisfies FromCompiler,
    );
  }
});
