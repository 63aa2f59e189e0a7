// Messages between a worker and the threads of its engine.

/** Start message of a thread. */
export interface ThreadStart {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  engine: number;
  index: number;
  stackTop: number;
  tls: number;
  life: string;
}

/** Reply of a thread: it is ready, or the reason why not. `held`: whether it holds its lock. */
export type FromThread = { ready: true; held: boolean } | { error: string };
