// The rule of `auto`: which of two devices runs a model's plans faster, here and now. The plans
// themselves run on both, with zeros, before weights are loaded; so steps without a shader, copies
// and waits count. The result is kept for the adapter, the browser and the model.

import { LOOP } from "../../gen/kernels.ts";
import { SLOT_GROWS } from "../../gen/plan_format.ts";
import { EdgewiseError } from "../../shared/errors.ts";
import { folder } from "../../shared/files/folders.ts";
import { sha256 } from "../../shared/sha256.ts";
import { VERSION } from "../../shared/version.ts";
import { megabytes, message } from "../../shared/words.ts";
import type { Buffer, Device, PlanHandle } from "../device.ts";
import { slotsOfPlan, slotsOfSteps } from "../plan-header.ts";

/** A GPU must take this part of WebAssembly's time; so neither choice loses more than that. */
const WORTH = 0.9;
/** Milliseconds of a run in WebAssembly for which no GPU is opened: its read takes as long. */
const MIN_MS = 1;
/** Milliseconds of the steps that are measured, of all plans together. */
const MAX_MS = 300;
/** Milliseconds of runs on a device: browsers compile WebAssembly a second time meanwhile. */
const RUNS_MS = 60;
/** What `auto` waits for both measurements, and for that of the GPU at least. */
const PATIENCE_MS = 2000;
const MIN_PATIENCE_MS = 500;
/**
 * Bytes of weights, beyond which slots share memory: more than caches of processors hold. A weight
 * that is larger is not measured: WebAssembly's memory never shrinks.
 */
const WEIGHTS = 1 << 26;
/** Bytes of a slot that grows with the text. */
const GROWN = 1 << 22;
/** What a first register counts, such as tokens, where the plan takes as many. */
const USUAL = 128;
const DAY_MS = 86_400_000;
/** Days for which a result is kept; a GPU that was late or failed may do better on another day. */
const DAYS = 30;
const DAYS_LATE = 1;
/** Models whose results are kept. */
const MODELS = 200;

/** A plan for a GPU that a model will run. */
export interface Work {
  plan: Uint8Array;
  /** Kinds of its slots. */
  kinds: readonly string[];
  /** Runs of it for one of the others. */
  times: number;
}

/** A device whose time is measured. */
interface Timed extends Device {
  /** Runs steps; `first` does not count init steps. */
  runSteps(plan: PlanHandle, first: number, count: number, where: string): void;
}

/** A GPU that was opened to be measured. */
interface Probed extends Timed {
  /** Tests it. Throws EngineError if it computes wrongly. */
  checked(): Promise<unknown>;
  guest: boolean;
  why: string;
}

/** Milliseconds of the works on both devices. `gpu`: null if there is no measurement. */
interface Times {
  gpu: number | null;
  wasm: number;
  /** Why there is none; undefined: it took too long to wait for. */
  why?: string;
  /** When it is measured again, as of Date.now(). */
  until: number;
}

/** Whether a GPU is worth it, and what is said about it. */
export function verdict({ gpu, wasm, why: none }: Omit<Times, "until">): [boolean, string] {
  if (gpu === null) return [false, none ?? `the GPU gave no measurement within ${PATIENCE_MS} ms`];
  const ms = (x: number): string => `${Number(x.toPrecision(2))} ms`;
  const why = `runs of its plans take ${ms(gpu)} on the GPU, ${ms(wasm)} in WebAssembly`;
  return [gpu < WORTH * wasm, why];
}

/**
 * Opens a GPU if it runs a model's plans faster than the engine.
 * @param wasm the engine
 * @param adapter name of the GPU
 * @param works the plans that decide
 * @param open opens the GPU beside the engine, with the same handles of plans
 * @returns the GPU, or why the engine is taken
 */
export async function faster<T extends Probed>(
  wasm: Timed,
  adapter: string,
  works: readonly Work[],
  open: () => Promise<T>,
): Promise<T | string> {
  const kept = await Kept.of(adapter);
  const key = keyOf(wasm, works);
  const keep = (times: Omit<Times, "until">, days: number): Promise<void> =>
    kept.set(key, { ...times, until: Date.now() + days * DAY_MS });
  const known = kept.get(key);
  if (known && !verdict(known)[0]) return verdict(known)[1];
  const parts: Part[] = [];
  const begin = performance.now();
  if (!known) {
    const why = await measured(wasm, works, parts);
    if (why !== undefined) {
      await keep({ gpu: null, wasm: 0, why }, DAYS);
      return why;
    }
  }
  let found: { gpu: T; ms: number } | undefined;
  let failure: string | undefined;
  try {
    const left = PATIENCE_MS - (performance.now() - begin);
    found = await within(open, parts, Math.max(MIN_PATIENCE_MS, left));
    const times = found && (known ?? { gpu: found.ms, wasm: sumOf(parts) });
    if (times && verdict(times)[0]) await found!.gpu.checked(); // however long that takes
  } catch (e) {
    if (found) leave(found.gpu);
    found = undefined;
    // not what has another cause: a file that could not be loaded, an engine that was closed
    if (!(e instanceof EdgewiseError) || wasm.memoryBytes === 0) throw e;
    failure = message(e);
  }
  const times = (found && known) || {
    gpu: found ? found.ms : null,
    wasm: known ? known.wasm : sumOf(parts),
    ...(failure === undefined ? {} : { why: failure }),
  };
  if (times !== known) await keep(times, found ? DAYS : DAYS_LATE);
  const [worth, why] = verdict(times);
  if (worth) return Object.assign(found!.gpu, { why });
  if (found) leave(found.gpu);
  return why;
}

