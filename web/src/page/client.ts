// The page's side of a worker: method calls matched to replies by id, events that belong to a call,
// cancellation, and rejection of all open calls when the worker dies.

import { makeError } from "../protocol/errors.ts";
import type { ProgressEvent } from "../protocol/loading.ts";
import type { FromWorker, ToWorker } from "../protocol/messages.ts";
import type { Methods } from "../protocol/methods.ts";
import type { StepEvent } from "../protocol/training.ts";
import { aborted, timerMs } from "../shared/abort.ts";
import {
  Aborted,
  type EdgewiseError,
  EngineError,
  InputError,
  TokenizerError,
} from "../shared/errors.ts";
import { Line } from "../shared/line.ts";
import { newLife, watchLife } from "../shared/lives.ts";
import { type DeviceInfo, platform } from "../shared/platform.ts";
import { type Level, levelOf, type Priority, USUAL } from "../shared/priority.ts";
import { workerRemedy, workerScript } from "../shared/script.ts";
import { ALL } from "../shared/share.ts";
import { seconds, setStallTimeout, stallTimeout, Watchdog } from "../shared/watchdog.ts";
import { Children } from "./children.ts";
import { env, full, partFiles } from "./env.ts";
import { type Claim, divided } from "./processors.ts";
import { createWorker } from "./realm.ts";

/** Options of {@link Client.call}: event listeners, and the buffers to transfer to the worker. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** Ends the call as `signal` does, but the worker answers with what there is. */
  interrupt?: AbortSignal | undefined;
  onProgress?: ((event: ProgressEvent) => void) | undefined;
  onStep?: ((event: StepEvent) => void) | undefined;
  onText?: ((text: string, end: boolean) => void) | undefined;
  onTokens?: ((ids: number[]) => void) | undefined;
  onEvent?: ((event: { name: string; value: unknown }) => void) | undefined;
  transfer?: Transferable[];
  /** Default: the worker's. */
  priority?: Priority | undefined;
  /** Whether it does not compute for now; asked whenever a call of the worker begins or ends. */
  rests?: (() => boolean) | undefined;
  /** Makes the request one that can be sent as a message; returns the buffers to transfer. */
  wrap?: (() => Transferable[]) | undefined;
  /**
   * Receives the result of a call that was abandoned after an abort, so that the caller can free
   * what the result holds in the worker.
   */
  onLate?: ((value: unknown) => void) | undefined;
}

interface Open extends CallOptions {
  /** Undefined: it does not compute, or hardly. */
  level: Level | undefined;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * How long an aborted call may still take to return its partial result. A worker in the middle of a
 * long step answers later; the call is rejected without waiting for that answer.
 */
const ABORT_GRACE_MS = 300;

/**
 * How long the worker may take to end its threads. Terminating a worker while its threads start
 * would leak them.
 */
const END_GRACE_MS = 1000;
/** Loading the worker's script reports no progress, so it may take this many stall timeouts. */
const START_PATIENCE = 4;

const running = new Set<Client>();

/** Calls that have no part in the division: they load, store, or hardly compute. */
const UNDIVIDED: ReadonlySet<keyof Methods> = new Set([
  "load",
  "find",
  "load_prefix",
  "task_open",
  "graphs_open",
  "draw_open",
  "inference_open",
  "artifacts_open",
  "vectors_open",
  "train_pause",
  "storage",
]);

/** How long a worker keeps its processors after a call: often another call follows. */
const REST_MS = 4;

/** Divides the processors anew. Those that do not compute, or load, may take what they need. */
function divide(): void {
  const busy: { client: Client; claim: Claim }[] = [];
  for (const client of running) {
    const { claim } = client;
    if (claim) busy.push({ client, claim });
    else client.give(ALL);
  }
  const shares = divided(
    busy.map(({ claim }) => claim),
    platform().cores,
  );
  const alone = running.size === 1;
  busy.forEach(({ client, claim }, i) => {
    client.give(alone && shares[i] === claim.threads ? ALL : shares[i]!);
  });
}

/** A connection from the page to its worker. */
export class Client {
  private readonly worker: Worker;
  /** Their messages arrive also while the worker ends, which waits for threads that start. */
  private readonly children = new Children((message, transfer) => this.post(message, transfer));
  private line: Line | undefined;
  private readonly lives = new Map<string, () => void>();
  private readonly start: Watchdog;
  /** Of work in the worker that may never end. */
  private work: Watchdog | undefined;
  private readonly open = new Map<number, Open>();
  /** `onLate` callbacks of abandoned calls, which the worker has not answered yet. */
  private readonly late = new Map<number, (value: unknown) => void>();
  private next = 1;
  private dead: EdgewiseError | undefined;
  private readonly level: Level;
  /** Threads of its largest engine; 0: it has none, or computes on a GPU. */
  private threads = 0;
  /** Where it reads how many of them may run, in isolated pages. */
  private readonly share = platform().isolated
    ? new Int32Array(new SharedArrayBuffer(4)).fill(ALL)
    : undefined;
  /** The level with which it claims processors, until some moments after its last call. */
  private claimed: Level | undefined;
  private resting: ReturnType<typeof setTimeout> | undefined;
  /** When that is over: the timers of a page in the background come a second late. */
  private restsUntil = 0;
  /** Of a worker whose engines share no memory: whether it was told to wait. */
  private waits = false;
  /** What the worker has loaded; its device changes where a GPU was lost. */
  info: { device: DeviceInfo } | undefined;

