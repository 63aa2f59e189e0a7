// Allocation of linear memory.

import { OutOfMemory } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";

const PAGE = 65536;
const INITIAL_PAGES = 32;

/**
 * Reserves address space for 4 GB, or less if the device does not allow that; the reservation is
 * the maximum that the memory can grow to.
 */
export function makeMemory(shared: boolean): WebAssembly.Memory {
  let last: unknown;
  for (const gigabytes of [4, 2, 1, 0.5, 0.25]) {
    try {
      return new WebAssembly.Memory({
        initial: INITIAL_PAGES,
        maximum: Math.min(65536, gigabytes * (2 ** 30 / PAGE)),
        shared,
      });
    } catch (e) {
      last = e;
    }
  }
  throw new OutOfMemory(
    `the browser did not allocate memory for the engine (${message(last)})`,
    "",
    "Close other tabs.",
  );
}
