// Exports of the engine's WebAssembly module. Addresses and sizes are numbers, also those of 64
// bits, up to 2^53; the calls alone have BigInt there.

/**
 * Functions of core/engine.h. Addresses and sizes are numbers (of 32 bits: signed when returned,
 * see `unsigned`), int64 is BigInt.
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
  /** Absent in engines of older packages. */
  ew_share?(engine: number, threads: number, steps: number): void;
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
  ew_plan_pages(plan: number, slot: number, pages: number, count: number): number;
  ew_plan_go_on(plan: number): number;
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

/** Section of a module with 64-bit addresses: its calls that have some (wasm/check.mjs). */
const WIDE = "edgewise.wide";
const GLOBALS = ["__stack_pointer", "__tls_size", "__tls_align"];

/** Whether a module has 64-bit addresses. */
export function isWide(module: WebAssembly.Module): boolean {
  return WebAssembly.Module.customSections(module, WIDE).length > 0;
}

/** The exports of an instance of a module. */
export function exportsOf(
  module: WebAssembly.Module,
  { exports }: WebAssembly.Instance,
): EngineExports {
  const [section] = WebAssembly.Module.customSections(module, WIDE);
  if (!section) return exports as unknown as EngineExports;
  const all: Record<string, unknown> = { ...exports };
  const calls: Record<string, number[]> = JSON.parse(new TextDecoder().decode(section));
  for (const [name, wide] of Object.entries(calls)) all[name] = narrowed(exports[name], wide);
  for (const name of GLOBALS) {
    const global = exports[name] as WebAssembly.Global;
    all[name] = {
      get value() {
        return Number(global.value);
      },
      set value(value) {
        global.value = BigInt(value);
      },
    };
  }
  return all as EngineExports;
}

type Numbers = (...args: (number | bigint)[]) => number | bigint | undefined;

/** A function that takes and returns numbers. wide: whether each of these is of 64 bits. */
function narrowed(f: unknown, wide: readonly number[]): Numbers {
  const takes = wide.slice(0, -1);
  return (...args) => {
    const value = (f as Numbers)(...takes.map((is, i) => (is ? BigInt(args[i]!) : args[i]!)));
    return typeof value === "bigint" ? Number(value) : value;
  };
}

/** An address that a call has returned. */
export function unsigned(address: number): number {
  return address < 0 ? address + 2 ** 32 : address;
}
