// Workers whose answers a test gives.

/** What a page sends to a worker. */
export interface Sent {
  id?: number;
  method?: string;
  abort?: boolean;
  order?: number;
  start?: unknown;
}

/** A worker with answers given by the test. */
export class SilentWorker {
  static made: SilentWorker[] = [];
  readonly sent: Sent[] = [];
  onmessage: ((e: { data: unknown }) => void) | undefined;
  constructor() {
    SilentWorker.made.push(this);
  }
  postMessage(message: Sent): void {
    this.sent.push(message);
  }
  terminate(): void {}
  answer(data: unknown): void {
    this.onmessage!({ data });
  }
}

/** Runs a test whose workers are silent. */
export async function withSilentWorkers(work: () => Promise<void>): Promise<void> {
  const before = globalThis.Worker;
  globalThis.Worker = SilentWorker as unknown as typeof Worker;
  try {
    await work();
  } finally {
    globalThis.Worker = before;
  }
}
