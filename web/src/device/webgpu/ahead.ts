// Reads of many small buffers, such as the states of a training: a map may take 100 ms.

import type { Buffer, Device } from "../device.ts";

/** Bytes that are read at once. */
const AHEAD = 1 << 24;

/** The buffers to read by name, of which each is read from its beginning. */
export type Places = ReadonlyMap<string, readonly [buffer: Buffer, bytes: number]>;

/** A function that copies a buffer by name, and with it those that follow by name. */
export function ahead(
  device: Required<Pick<Device, "readAll">>,
  places: Places,
): (name: string) => Promise<Uint8Array<ArrayBuffer>> {
  const names = [...places.keys()].sort();
  const read = new Map<string, Uint8Array<ArrayBuffer>>();
  return async (name) => {
    if (!read.has(name)) {
      read.clear();
      const first = names.indexOf(name);
      let left = AHEAD;
      let end = first;
      do left -= places.get(names[end++]!)![1];
      while (end < names.length && left > places.get(names[end]!)![1]);
      const group = names.slice(first, end);
      const found = await device.readAll(group.map((n) => places.get(n)!));
      group.forEach((n, i) => {
        read.set(n, found[i]!);
      });
    }
    const found = read.get(name)!;
    read.delete(name);
    return found;
  };
}
