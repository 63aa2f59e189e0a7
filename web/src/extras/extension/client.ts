// The end of a port that calls.

import { api, type Port } from "./api.ts";
import type { Answer, Call, ErrorFields } from "./messages.ts";
import { ensureOffscreen } from "./offscreen.ts";

const ALIVE_MS = 10_000; // background pages of Firefox are suspended after 30 s without a message
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2000;

/** An error of a handler. `name`, `what`, `where` and `remedy` are those of the original. */
export class RemoteError extends Error {
  /** What is wrong. */
  readonly what: string;
  /** Where it is wrong; may be empty. */
  readonly where: string;
  /** What to do about it; may be empty. */
  readonly remedy: string;

  constructor(fields: ErrorFields) {
    super(fields.message);
    this.name = fields.name;
    this.what = fields.what ?? fields.message;
    this.where = fields.where ?? "";
    this.remedy = fields.remedy ?? "";
  }
}

/** Options of one call. */
export interface CallOptions {
  /** Receives what the handler emits. */
  onEvent?: (event: unknown) => void;
  /** Aborts the call: the handler's signal fires, and the call rejects as the handler does. */
  signal?: AbortSignal;
}

/** Options of {@link client}. */
export interface ClientOptions {
  /** Name of the ports, as given to {@link serve}. Default: `edgewise`. */
  name?: string;
  /**
   * Starts the page that serves; awaited before each new connection. Default:
   * {@link ensureOffscreen}. For content scripts, which cannot start it, a function that does
   * nothing: the background starts it before it injects them.
   */
  start?: () => Promise<unknown> | undefined;
}

/** A connection to the page that runs the model. */
export interface Client {
  /**
   * Calls a method of the page that serves. If the connection is lost, open calls reject and the
   * next call connects again.
   * @param method name of the method
   * @param argument any value that JSON can express
   * @returns what the handler returns
   * @throws RemoteError what the handler throws, `Aborted` included; `ConnectionLost` if the page
   *   that serves is gone
   */
  call<T = unknown>(method: string, argument?: unknown, options?: CallOptions): Promise<T>;
  /** Closes the connection; open calls are aborted. */
  close(): void;
}

interface Pending {
  resolve(value: unknown): void;
  reject(reason: Error): void;
  onEvent: ((event: unknown) => void) | undefined;
}

/** An open port and its calls. */
interface Connection {
  port: Port;
  pending: Map<number, Pending>;
  /** Why it is not open any more. */
  lost?: RemoteError;
}

/** A connection to the page of this extension that calls {@link serve}. */
export function client({ name = "edgewise", start = ensureOffscreen }: ClientOptions = {}): Client {
  let connecting: Promise<Connection> | undefined;
  let last = 0;
  const connect = async (): Promise<Connection> => {
    await start();
    return connectPort(name, () => (connecting = undefined));
  };
  return {
    async call<T>(method: string, argument?: unknown, options: CallOptions = {}): Promise<T> {
      const { signal, onEvent } = options;
      connecting ??= connect();
      const attempt = connecting;
      const { port, pending, lost } = await attempt.catch((e: unknown) => {
        if (connecting === attempt) connecting = undefined;
        throw e;
      });
      if (lost) throw lost;
      const id = ++last;
      const post = (message: Call): void => port.postMessage(message);
      const alive = setInterval(() => post({ alive: true }), ALIVE_MS);
      const stop = (): void => post({ id, abort: true });
      try {
        return await new Promise<T>((resolve, reject) => {
          pending.set(id, { resolve: resolve as Pending["resolve"], reject, onEvent });
          post({ id, method, argument });
          if (signal?.aborted) stop();
          else signal?.addEventListener("abort", stop, { once: true });
        });
      } finally {
        clearInterval(alive);
        signal?.removeEventListener("abort", stop);
      }
    },
    close(): void {
      const closing = connecting;
      connecting = undefined;
      void closing?.then(
        (connection) => {
          connection.port.disconnect();
          lose(connection, lostError("it was closed"));
        },
        () => undefined,
      );
    },
  };
}

/** Connects; the page that serves may be loading its scripts. */
async function connectPort(name: string, onLost: () => void): Promise<Connection> {
  for (let pause = FIRST_PAUSE_MS; ; pause *= 2) {
    try {
      return await tryPort(name, onLost);
    } catch (e) {
      if (pause > LAST_PAUSE_MS) throw e;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

function tryPort(name: string, onLost: () => void): Promise<Connection> {
  const { runtime } = api();
  const port = runtime.connect({ name });
  const connection: Connection = { port, pending: new Map() };
  let ready = false;
  return new Promise((resolve, reject) => {
    port.onMessage.addListener((message) => {
      const answer = message as Answer;
      if ("ready" in answer) {
        ready = true;
        resolve(connection);
      } else settle(connection.pending, answer);
    });
    port.onDisconnect.addListener(() => {
      const lost = lostError(runtime.lastError?.message ?? "the page that runs the model is gone");
      reject(lost);
      if (ready) onLost();
      lose(connection, lost);
    });
  });
}

/** Passes an answer to its call. */
function settle(pending: Map<number, Pending>, answer: Exclude<Answer, { ready: true }>): void {
  const call = pending.get(answer.id);
  if (!call) return;
  if ("event" in answer) {
    call.onEvent?.(answer.event);
    return;
  }
  pending.delete(answer.id);
  if ("error" in answer) call.reject(new RemoteError(answer.error));
  else call.resolve(answer.result);
}

function lostError(why: string): RemoteError {
  return new RemoteError({
    name: "ConnectionLost",
    message: `the connection to the model was lost (${why})`,
    remedy: "Try again: the model will be loaded again.",
  });
}

/** Ends a connection: its open calls reject, and so do those that are about to use it. */
function lose(connection: Connection, why: RemoteError): void {
  connection.lost = why;
  for (const { reject } of connection.pending.values()) reject(why);
  connection.pending.clear();
}
