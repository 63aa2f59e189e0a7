// Exports of the engine's WebAssembly module.

/**
 * Functions of core/engine.h. Addresses and sizes are 32-bit (signed when returned), int64 is
 * BigInt.
 */
export interface EngineExports {
  malloc(bytes: number): number;
  free(address: number): void;
  __wasm_call_ctors(): void;
  __stack_pointer?: WebAssembly.Global;
  __tls_size?: WebAssembly.Global;
  __tls_align?: WebAssembly.Global;
  __wasm_init_tls?(address: number): void;
  ew_open(threads: number): number;
  ew_close(engine: number): void;
  ew_worker(engine: number, index: number): void;
  ew_stop(engine: number, stop: number): void;
  ew_threads(engine: number): number;
  ew_last_error(engine: number): number;
  ew_table_hash(): number;
  ew_has_kernel(kernel: number): number;
  ew_flavour(): number;
  ew_alloc(bytes: number): number;
  ew_alloc_unset(bytes: number): number;
  ew_free(address: number): void;
  ew_xxh64(data: number, bytes: number, out: number): void;
  ew_plan_load(engine: number, bytes: number, n: number, out: number): number;
  ew_plan_bind(plan: number, slot: number, data: number, bytes: number): number;
  ew_plan_slot_use(plan: number, slot: number): number;
  ew_plan_register(plan: number, register: number, value: bigint): number;
  ew_plan_slot_init(plan: number, slot: number, end: number): number;
  ew_plan_init(plan: number): number;
  ew_plan_init_steps(plan: number, first: number, count: number): number;
  ew_plan_run(plan: number): number;
  ew_plan_run_some(plan: number, trips: number): number;
  ew_plan_trips(plan: number, limit: number): number;
  ew_plan_run_steps(plan: number, first: number, count: number, seconds: number): number;
  ew_plan_resolve(plan: number, first: number, count: number, out: number, bytes: number): number;
  ew_plan_free(plan: number): void;
  [name: string]: unknown;
}
