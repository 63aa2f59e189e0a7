// Compiles a model in a worker of its own (compiler.ts), which ends with the compilation: an abort ends it at once, Pyodide's memory
// goes with it, and whatever happens in there harms nothing here.

import { EngineError } from "./errors.ts";
import { makeError, type Urls } from "./protocol.ts";
import { aborted, throwIfAborted } from "./source.ts";
import type { CompileRequest, Compiled, FromCompiler } from "./compiler.ts";

export type Stage = (stage: "pyodide" | "compile" | "done", message: string) => void;

/** A file that the model refers to and that was not among those given. */
export class MissingFile extends Error {
  constructor(readonly file: string, readonly error: Error) {
    super(`missing ${file}`);
  }
}

export function compileModel(files: Map<string, Blob>, options: Record<string, unknown>, urls: Urls, onStage: Stage, signal: AbortSignal | undefined): Promise<Compiled> {
  throwIfAborted(signal);
  return new Promise((resolve, reject) => {
    const worker = new Worker(urls.compilerUrl, { type: "module", name: "edgewise compiler" });
    const stop = () => finish(() => reject(aborted(signal)));
    const finish = (then: () => void) => {
      signal?.removeEventListener("abort", stop);
      worker.terminate();
      then();
    };
    signal?.addEventListener("abort", stop, { once: true });
    worker.onerror = (e) => {
      e.preventDefault?.();
      finish(() => reject(new EngineError(`the compiler's worker failed (${e.message || "it could not be loaded"})`, urls.compilerUrl, "Serve compiler.js beside worker.js.")));
    };
    worker.onmessage = ({ data }: MessageEvent<FromCompiler>) => {
      if ("stage" in data) onStage(data.stage, data.stage === "pyodide" ? "starting Python" : "compiling the model");
      else if ("compiled" in data) {
        const { ms } = data.compiled;
        onStage("done", `compiled in ${(ms.compile / 1000).toFixed(1)} s, after ${(ms.pyodide / 1000).toFixed(1)} s to start Python`);
        finish(() => resolve(data.compiled));
      } else {
        const error = makeError(data.error);
        finish(() => reject(data.missing ? new MissingFile(data.missing, error) : error));
      }
    };
    worker.postMessage({ pyodideUrl: urls.pyodideUrl, wheelUrl: urls.wheelUrl, files: [...files], options } satisfies CompileRequest);
  });
}
