// Ranges of the engine's linear memory.

import type { Buffer } from "../device.ts";

/** A range of linear memory. */
export class LinearBuffer implements Buffer {
  constructor(
    /** Address in linear memory. */
    readonly address: number,
    readonly bytes: number,
  ) {}

  part(offset: number, bytes = this.bytes - offset): Buffer {
    return new LinearBuffer(this.address + offset, bytes);
  }
}

/** Address of a buffer allocated by an {@link Engine}. */
export function addressOf(buffer: Buffer): number {
  return (buffer as LinearBuffer).address;
}
