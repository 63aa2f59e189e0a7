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
import type { Buffer, Device } from "../device.ts";

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

/** The largest difference of each result, as a part of its largest number. */
async function differencesOf(device: Device, wasm: Device): Promise<number[]> {
  const plan = Uint8Array.from(atob(PLAN), (c) => c.charCodeAt(0));
  const kinds = SLOTS.map(() => "state");
  const handle = device.loadPlan(plan, "self-test", "self-test", undefined, kinds);
  const held: [Device, Buffer][] = [];
  const bind = (to: Device): Buffer[] =>
    SLOTS.map((slot, i) => {
      const given = givenOf(slot, i);
      const buffer = to.allocate(given.length, "the test of a GPU");
      held.push([to, buffer]);
      to.bind(handle, i, buffer);
      to.write(buffer, given);
      return buffer;
    });
  const run = async (on: Device): Promise<Uint8Array<ArrayBuffer>[]> => {
    const buffers = bind(on);
    on.run(handle, "self-test");
    return (
      on.readAll?.(buffers.map((buffer) => [buffer, buffer.bytes])) ??
      Promise.all(buffers.map((buffer) => on.read(buffer)))
    );
  };
  try {
    const expected = await run(wasm);
    const found = await run(device);
    return SLOTS.map(({ kind }, i) =>
      kind === "result" ? difference(floats(expected[i]!), floats(found[i]!)) : 0,
    );
  } finally {
    device.freePlan(handle);
    for (const [of, buffer] of held) of.release(buffer);
  }
}

const floats = (bytes: Uint8Array<ArrayBuffer>): number[] =>
  Array.from(new Float32Array(bytes.slice().buffer));

function givenOf({ kind, count, limit }: TestSlot, i: number): Uint8Array<ArrayBuffer> {
  if (kind === "numbers") return new Uint8Array(Float32Array.from(numbers(i, count)).buffer);
  if (kind === "bytes") return Uint8Array.from(integers(i, count, 256));
  if (kind === "ids")
    return new Uint8Array(BigInt64Array.from(integers(i, count, limit), BigInt).buffer);
  return new Uint8Array(4 * count);
}
