// Tests a GPU before its first use: wrong numbers without a word are the commonest fault of GPUs.
// The rules are logic/gpu/self_test.py; the plans are python/edgewise/compiler/gpu/self_test.py.

import { KERNELS, PLAN, SLOTS } from "../../gen/self_test.ts";
import type { TestCase } from "../../gen/self_tests.ts";
import { SHADERS } from "../../gen/shaders.ts";
import {
  difference,
  integers,
  numbers,
  PERIOD,
  PERIOD_OF_INTEGERS,
  type TestSlot,
  wrong_of,
} from "../../logic/gpu/self_test.ts";
import { EngineError } from "../../shared/errors.ts";
import { folder } from "../../shared/files/folders.ts";
import { sha256 } from "../../shared/sha256.ts";
import { VERSION } from "../../shared/version.ts";
import type { Buffer, Device, PlanHandle } from "../device.ts";
import { kernelsOf, mode } from "./steps.ts";

/** A GPU, by the name of its adapter. */
interface Tested extends Device {
  readonly gpu: { readonly name: string; readonly subgroups: boolean };
}

/**
 * What is wrong with a kernel, by its name; null: nothing. Of all that are tested at the first use:
 * "". By adapter, as `digestOf`; also a file for each in the browser's storage.
 */
export const results = new Map<string, Map<string, string | null>>();

/** What results are kept for. */
export const digestOf = ({ name, subgroups }: Tested["gpu"]): string =>
  sha256(`${name} ${subgroups} ${VERSION} ${navigator.userAgent}`);

/** What is known of an adapter. */
async function known(gpu: Tested["gpu"]): Promise<Map<string, string | null>> {
  const digest = digestOf(gpu);
  let found = results.get(digest);
  if (found) return found;
  found = new Map();
  try {
    const kept = await (await folder("gpu", false))?.read(digest);
    const all = Object.entries(JSON.parse((await kept?.text()) ?? "{}"));
    for (const [kernel, wrong] of all) found.set(kernel, typeof wrong === "string" ? wrong : null);
  } catch {} // it is tested again
  results.set(digest, found);
  return found;
}

async function keep(gpu: Tested["gpu"], found: ReadonlyMap<string, string | null>): Promise<void> {
  const text = JSON.stringify(Object.fromEntries(found));
  await folder("gpu", true)
    .then((kept) => kept?.write(digestOf(gpu), new Blob([text])))
    .catch(() => undefined); // it is tested again
}

/**
 * Compares the results of a GPU with those of the engine, once for each adapter, browser and
 * version of Edgewise.
 * @param wasm the engine beside it, which has the same handles of plans
 * @throws EngineError they differ
 */
export async function checkGpu(device: Tested, wasm: Device): Promise<void> {
  if (wasm.lacks(KERNELS).length) return; // an engine of few kernels; its plans have few, too
  const { gpu } = device;
  const found = await known(gpu);
  if (found.has("")) return;
  const wrong = wrong_of(SLOTS, await differencesOf(device, wasm));
  if (wrong !== null)
    throw new EngineError(
      `the GPU ${gpu.name} computes wrongly: ${wrong}`,
      "webgpu",
      "Use the device 'wasm', or 'auto'; and report this to the maker of the driver.",
    );
  found.set("", null);
  await keep(gpu, found);
}

/** A GPU that runs plans between others that wait. */
interface AtOnce {
  readonly gpu: Tested["gpu"];
  readonly wasm: Device;
  /** Kernels and forms that it computes wrongly, and why. */
  readonly refused: Map<string, string>;
  /** Values of tunables that were chosen. */
  readonly tuned: Readonly<Record<string, number>>;
  /** The contents of slots after a run of a plan, on it and in the engine. */
  atOnce(
    plan: Uint8Array,
    given: readonly Uint8Array[],
    wanted: readonly number[],
  ): Promise<[here: Uint8Array<ArrayBuffer>[], there: Uint8Array<ArrayBuffer>[]]>;
}

/** What the result of a kernel or form is kept for: a form's holds for the tuned bodies in it. */
function keyOf(name: string, tuned: AtOnce["tuned"]): string {
  if (!name.includes(" ")) return name; // kernels are tested before they are tuned
  const tunables = name
    .split(/[ .]/)
    .flatMap((kernel) => Object.entries(SHADERS[kernel]?.tune ?? {}));
  const values = tunables.flatMap(([tunable, [usual]]) => {
    const value = tuned[tunable] ?? usual;
    return value === usual ? [] : ` ${tunable}=${value}`;
  });
  return name + values.join("");
}

/**
 * Tests kernels before the first plan that has them, and other forms of what a plan runs (forms_of
 * in logic/gpu/self_test.py). Of those that a GPU computes wrongly, steps run in WebAssembly, or
 * alone.
 * @param names of kernels, or of forms
 * @returns whether there are such
 */