/** Closes a GPU; the engine beside it goes on, without what it held for the GPU. */
function leave(gpu: Probed): void {
  gpu.guest = true;
  gpu.close();
}

/**
 * Measures works in WebAssembly.
 * @param parts receives what was measured
 * @returns why no GPU is opened; undefined: one is measured, too
 */
async function measured(
  wasm: Timed,
  works: readonly Work[],
  parts: Part[],
): Promise<string | undefined> {
  if (works.some((work) => hasLoops(wasm, work))) return "plans with loops run in WebAssembly";
  for (const work of works) parts.push(await inWasm(wasm, work, MAX_MS / works.length));
  if (!parts.some(({ spans }) => spans.length))
    return `its weights are too large to measure (${megabytes(WEIGHTS)} and more)`;
  const runs = works.reduce((sum, { times }) => sum + times, 0);
  if (sumOf(parts) < MIN_MS * runs && works.every((work) => !tooLarge(work).size))
    return `a run takes less than ${MIN_MS} ms in WebAssembly`;
  return undefined;
}

function hasLoops(wasm: Timed, { plan, kinds }: Work): boolean {
  const handle = wasm.loadPlan(plan, "probe", "probe", undefined, kinds);
  try {
    return wasm.describe(handle).kernels.includes(LOOP);
  } finally {
    wasm.freePlan(handle);
  }
}

/** Slots of weights that are not measured. */
function tooLarge({ plan, kinds }: Work): Set<number> {
  const isLarge = (slot: number, bytes: number): boolean =>
    bytes > WEIGHTS && (kinds[slot] === "weight" || kinds[slot] === "computed");
  return new Set(slotsOfPlan(plan)!.flatMap(({ bytes }, i) => (isLarge(i, bytes) ? [i] : [])));
}

/** What of a work was run, and how long it took. */
interface Part {
  work: Work;
  /** Ranges of steps: the first one, and how many. */
  spans: [first: number, count: number][];
  ms: number;
}

const sumOf = (parts: readonly Part[]): number =>
  parts.reduce((sum, { work, ms }) => sum + work.times * ms, 0);

/**
 * Opens a GPU and measures it; undefined if that takes too long, and it is closed when its answer
 * comes.
 * @throws what `open` throws, and the error of a GPU that is lost
 */
async function within<T extends Probed>(
  open: () => Promise<T>,
  parts: readonly Part[],
  patience: number,
): Promise<{ gpu: T; ms: number } | undefined> {
  let late = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const measure = async (): Promise<{ gpu: T; ms: number } | undefined> => {
    const gpu = await open();
    let ms: number | undefined;
    try {
      const found: Part[] = [];
      for (const part of parts) {
        if (late) return undefined;
        found.push({ ...part, ms: await onGpu(gpu, part) });
      }
      ms = sumOf(found);
    } finally {
      if (late || ms === undefined) leave(gpu);
    }
    return { gpu, ms };
  };
  const deadline = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => {
      late = true;
      resolve(undefined);
    }, patience);
  });
  const measuring = measure();
  measuring.catch(() => undefined); // of a GPU that nobody waits for
  return Promise.race([measuring, deadline]).finally(() => clearTimeout(timer));
}

/**
 * Measures a plan in WebAssembly: of one that takes long, the first steps; none that read a weight
 * that is too large.
 */
function inWasm(wasm: Timed, work: Work, most: number): Promise<Part> {
  return bound(wasm, work, async (handle) => {
    const { length } = wasm.describe(handle).kernels;
    const large = tooLarge(work);
    const used = large.size ? slotsOfSteps(work.plan) : [];
    const spans: Part["spans"] = [];
    const begin = performance.now();
    for (let step = 0; step < length && performance.now() - begin < most; step++) {
      if (used[step]?.some((slot) => large.has(slot))) continue;
      wasm.runSteps(handle, step, 1, "probe");
      const last = spans.at(-1);
      if (last && last[0] + last[1] === step) last[1]++;
      else spans.push([step, 1]);
    }
    const run = async () => runSpans(wasm, handle, spans);
    return { work, spans, ms: spans.length ? await least(run, MIN_MS) : 0 };
  });
}

function runSpans(device: Timed, handle: PlanHandle, spans: Part["spans"]): void {
  for (const [first, count] of spans) device.runSteps(handle, first, count, "probe");
}

/** Milliseconds of as many steps on a GPU, with the wait for the outputs. */
async function onGpu(gpu: Timed, { work, spans }: Part): Promise<number> {
  if (!spans.length) return 0;
  return bound(gpu, work, async (handle, outputs) => {
    const run = async () => {
      runSpans(gpu, handle, spans);
      await gpu.readAll!(outputs.map((buffer) => [buffer, buffer.bytes]));
    };
    await gpu.ready();
    await run(); // which writes records, and has drivers place memory
    return least(run);
  });
}

