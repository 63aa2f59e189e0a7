// Compiles models in a separate worker (src/worker/compiler). It starts while a model is still
// downloading and is terminated after compiling: this frees Pyodide's memory, makes aborts
// immediate, and isolates failures.

import type { Compiled, FromCompiler, ToCompiler } from "../protocol/compiler.ts";
import { makeError } from "../protocol/errors.ts";
import type { Urls } from "../protocol/loading.ts";
import { aborted } from "../shared/abort.ts";
import { EngineError } from "../shared/errors.ts";
import { newLife, watchLife } from "../shared/lives.ts";
import { workerScript } from "../shared/script.ts";
import { type Child, spawn } from "../shared/spawn.ts";
import { seconds, stallTimeout, Watchdog } from "../shared/watchdog.ts";

/** Receives the stage of a compilation. */
export type Stage = (stage: "pyodide" | "compile" | "done", message: string) => void;

/** A file that the model refers to was not among those given. */
export class MissingFile extends Error {
  /** @param names that it may have, likely ones first */
  constructor(
    readonly names: readonly string[],
    readonly error: Error,
  ) {
    super(`missing ${names[0]}`);
  }

  /** Its likely name. */
  get file(): string {
    return this.names[0]!;
  }
}

/** Loading the script reports no progress, so it may take this many stall timeouts. */
const SCRIPT_PATIENCE = 4;
/**
 * The same limit until Pyodide runs, which downloads a script and compiles WebAssembly without
 * reporting progress.
 */
const PYODIDE_PATIENCE = 8;
const END_GRACE_MS = 2000;

const ending = new Set<Promise<void>>();

/** Resolves when all ended compilers of this thread are gone. */
export async function compilersEnded(): Promise<void> {
  await Promise.all(ending);
}

/** Python in a worker. */
export class Compiler {
  /** Undefined until the script is there. */
  private worker: Child | undefined;
  /** Messages to send when the worker is there. */
  private unsent: ToCompiler[] = [];
  /**
   * Times out the start of the worker's script, until its death can be detected; then Pyodide's.
   */
  private start: Watchdog;
  private readonly life = newLife();
  private heard = (): void => undefined;
  /** Resolves when the worker's script runs. */
  private readonly running = new Promise<void>((resolve) => (this.heard = resolve));
  private unwatch = (): void => undefined;
  private spoke = false;
  private started = false;
  private failed: Error | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private waiting:
    | { resolve(c: Compiled): void; reject(e: unknown): void; onStage: Stage }
    | undefined;
  private readonly stop = () => this.end(aborted(this.signal));

  /** Starts Python. */
  constructor(
    private readonly urls: Urls,
    private readonly signal: AbortSignal,
  ) {
    this.start = this.watchdog(
      "the compiler's worker did not start: no message",
      SCRIPT_PATIENCE,
      urls.compilerUrl,
      "Check the network, and that compiler.js is served beside worker.js.",
    );
    workerScript(urls.compilerUrl, "compiler.js").then(
      (script) => this.launch(script),
      (e: Error) => this.end(e),
    );
    this.post({
      python: urls.python,
      life: this.life,
      stallTimeout: stallTimeout(),
    });
    if (signal.aborted) this.stop();
    else signal.addEventListener("abort", this.stop, { once: true });
  }

  private launch(script: string): void {
    if (this.failed) {
      this.heard();
      return;
    }
    this.worker = spawn(script, "edgewise compiler");
    this.worker.onerror = (e) => {
      e.preventDefault?.();
      this.end(
        new EngineError(
          `the compiler's worker failed (${e.message || "it could not be loaded"})`,
          this.urls.compilerUrl,
          "Serve compiler.js beside worker.js.",
        ),
      );
    };
    this.worker.onmessage = ({ data }: MessageEvent<FromCompiler>) => this.receive(data);
    for (const message of this.unsent.splice(0)) this.worker.postMessage(message);
  }