export async function checkNames(device: AtOnce, names: readonly string[]): Promise<boolean> {
  const { gpu, refused } = device;
  const found = await known(gpu);
  const key = (name: string): string => keyOf(name, device.tuned);
  const fresh = names.filter((name) => !found.has(key(name)));
  if (fresh.length) {
    const { CASES } = await import("../../gen/self_tests.ts");
    const before = new Set(found.keys());
    const untested = new Set<string>(); // another engine may have what their tests take
    for (const one of CASES) {
      const its = [...one.kernels, ...one.forms[+mode.serial]!];
      if (!its.some((name) => fresh.includes(name))) continue;
      const wrong = await wrongIn(device, one);
      if (wrong === undefined) for (const name of its) untested.add(name);
      else
        for (const name of its.map(key))
          if (!before.has(name)) found.set(name, found.get(name) ?? wrong);
    }
    // without a test there is nothing to find out
    for (const name of fresh)
      if (!found.has(key(name)) && !untested.has(name)) found.set(key(name), null);
    await keep(gpu, found);
  }
  const wrong = names.filter((name) => found.get(key(name)));
  for (const name of wrong) {
    refused.set(name, `this GPU computes it wrongly (${found.get(key(name))!})`);
    console.warn(`edgewise: not run on the GPU: ${name}: ${refused.get(name)}`);
  }
  return wrong.length > 0;
}

/** What a GPU computes wrongly; null: nothing; undefined: the engine lacks what the test takes. */
async function wrongIn(
  device: AtOnce,
  { slots: rows, plan: base64 }: TestCase,
): Promise<string | null | undefined> {
  const plan = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  if (device.wasm.lacks([...kernelsOf(plan)]).length) return undefined;
  const slots = rows.map(([name, kind, count, limit]) => ({ name, kind, count, limit }));
  const wanted = slots.flatMap(({ kind }, i) => (kind === "result" ? [i] : []));
  const [here, there] = await device.atOnce(plan, slots.map(givenOf), wanted);
  const apart = slots.map(() => 0);
  wanted.forEach((slot, i) => {
    apart[slot] = difference(floats(here[i]!), floats(there[i]!));
  });
  return wrong_of(slots, apart);
}

const differencesOf = (device: Device, wasm: Device): Promise<number[]> =>
  onBoth(device, wasm, PLAN, SLOTS, async (_, compare) => compare());

/**
 * Runs a plan of tests on a GPU and in the engine, whose slots are filled by the formulas.
 * @param wasm the engine beside it, which has the same handles of plans
 * @param base64 the plan
 * @param work is given the plan's handle, which is freed afterwards, the buffers of both, and a
 *   function that returns the largest difference of each result, as a part of its largest number
 */
export async function onBoth<T>(
  device: Device,
  wasm: Device,
  base64: string,
  slots: readonly TestSlot[],
  work: (plan: PlanHandle, compare: () => Promise<number[]>, buffers: Buffer[]) => Promise<T>,
): Promise<T> {
  const plan = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const kinds = slots.map(() => "state");
  const handle = device.loadPlan(plan, "self-test", "self-test", undefined, kinds);
  const held: [Device, Buffer][] = [];
  try {
    const given = slots.map(givenOf);
    const bind = (to: Device): Buffer[] =>
      given.map((bytes, i) => {
        const buffer = to.allocate(bytes.length, "the test of a GPU");
        held.push([to, buffer]);
        to.bind(handle, i, buffer);
        to.write(buffer, bytes);
        return buffer;
      });
    const here = bind(wasm);
    const there = bind(device);
    const results = slots.flatMap(({ kind }, i) => (kind === "result" ? [i] : []));
    const run = async (on: Device, buffers: Buffer[]): Promise<Uint8Array<ArrayBuffer>[]> => {
      on.run(handle, "self-test");
      const wanted = results.map((i) => buffers[i]!);
      return (
        on.readAll?.(wanted.map((buffer) => [buffer, buffer.bytes])) ??
        Promise.all(wanted.map((buffer) => on.read(buffer)))
      );
    };
    const compare = async (): Promise<number[]> => {
      const expected = await run(wasm, here);
      const found = await run(device, there);
      const apart = slots.map(() => 0);
      results.forEach((slot, i) => {
        apart[slot] = difference(floats(expected[i]!), floats(found[i]!));
      });
      return apart;
    };
    return await work(handle, compare, there);
  } finally {
    device.freePlan(handle);
    for (const [of, buffer] of held) of.release(buffer);
  }
}

/** Bytes as float32. */
export const floats = (bytes: Uint8Array<ArrayBuffer>): Float32Array =>
  new Float32Array(bytes.slice().buffer);

/** What a slot is given. Numbers repeat after PERIOD, integers a little earlier. */
export function givenOf({ kind, count, limit }: TestSlot, i: number): Uint8Array<ArrayBuffer> {
  if (kind === "numbers") {
    const all = Float32Array.from(numbers(i, Math.min(count, PERIOD)));
    return repeated(new Uint8Array(all.buffer), 4 * count);
  }
  if (kind === "bytes")
    return repeated(Uint8Array.from(integers(i, Math.min(count, PERIOD_OF_INTEGERS), 256)), count);
  if (kind === "zeros") return new Uint8Array(count);
  if (kind === "ids")
    return new Uint8Array(BigInt64Array.from(integers(i, count, limit), BigInt).buffer);
  return new Uint8Array(4 * count);
}

function repeated(data: Uint8Array<ArrayBuffer>, count: number): Uint8Array<ArrayBuffer> {
  if (count <= data.length) return data;
  const out = new Uint8Array(count);
  for (let at = 0; at < count; at += data.length) out.set(data.subarray(0, count - at), at);
  return out;
}