  /** @throws InputError if there is no such priority */
  constructor(url: string, priority?: Priority) {
    this.level = levelOf(priority, USUAL);
    try {
      this.worker = createWorker(url, "edgewise");
    } catch (e) {
      throw new EngineError(
        `the worker could not be started (${e instanceof Error ? e.message : String(e)})`,
        url,
        workerRemedy(url),
      );
    }
    this.worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.receive(data);
    this.worker.onerror = (e) => {
      e.preventDefault?.();
      this.end(
        new EngineError(
          `the worker failed (${e.message || "it could not be loaded"})`,
          url,
          workerRemedy(url),
        ),
      );
    };
    this.worker.onmessageerror = () =>
      this.end(
        new EngineError("a message of the worker could not be read", url, "Make a new pipeline."),
      );
    running.add(this);
    setStallTimeout(env.stallTimeout);
    const patience = START_PATIENCE * stallTimeout();
    this.start = new Watchdog(
      () =>
        this.end(
          new EngineError(
            `the worker did not start within ${seconds(patience)}`,
            url,
            "Check the network, and that worker.js is served beside edgewise.js (or set " +
              "env.workerUrl); then try again.",
          ),
        ),
      patience,
    );
    this.start.wake();
    divide(); // one that was alone
    const share = this.share?.buffer;
    this.send({
      start: { life: newLife(), stallTimeout: stallTimeout(), parts: partFiles(), share },
    });
  }

  /**
   * Starts or stops watching the lock that a worker or one of its threads holds while it lives.
   * When a watched lock is released, that worker or thread has died.
   */
  private watch(name: string, held: boolean): void {
    this.lives.get(name)?.();
    this.lives.delete(name);
    if (held && !this.dead)
      this.lives.set(
        name,
        watchLife(name, () =>
          this.end(
            new EngineError(
              "the worker, or one of its threads, ended unexpectedly",
              "",
              "The browser may have run out of memory: close other tabs and make a new " +
                "pipeline, with fewer threads or a smaller model.",
            ),
          ),
        ),
      );
  }

  /** The worker does what may never end, or (null) has ended it. */
  private watchWork(where: string | null): void {
    this.work?.stop();
    this.work = undefined;
    if (where === null || this.dead) return;
    const patience = stallTimeout();
    this.work = new Watchdog(
      () =>
        this.end(
          new TokenizerError(
            `its regular expressions did not finish with a text within ${seconds(patience)}`,
            where,
            "Take the tokenizer.json of the model's author, or set env.stallTimeout to wait " +
              "longer; then make a new pipeline.",
          ),
        ),
      patience,
    );
    this.work.wake();
  }