  private watchdog(what: string, patience: number, where: string, remedy: string): Watchdog {
    const ms = patience * stallTimeout();
    const dog = new Watchdog(
      () => this.end(new EngineError(`${what} for ${seconds(ms)}`, where, remedy)),
      ms,
    );
    dog.wake();
    return dog;
  }

  /** The worker runs and its death can be detected: allows more time for Pyodide. */
  private awaitPyodide(): void {
    this.start.stop();
    this.start = this.watchdog(
      "Python did not start: no message",
      PYODIDE_PATIENCE,
      this.urls.python.files.loader,
      "Check the network, and that Python's files are served there (env.pyodideUrl); or give the " +
        "page a package made by `edgewise build`.",
    );
  }

  /** Whether it has neither failed nor been ended. */
  get alive(): boolean {
    return !this.failed;
  }

  /**
   * Compiles a model. Calls are executed one after the other.
   * @throws the compiler's error; {@link MissingFile}; Aborted
   */
  compile(
    files: Map<string, Blob>,
    options: Record<string, unknown>,
    onStage: Stage,
  ): Promise<Compiled> {
    const mine = this.last.then(() => this.call(files, options, onStage));
    this.last = mine.catch(() => undefined);
    return mine;
  }

  private call(
    files: Map<string, Blob>,
    options: Record<string, unknown>,
    onStage: Stage,
  ): Promise<Compiled> {
    if (this.failed) return Promise.reject(this.failed);
    onStage(
      this.started ? "compile" : "pyodide",
      this.started ? "compiling the model" : "starting Python",
    );
    return new Promise((resolve, reject) => {
      this.waiting = { resolve, reject, onStage };
      this.post({ files: [...files], options });
    });
  }

  /** Ends the worker; a running compilation rejects with `error`. */
  end(error: Error = new EngineError("the compiler has ended")): void {
    const first = !this.failed;
    this.failed ??= error;
    this.signal.removeEventListener("abort", this.stop);
    this.start.stop();
    this.unwatch();
    this.waiting?.reject(this.failed);
    this.waiting = undefined;
    if (!first) return;
    // terminating a worker that is starting would leak its thread
    const gone = Promise.race([
      this.running,
      new Promise<void>((resolve) => {
        setTimeout(resolve, END_GRACE_MS);
      }),
    ]).then(() => {
      this.worker?.terminate();
      ending.delete(gone);
    });
    ending.add(gone);
  }

  private receive(data: FromCompiler): void {
    const { waiting } = this;
    this.heard();
    if (this.failed) return;
    if ("alive" in data) {
      // without locks, this is the only sign of life
      if (!this.life && !this.spoke) this.awaitPyodide();
      this.spoke = true;
      this.start.feed();
      return;
    }
    if ("life" in data) {
      if (!this.started) this.awaitPyodide();
      this.unwatch = watchLife(data.life, () =>
        this.end(
          new EngineError(
            "Python's worker ended unexpectedly",
            "",
            "The browser may have run out of memory: close other tabs and try again, or " +
              "compile the model ahead of time with `edgewise build`.",
          ),
        ),
      );
      return;
    }
    this.start.stop();
    if ("started" in data) {
      this.started = true;
      waiting?.onStage("compile", "compiling the model");
      return;
    }
    this.waiting = undefined;
    if ("compiled" in data) {
      const { ms } = data.compiled;
      waiting?.onStage(
        "done",
        `compiled in ${(ms.compile / 1000).toFixed(1)} s; Python started in ` +
          `${(ms.pyodide / 1000).toFixed(1)} s`,
      );
      waiting?.resolve(data.compiled);
    } else {
      const error = makeError(data.error);
      if (!this.started) this.end(error); // Python itself could not be started
      waiting?.reject(data.missing ? new MissingFile(data.missing, error) : error);
    }
  }

  private post(message: ToCompiler): void {
    if (this.worker) this.worker.postMessage(message);
    else this.unsent.push(message);
  }
}
