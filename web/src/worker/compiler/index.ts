// The compiler's worker: starts Pyodide with the edgewise wheel and serves compilations, until it
// is terminated from outside to free its memory. Python reads the model's files through `Source`s
// backed by Blobs, so that weights are read only where needed.

import type { FromCompiler, ToCompiler } from "../../protocol/compiler.ts";
import { holdLife } from "../../shared/lives.ts";
import { joined } from "../../shared/ranges.ts";
import { setStallTimeout } from "../../shared/watchdog.ts";
import { message } from "../../shared/words.ts";
import { alive } from "./downloads.ts";
import { type Failure, failure, type PythonRuntime, startPython } from "./start.ts";

/** A file, as Python sees it. */
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
    return new Uint8Array(this.part(from, bytes));
  }

  /**
   * The lowest and the highest biased exponent of float32 numbers, as Python's onnx/halves.py finds
   * them. It is not noted that they were read: loading compares them (halves.ts).
   */
  exponents(offset: number, size: number): number[] {
    const floats = new Int32Array(this.part(Number(offset), Number(size)));
    let [low, high, bits] = [0x7fffffff, 0, 0];
    for (let i = 0; i < floats.length; i++) {
      const x = floats[i]! & 0x7fffffff;
      bits |= x;
      if (x > high) high = x;
      if (x && x < low) low = x;
    }
    return bits & 0x1fff || low < 1 << 23 ? [] : [low >> 23, high >> 23];
  }

  private part(from: number, bytes: number): ArrayBuffer {
    return this.reader.readAsArrayBuffer(this.blob.slice(from, from + bytes));
  }
}

/**
 * Files of the latest compilation that had any; later compilations without files continue with what
 * Python keeps of them.
 */
let given = new Map<string, Source>();

function compile(
  { run, pyodide, ms }: PythonRuntime,
  files: [string, Blob][],
  options: Record<string, unknown>,
): FromCompiler {
  const t0 = performance.now();
  const sources = new Map(files.map(([name, blob]) => [name, new Source(name, blob)]));
  if (sources.size && options.call !== "node") given = sources;
  // as JSON, since its null becomes Python's None
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
      string[] | undefined,
    ];
    return {
      error: { name, what, where, remedy, stack: "", fields: {} },
      missing: missing ?? undefined,
    };
  }
  const [manifest, made] = value as [string, Map<string, Uint8Array<ArrayBuffer>>];
  const reads = Object.fromEntries(Array.from(given, ([name, s]) => [name, joined(s.ranges)]));
  return {
    buffers: [...new Set(Array.from(made.values(), (bytes) => bytes.buffer))],
    compiled: {
      manifest,
      files: made,
      reads,
      ms: { pyodide: ms, compile: performance.now() - t0 },
    },
  };
}

let started: Promise<PythonRuntime | Failure> | undefined;

/** Serves compilations. */
export function serveCompiler(): void {
  addEventListener("message", serve);
}

async function serve({ data }: MessageEvent<ToCompiler>): Promise<void> {
  if ("python" in data) {
    setStallTimeout(data.stallTimeout);
    holdLife(data.life, (watched) => {
      if (watched) postMessage({ life: data.life } satisfies FromCompiler);
    });
    alive();
    started = startPython(data.python);
    const ready = await started;
    if ("error" in ready) postMessage(ready);
    return;
  }
  let reply: FromCompiler;
  try {
    const ready = await started!;
    reply = "error" in ready ? ready : compile(ready, data.files, data.options);
    const transfer = ("compiled" in reply && reply.buffers) || [];
    (postMessage as (m: FromCompiler, t: Transferable[]) => void)(reply, transfer);
  } catch (e) {
    postMessage(
      failure(
        `the compiler failed (${message(e)})`,
        "",
        "Compile the model ahead of time with `edgewise build`.",
      ) satisfies FromCompiler,
    );
  }
}
