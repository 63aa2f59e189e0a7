// Tests a GPU before its first use: wrong numbers without a word are the commonest fault of GPUs.
// The rules are logic/gpu/self_test.py; the plan is python/edgewise/compiler/gpu/self_test.py.

import { KERNELS, PLAN, SLOTS } from "../../gen/self_test.ts";
import {
  difference,
  integers,
  numbers,
  type TestSlot,
  wrong_of,
} from "../../logic/gpu/self_test.ts";
import { EngineError } from "../../shared/errors.ts";
import { folder } from "../../shared/files/folders.ts";
import { sha256 } from "../../shared/sha256.ts";
import { VERSION } from "../../shared/version.ts";
import type { Buffer, Device, PlanHandle } from "../device.ts";

/** A GPU, by the name of its adapter. */
interface Tested extends Device {
  readonly gpu: { readonly name: string; readonly subgroups: boolean };
}

/** Adapters that compute rightly, by digest; also a file for each in the browser's storage. */
export const passed = new Set<string>();

/** What the result is kept for. */
export const digestOf = ({ name, subgroups }: Tested["gpu"]): string =>
  sha256(`${name} ${subgroups} ${VERSION} ${navigator.userAgent}`);

/**
 * Compares the results of a GPU with those of the engine, once for each adapter, browser and
 * version of Edgewise.
 * @param wasm the engine beside it, which has the same handles of plans
 * @throws EngineError they differ
 */
export async function checkGpu(device: Tested, wasm: Device): Promise<void> {
  if (wasm.lacks(KERNELS).length) return; // an engine of few kernels; its plans have few, too
  const { name } = device.gpu;
  const digest = digestOf(device.gpu);
  if (passed.has(digest)) return;
  const kept = await folder("gpu", true);
  if (!(await kept?.read(digest).catch(() => undefined))) {
    const differences = await differencesOf(device, wasm);
    const wrong = wrong_of(SLOTS, differences);
    if (wrong !== null)
      throw new EngineError(
        `the GPU ${name} computes wrongly: ${wrong}`,
        "webgpu",
        "Use the device 'wasm', or 'auto'; and report this to the maker of the driver.",
      );
    await kept?.write(digest, new Blob(["passed"])).catch(() => undefined); // it is tested again
  }
  passed.add(digest);
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

const floats = (bytes: Uint8Array<ArrayBuffer>): Float32Array =>
  new Float32Array(bytes.slice().buffer);

function givenOf({ kind, count, limit }: TestSlot, i: number): Uint8Array<ArrayBuffer> {
  if (kind === "numbers") return new Uint8Array(Float32Array.from(numbers(i, count)).buffer);
  if (kind === "bytes") return Uint8Array.from(integers(i, count, 256));
  if (kind === "ids")
    return new Uint8Array(BigInt64Array.from(integers(i, count, limit), BigInt).buffer);
  return new Uint8Array(4 * count);
}
