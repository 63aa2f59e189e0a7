// Compiles models in a worker of its own (compiler.ts), which starts while a model is still downloading and ends with the compilation:
// an abort ends it at once, Pyodide's memory goes with it, and whatever happens in there harms nothing here.

import { EngineError } from "./errors.ts";
import { makeError, type Urls } from "./protocol.ts";
import { aborted } from "./source.ts";
import type { Compiled, FromCompiler, ToCompiler } from "./compiler.ts";

/** Gets how far a compilation is. */
export type Stage = (stage: "pyodide" | "compile" | "done", message: string) => void;

/** A file that the model refers to and that was not among those given. */
export class MissingFile extends Error {
  constructor(readonly file: string, readonly error: Error) {
    super(`missing ${file}`);
  }
}

/** Python in a worker. */
export class Compiler {
  private readonly worker: Worker;
  private started = false;
  private failed: Error | undefined;
  private waiting: { resolve(c: Compiled): void; reject(e: unknown): void; onStage: Stage } | undefined;
  private readonly stop = () => this.end(aborted(this.signal));

  /** Starts Python. */
  constructor(urls: Urls, private readonly signal: AbortSignal) {
    this.worker = new Worker(urls.compilerUrl, { type: "module", name: "edgewise compiler" });
    this.worker.onerror = (e) => {
      e.preventDefault?.();
      this.end(new EngineError(`the compiler's worker failed (${e.message || "it could not be loaded"})`, urls.compilerUrl, "Serve compiler.js beside worker.js."));
    };
    this.worker.onmessage = ({ data }: MessageEvent<FromCompiler>) => this.receive(data);
    this.post({ pyodideUrl: urls.pyodideUrl, wheelUrl: urls.wheelUrl });
    if (signal.aborted) this.stop();
    else signal.addEventListener("abort", this.stop, { once: true });
  }

  /** One at a time. Throws what the compiler says, {@link MissingFile}, and Aborted. */
  compile(files: Map<string, Blob>, options: Record<string, unknown>, onStage: Stage): Promise<Compiled> {
    if (this.failed) return Promise.reject(this.failed);
    onStage(this.started ? "compile" : "pyodide", this.started ? "compiling the model" : "starting Python");
    return new Promise((resolve, reject) => {
      this.waiting = { resolve, reject, onStage };
      this.post({ files: [...files], options });
    });
  }

  /** Ends the worker; a compilation that runs rejects with `error`. */
  end(error: Error = new EngineError("the compiler has ended")): void {
    this.failed ??= error;
    this.signal.removeEventListener("abort", this.stop);
    this.worker.terminate();
    this.waiting?.reject(this.failed);
    this.waiting = undefined;
  }

  private receive(data: FromCompiler): void {
    const { waiting } = this;
    if ("started" in data) {
      this.started = true;
      waiting?.onStage("compile", "compiling the model");
      return;
    }
    this.waiting = undefined;
    if ("compiled" in data) {
      const { ms } = data.compiled;
      waiting?.onStage("done", `compiled in ${(ms.compile / 1000).toFixed(1)} s; Python started in ${(ms.pyodide / 1000).toFixed(1)} s`);
      waiting?.resolve(data.compiled);
    } else {
      const error = makeError(data.error);
      waiting?.reject(data.missing ? new MissingFile(data.missing, error) : error);
    }
  }

  private post(message: ToCompiler): void {
    this.worker.postMessage(message);
  }
}
