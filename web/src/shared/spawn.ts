// Starts workers from wherever the library runs. In a worker the page starts them, and passes the
// messages on: Firefox (140) sometimes never returns from the constructor of a worker's worker,
// which blocks the worker with all that waits for it.

import { trusted } from "./trusted.ts";

/** From the worker to the page. `child`: the worker's number for it. */
export type ToParent = { child: number } & (
  | { url: string; name: string }
  | { message: unknown; transfer: Transferable[] }
  | { terminate: true }
);

/** From the page to the worker: a message of the child, or the reason why it failed. */
export type FromParent = { child: number } & ({ message: unknown } | { failed: string });

/**
 * A message of a child may list its buffers here. They are moved, not copied, whenever the message
 * is passed on.
 */
export interface WithBuffers {
  buffers?: ArrayBuffer[];
}

/** What the library uses of a Worker. */
export interface Child {
  onmessage: ((event: MessageEvent) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
  postMessage(message: unknown, transfer?: Transferable[]): void;
  terminate(): void;
}

let parent: ((message: ToParent, transfer?: Transferable[]) => void) | undefined;
const relayed = new Map<number, RelayedChild>();
let made = 0;

/** Starts a worker from a module script. */
export function spawn(url: string, name: string): Child {
  return parent ? new RelayedChild(url, name) : new Worker(trusted(url), { type: "module", name });
}

/** From now on, workers are started by this worker's page. `post` sends a message to the page. */
export function spawnByPage(post: NonNullable<typeof parent>): void {
  parent = post;
}

/** Receives a message of the page. */
export function receiveFromPage(data: FromParent): void {
  const child = relayed.get(data.child);
  if (!child) return;
  if ("failed" in data) {
    const { failed: message } = data;
    child.onerror?.({ message, preventDefault: () => undefined } as ErrorEvent);
  } else child.onmessage?.({ data: data.message } as MessageEvent);
}

/** A worker that the page started. */
class RelayedChild implements Child {
  onmessage: Child["onmessage"] = null;
  onerror: Child["onerror"] = null;
  private readonly child = ++made;

  constructor(url: string, name: string) {
    relayed.set(this.child, this);
    parent!({ child: this.child, url, name });
  }

  postMessage(message: unknown, transfer: Transferable[] = []): void {
    parent!({ child: this.child, message, transfer }, transfer);
  }

  terminate(): void {
    relayed.delete(this.child);
    parent!({ child: this.child, terminate: true });
  }
}
