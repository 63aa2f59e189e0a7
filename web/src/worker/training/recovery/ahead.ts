// Reads of a training's states, of which it has many small ones.

import type { Buffer, Device } from "../../../device/device.ts";

/**
 * A function that copies a buffer by name, from its beginning. On a GPU, where each read may take
 * 100 ms, it also reads the next buffers in the order of names.
 * @param most bytes that are read at once, unless one buffer has more
 */
export function ahead(
  device: Pick<Device, "read" | "readAll">,
  places: ReadonlyMap<string, readonly [buffer: Buffer, bytes: number]>,
  most = 2 ** 24,
): (name: string) => Promise<Uint8Array<ArrayBuffer>> {
  const names = [...places.keys()].sort();
  const found = new Map<string, Uint8Array<ArrayBuffer>>();
  return async (name) => {
    const [buffer, bytes] = places.get(name)!;
    if (!device.readAll) return device.read(buffer, 0, bytes);
    if (!found.has(name)) {
      found.clear();
      let left = most;
      const group = names
        .slice(names.indexOf(name))
        .filter((n) => (left -= places.get(n)![1]) > 0 || n === name);
      const read = await device.readAll(group.map((n) => places.get(n)!));
      group.forEach((n, i) => {
        found.set(n, read[i]!);
      });
    }
    const one = found.get(name)!;
    found.delete(name);
    return one;
  };
}
