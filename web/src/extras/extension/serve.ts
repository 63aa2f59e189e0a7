// The end of a port that runs the model.

import { api, type Port, type Sender } from "./api.ts";
import type { Answer, ErrorFields } from "./messages.ts";

/** What a handler knows of its call besides the argument. */
export interface CallContext {
  /** Fires when the caller aborts, or is gone. */
  signal: AbortSignal;
  /** Sends an event to the caller, such as a piece of text; any value that JSON can express. */
  emit(event: unknown): void;
  /** Who calls. A content script has the tab of a web page, which should not get every method. */
  sender: Sender;
}

/**
 * The methods that can be called, by name. A handler gets the caller's argument, which is not
 * checked, and returns the result. Both are values that JSON can express.
 */
export type Handlers = Record<string, (argument: never, context: CallContext) => unknown>;

/**
 * Answers calls of {@link client} in this page. Call it before the first `await` of the page's
 * script, so that no call arrives too early.
 * @param handlers the methods
 * @param name name of the ports, if an extension has several services. Default: `edgewise`
 */
export function serve(handlers: Handlers, name = "edgewise"): void {
  const { runtime } = api();
  const table = new Map(Object.entries(handlers));
  runtime.onConnect.addListener((port) => {
    // other extensions arrive at onConnectExternal; the id is compared all the same
    if (port.name === name && port.sender?.id === runtime.id) answer(port, table);
  });
}

/** Calls of a port at a time. */
const MAX_CALLS = 100;
const TOO_MANY = `a port has at most ${MAX_CALLS} calls at a time, each with a number of its own`;

function answer(port: Port, table: Map<string, Handlers[string]>): void {
  const running = new Map<number, AbortController>();
  let open = true;
  port.onDisconnect.addListener(() => {
    open = false;
    for (const controller of running.values()) controller.abort("the caller is gone");
  });
  const post = (message: Answer): void => {
    if (open) port.postMessage(message);
  };
  post({ ready: true });
  const run = async (id: number, method: string, argument: unknown): Promise<void> => {
    const controller = new AbortController();
    running.set(id, controller);
    try {
      const handler = table.get(method);
      if (!handler) throw new Error(`there is no method '${method}'`);
      const { signal } = controller;
      const emit = (event: unknown): void => post({ id, event });
      const sender = port.sender ?? {};
      const result = await handler(argument as never, { signal, emit, sender });
      post({ id, result });
    } catch (e) {
      post({ id, error: fieldsOf(e) });
    } finally {
      running.delete(id);
    }
  };
  port.onMessage.addListener((message) => {
    const call = callOf(message);
    if (!call) return;
    if (call.method === undefined) running.get(call.id)?.abort();
    else if (running.has(call.id) || running.size >= MAX_CALLS)
      post({ id: call.id, error: fieldsOf(new Error(TOO_MANY)) });
    else void run(call.id, call.method, call.argument);
  });
}

/** A call, or the end of one; undefined for what is none: messages of a web page's tab are data. */
function callOf(message: unknown): { id: number; method?: string; argument?: unknown } | undefined {
  if (typeof message !== "object" || message === null) return undefined;
  const { id, method, argument, abort } = message as Record<string, unknown>;
  if (typeof id !== "number") return undefined;
  if (typeof method === "string") return { id, method, argument };
  return abort === true ? { id } : undefined;
}

function fieldsOf(e: unknown): ErrorFields {
  if (!(e instanceof Error)) return { name: "Error", message: String(e) };
  const { name, message, what, where, remedy } = e as Error & Partial<ErrorFields>;
  return { name, message, what, where, remedy };
}