  /**
   * Calls a method of the worker.
   * @param method name of the method
   * @param request its argument; must be cloneable
   * @param options event listeners, abort signal and buffers to transfer
   * @returns the method's result
   * @throws the error that the method threw in the worker; {@link Aborted} when `options.signal`
   *   fires; {@link EngineError} when the worker dies
   */
  call<M extends keyof Methods>(
    method: M,
    request: Parameters<Methods[M]>[0],
    options: CallOptions = {},
  ): Promise<ReturnType<Methods[M]>> {
    const { signal, interrupt } = options;
    if (this.dead) return Promise.reject(this.dead);
    // of another realm, too, or of a library
    if (signal && typeof signal.addEventListener !== "function")
      return Promise.reject(
        new InputError("it is no signal", "options.signal", "Give an AbortController's."),
      );
    if (signal?.aborted) return Promise.reject(aborted(signal));
    let level: Level;
    try {
      level = levelOf(options.priority, this.level);
    } catch (e) {
      return Promise.reject(e);
    }
    const id = this.next++;
    return new Promise<unknown>((resolve, reject) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const end = (error: Aborted, grace: number) => {
        this.hurry(id);
        this.send({ id, abort: true, reason: error.what });
        clearTimeout(timer);
        timer = setTimeout(() => this.abandon(id, error), timerMs(grace));
      };
      const stop = () => end(aborted(signal), ABORT_GRACE_MS);
      // waits for the end of a long step, whose result is wanted
      const finish = () => !signal?.aborted && end(aborted(interrupt), stallTimeout());
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
        interrupt?.removeEventListener("abort", finish);
      };
      this.open.set(id, {
        ...options,
        level: UNDIVIDED.has(method) ? undefined : level,
        resolve: (value) => {
          done();
          resolve(value);
        },
        reject: (e) => {
          done();
          reject(e);
        },
      });
      signal?.addEventListener("abort", stop, { once: true });
      interrupt?.addEventListener("abort", finish, { once: true });
      this.claims();
      try {
        const answer = options.wrap && this.line?.call(id, request);
        if (answer) void answer.then((found) => found && this.receive({ id, value: found }));
        else {
          const transfer = options.wrap?.() ?? options.transfer;
          const order = level - this.level;
          const message = { id, method, request, ...(order && { order }) };
          this.post(message as ToWorker, transfer);
        }
      } catch (e) {
        const what = e instanceof Error ? e.message : String(e);
        this.settle(id)?.reject(
          makeError({
            name: "InputError",
            what: `an option cannot be sent to the worker (${what})`,
            where: method,
            remedy:
              "Functions (logits_processor, stopping_criteria, ...) do not work from a page; " +
              "use the fields of GenerationConfig.",
            stack: "",
            fields: {},
          }),
        );
      }
    }) as Promise<ReturnType<Methods[M]>>;
  }

  /** Ends the worker and rejects every open call with `error`. */
  end(
    error: EdgewiseError = new Aborted("the pipeline was disposed of", "", "Make a new one."),
  ): void {
    if (this.dead) return;
    this.give(ALL);
    clearTimeout(this.resting);
    this.dead = error;
    running.delete(this);
    this.start.stop();
    this.work?.stop();
    for (const stop of this.lives.values()) stop();
    this.lives.clear();
    this.late.clear();
    // The worker ends its own threads first. A busy or dead worker does not answer: hence the
    // timer.
    const terminate = (): void => {
      this.worker.terminate();
      this.children.end();
    };
    const timer = setTimeout(terminate, END_GRACE_MS);
    this.worker.onerror = (e) => e.preventDefault?.();
    this.worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if ("child" in data) this.children.receive(data);
      if (!("ended" in data)) return;
      clearTimeout(timer);
      terminate();
    };
    this.post({ end: true });
    this.line?.end();
    for (const id of [...this.open.keys()]) this.settle(id)?.reject(error);
    divide();
  }

  /** What the worker claims of the processors; undefined: it does not compute. */
  get claim(): Claim | undefined {
    const { claimed: level } = this;
    return level === undefined ? undefined : { level, threads: this.threads || 1 };
  }

  /** The level of its most urgent call; undefined: none computes. */
  private wanted(): Level | undefined {
    if (this.late.size) return 0; // an abandoned call should end soon
    let found: Level | undefined;
    for (const { level, rests } of this.open.values())
      if (level !== undefined && !rests?.() && (found === undefined || level < found))
        found = level;
    return found;
  }

  /** Claims processors for the open calls: more at once, less a moment later. */
  private claims(): void {
    const level = this.wanted();
    const { claimed } = this;
    if (level === claimed || this.dead) return;
    if (claimed === undefined || (level !== undefined && level < claimed)) {
      this.claimed = level;
      divide();
    } else if (globalThis.document?.hidden) this.rested();
    else if (this.resting === undefined) {
      this.restsUntil = performance.now() + REST_MS;
      this.resting = setTimeout(() => this.rested(), REST_MS);
    }
  }

  /** Ends the time for which it kept a claim. */
  private rested(): void {
    clearTimeout(this.resting);
    this.resting = undefined;
    const level = this.wanted();
    if (level === this.claimed) return;
    this.claimed = level;
    divide();
  }

  /** Lets so many of the worker's threads run. */
  give(count: number): void {
    const { share } = this;
    if (share) {
      if (Atomics.exchange(share, 0, count) < count) Atomics.notify(share, 0);
      return;
    }
    const waits = !count;
    if (waits === this.waits) return;
    this.waits = waits;
    this.send({ waits });
  }

  /** A call that was aborted should end soon. */
  private hurry(id: number): void {
    const open = this.open.get(id);
    if (open?.level !== undefined) {
      open.level = 0;
      open.rests = undefined;
    }
    this.claims();
  }

  /** Whether the worker can be called. */
  get alive(): boolean {
    return !this.dead;
  }

  /** Whether a call would be answered at once. */
  get idle(): boolean {
    return !this.dead && !this.open.size && !this.late.size;
  }

  private send(message: ToWorker): void {
    if (!this.dead) this.post(message);
  }

  private post(message: ToWorker, transfer: Transferable[] = []): void {
    this.line?.sending();
    this.worker.postMessage(message, transfer);
  }

  /** Makes a line, on which calls with `wrap` go while the worker waits for them. */
  openLine(): void {
    const line = new Line();
    this.send({ line: line.memory });
    this.line = line;
  }

  private settle(id: number): Open | undefined {
    const open = this.open.get(id);
    this.open.delete(id);
    if (open) this.claims();
    return open;
  }

  /** Rejects an aborted call that the worker has not answered. */
  private abandon(id: number, error: Aborted): void {
    const open = this.settle(id);
    if (!open) return;
    this.late.set(id, open.onLate ?? (() => undefined));
    open.reject(error);
  }

  private receive(data: FromWorker): void {
    for (const client of running)
      if (client.resting !== undefined && performance.now() > client.restsUntil) client.rested();
    if ("started" in data) {
      this.start.stop();
      return;
    }
    if ("child" in data) {
      this.children.receive(data);
      return;
    }
    if ("life" in data) {
      this.watch(data.life, data.held);
      return;
    }
    if ("working" in data) {
      this.watchWork(data.working);
      return;
    }
    if ("device" in data) {
      if (this.info) this.info.device = data.device;
      return;
    }
    if ("ended" in data) return;
    if ("threads" in data) {
      this.threads = data.threads;
      if (this.claim) divide();
      return;
    }
    if ("value" in data || "error" in data) {
      const late = this.late.get(data.id);
      if (this.late.delete(data.id)) this.claims();
      if ("error" in data) this.settle(data.id)?.reject(makeError(data.error));
      else if (late) late(data.value);
      else this.settle(data.id)?.resolve(data.value);
      return;
    }
    const open = this.open.get(data.id);
    if (!open || open.signal?.aborted) return;
    // An exception in one of the page's callbacks ends the call that the callback belongs to.
    try {
      if ("progress" in data) open.onProgress?.(data.progress as ProgressEvent);
      else if ("step" in data) open.onStep?.(data.step);
      else if ("tokens" in data) open.onTokens?.(data.tokens);
      else if ("event" in data) open.onEvent?.(data.event);
      else open.onText?.(data.text, data.end);
    } catch (e) {
      this.send({ id: data.id, abort: true, reason: "a callback of the page failed" });
      this.late.set(data.id, () => undefined);
      this.settle(data.id)?.reject(e);
    }
  }
}

/**
 * Starts a worker.
 * @param priority of its calls that have none
 * @throws EngineError if its script cannot be loaded
 * @throws InputError if there is no such priority
 */
export async function startClient(priority?: Priority): Promise<Client> {
  levelOf(priority, USUAL);
  return new Client(await workerScript(full(env.workerUrl), "worker.js"), priority);
}

/** A worker of another object that has nothing to do; its owner may end it. */
export function idleClient(): Client | undefined {
  return [...running].find((client) => client.idle);
}