/** The least milliseconds of two runs or more; of one, if it takes less than `enough`. */
async function least(run: () => Promise<void>, enough = 0): Promise<number> {
  let least = Infinity;
  const begin = performance.now();
  for (let runs = 0, now = begin; runs < 2 || now - begin < RUNS_MS; runs++) {
    await run();
    const done = performance.now();
    least = Math.min(least, done - now);
    now = done;
    if (least < enough) break;
  }
  return Math.max(least, 0.005); // clocks of pages are coarse
}

/**
 * Loads a plan with zeros.
 * @param use is given its handle and its outputs; both are freed afterwards
 */
async function bound<T>(
  device: Timed,
  { plan, kinds }: Work,
  use: (handle: PlanHandle, outputs: Buffer[]) => Promise<T>,
): Promise<T> {
  const slots = slotsOfPlan(plan)!;
  const handle = device.loadPlan(plan, "probe", "probe", undefined, kinds);
  const held: Buffer[] = [];
  const outputs: Buffer[] = [];
  const large = tooLarge({ plan, kinds, times: 1 });
  const weights = new Shared((bytes) => {
    const buffer = device.allocate(bytes, "a measurement", device.processor ? "weight" : false);
    held.push(buffer);
    return buffer;
  });
  try {
    const grows = slots.some(({ flags }) => flags & SLOT_GROWS);
    slots.forEach(({ bytes, flags }, slot) => {
      const kind = kinds[slot]!;
      if (kind === "temp" || large.has(slot)) return; // the device's own; not run
      if (kind === "weight" || kind === "computed")
        return device.bind(handle, slot, weights.of(bytes));
      const size = flags & SLOT_GROWS ? Math.min(bytes, GROWN) : bytes;
      const buffer = device.allocate(size, "a measurement");
      held.push(buffer);
      device.bind(handle, slot, buffer);
      if (kind === "output") outputs.push(buffer);
    });
    const [low, high] = device.describe(handle).range;
    if (!grows && high > low) device.register(handle, 0, Math.max(low, Math.min(high, USUAL)));
    return await use(handle, outputs);
  } finally {
    device.freePlan(handle);
    for (const buffer of held) device.release(buffer);
  }
}

/** Memory of weights: so much that caches do not hold it, and no more. */
class Shared {
  private readonly all: Buffer[] = [];
  private bytes = 0;
  private next = 0;

  constructor(private readonly allocate: (bytes: number) => Buffer) {}

  /** Memory of a size, which others may have, too. */
  of(bytes: number): Buffer {
    const { all } = this;
    if (this.bytes + bytes > WEIGHTS)
      for (let i = 0; i < all.length; i++) {
        const found = all[this.next++ % all.length]!;
        if (found.bytes >= bytes) return found;
      }
    const made = this.allocate(bytes);
    all.push(made);
    this.bytes += bytes;
    return made;
  }
}

/** A model, and the engine that runs it. */
function keyOf({ choice: { flavour, threads } }: Timed, works: readonly Work[]): string {
  const plans = works.map(({ plan, times }) => `${sha256(plan)} ${times}`);
  return sha256([flavour, threads, ...plans].join(" "));
}

/** Results, in the browser's storage: a file with those of one adapter, and of one browser. */
class Kept {
  private constructor(
    private readonly of: string,
    private readonly found: Record<string, Times>,
  ) {}

  /** Those of an adapter; what was kept for another one is forgotten. */
  static async of(adapter: string): Promise<Kept> {
    const of = sha256(`${adapter} ${VERSION} ${navigator.userAgent}`);
    const text = await folder("gpu", false)
      .then((files) => files?.read(FILE))
      .then((file) => file?.text())
      .catch(() => undefined); // it is measured again
    let kept: { of?: string; found?: Record<string, Times> } | null = null;
    try {
      kept = JSON.parse(text ?? "null");
    } catch {} // damaged
    const same = kept?.of === of && typeof kept.found === "object";
    return new Kept(of, same ? { ...kept!.found } : {});
  }

  get(key: string): Times | undefined {
    const found = Object.hasOwn(this.found, key) ? this.found[key] : undefined;
    const { gpu, wasm, until, why = "" } = found ?? {};
    const numbers = [gpu ?? 0, wasm, until].every((x) => Number.isFinite(x));
    return numbers && typeof why === "string" && until! > Date.now() ? found : undefined;
  }

  async set(key: string, times: Times): Promise<void> {
    const others = Object.entries(this.found).filter(([name]) => name !== key);
    const found = Object.fromEntries([...others.slice(1 - MODELS), [key, times]]);
    const text = JSON.stringify({ of: this.of, found });
    await folder("gpu", true)
      .then((files) => files?.write(FILE, new Blob([text])))
      .catch(() => undefined); // it is measured again
  }
}

/** The file of results, in the folder "gpu". */
const FILE = "auto.json";
