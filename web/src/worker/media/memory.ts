// Calls of the engine's functions for pictures and sound (core/media/media.h).

import type { Host } from "../../device/device.ts";
import { EngineError, InputError, OutOfMemory } from "../../shared/errors.ts";

const ARGUMENT = -12;
const MEMORY = -1;

/** Engine memory that is freed together. */
export class Memory {
  private readonly addresses: number[] = [];

  constructor(private readonly host: Host) {}

  alloc(bytes: number): number {
    const address = this.host.alloc(Math.max(bytes, 1));
    this.addresses.push(address);
    return address;
  }

  free(): void {
    for (const address of this.addresses.splice(0)) this.host.free(address);
  }
}

/** Calls a function of core/media. Returns its int32; throws for negative ones. */
export function checked(host: Host, name: string, ...args: number[]): number {
  const code = host.call(name, ...args) | 0;
  if (code >= 0) return code;
  if (code === MEMORY)
    throw new OutOfMemory(
      "the picture needs more than 2 GB",
      "resize",
      "Resize it in two steps, or crop it.",
    );
  if (code === ARGUMENT)
    throw new InputError("the sizes are not allowed", name, "Check the sizes and the box.");
  throw new EngineError(`error ${code}`, name, "This is a bug in Edgewise.");
}

/** The bytes of numbers. */
export function bytesOf(values: Float32Array | Uint8Array | Uint8ClampedArray): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
