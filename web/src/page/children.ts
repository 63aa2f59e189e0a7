// The workers that the page starts for its worker: see shared/spawn.ts.

import type { FromParent, ToParent, WithBuffers } from "../shared/spawn.ts";
import { createWorker } from "./realm.ts";

/** The workers of one worker. */
export class Children {
  private readonly workers = new Map<number, Worker>();
  private ended = false;

  /** @param send sends a message to the worker that they belong to */
  constructor(private readonly send: (message: FromParent, transfer: Transferable[]) => void) {}

  /** Does what the worker asks for. */
  receive(data: ToParent): void {
    const { child } = data;
    if (this.ended) return;
    if ("url" in data) this.start(child, data.url, data.name);
    else if ("message" in data) this.workers.get(child)?.postMessage(data.message, data.transfer);
    else {
      this.workers.get(child)?.terminate();
      this.workers.delete(child);
    }
  }

  /** Terminates all; later requests of the worker start none. */
  end(): void {
    this.ended = true;
    for (const worker of this.workers.values()) worker.terminate();
    this.workers.clear();
  }

  private start(child: number, url: string, name: string): void {
    const failed = (message: string): void => this.send({ child, failed: message }, []);
    let worker: Worker;
    try {
      worker = createWorker(url, name);
    } catch (e) {
      failed(e instanceof Error ? e.message : String(e));
      return;
    }
    this.workers.set(child, worker);
    worker.onmessage = ({ data }: MessageEvent<WithBuffers>) =>
      this.send({ child, message: data }, data.buffers ?? []);
    worker.onerror = (e) => {
      e.preventDefault?.();
      failed(e.message || "");
    };
    worker.onmessageerror = () => failed("one of its messages could not be read");
  }
}
