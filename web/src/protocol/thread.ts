// Messages between a worker and the threads of its engine.

/** What a thread is started with. */
export interface ThreadStart {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  engine: number;
  index: number;
  stackTop: number;
  tls: number;
  life: string;
}

/** What a thread says: it is ready to work, or why it cannot. `held`: it holds its lock. */
export type FromThread = { ready: true; held: boolean } | { error: string };
