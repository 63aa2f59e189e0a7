// Memory of a GPU. Weights share a few GPUBuffers: they are only read. So do states, which steps
// update in place, many in one dispatch. Everything else has its own, since WebGPU refuses to read
// and write one GPUBuffer in a step. All begins at a multiple of 256 bytes, as bindings must. The
// twin of python/edgewise/host/webgpu/memory.py.

import { ALIGNMENT } from "../../logic/gpu/arrange.ts";
import { OutOfMemory } from "../../shared/errors.ts";
import { megabytes } from "../../shared/words.ts";
import type { Buffer } from "../device.ts";
import type { Gpu } from "./gpu.ts";

/** Bytes of the first GPUBuffer that is shared, and of the largest one. */
const MIN = 1 << 22;
const MAX = 1 << 28;
/** Bytes of all GPUBuffers, whatever a package asks for. */
const TOTAL = 2 ** 34;
const REMEDY = "Use a smaller or a more strongly quantized model, or close other tabs.";

/** The error for memory that a GPU does not have. */
export function noMemory(of: string, remedy = REMEDY): OutOfMemory {
  return new OutOfMemory(`out of memory ${of}`, "webgpu", remedy);
}

const aligned = (bytes: number): number => Math.ceil(Math.max(bytes, 1) / ALIGNMENT) * ALIGNMENT;

/** What memory is for. */
export type Use = "weight" | "state" | "";

/** A GPUBuffer with one or several allocations. */
export interface Block {
  gpu: GPUBuffer;
  /** No other GPUBuffer of the memory has had it. */
  number: number;
  bytes: number;
  /** What may share it; "": nothing. */
  use: Use;
  /** Whether the GPU had no memory for it. */
  failed: boolean;
  /** Number of allocations in it. */
  live: number;
  /** Offset after the last one. */
  used: number;
  /** What was released. */
  spare: { bytes: number; offset: number }[];
}

/** A range of a GPUBuffer. */
export class GpuRange implements Buffer {
  /**
   * The end of what was written in pieces, and the bytes of an incomplete word there, which come
   * with the next piece: WebGPU writes whole words.
   */
  streamed: { end: number; rest: Uint8Array } | undefined;

  /**
   * @param limit end of the allocation, in bytes from the beginning of the GPUBuffer; the rest of
   *   its last word is free
   * @param streams whether it is written from its beginning to its end before it is used
   */
  constructor(
    readonly block: Block,
    readonly offset: number,
    readonly bytes: number,
    readonly limit: number,
    readonly streams = false,
  ) {}

  get failed(): boolean {
    return this.block.failed;
  }

  part(offset: number, bytes = this.bytes - offset): GpuRange {
    return new GpuRange(this.block, this.offset + offset, bytes, this.limit);
  }
}

/** Allocates ranges of GPUBuffers. */
export class GpuMemory {
  private made = 0;
  private readonly blocks = new Set<Block>();

  /**
   * @param gpu the device
   * @param guard called with the purpose and the end of what is allocated, to hear of its failure
   */
  constructor(
    private readonly gpu: Gpu,
    private readonly guard: (make: () => GPUBuffer, failed: () => OutOfMemory) => GPUBuffer,
  ) {}

  /** Zeroed memory in a GPUBuffer of its own. */
  allocate(bytes: number, what: string): GpuRange {
    return this.take(this.make(aligned(bytes), "", what), bytes);
  }

  /** Memory with undefined contents, beside other memory for the same use. */
  shared(bytes: number, what: string, use: Use): GpuRange {
    const size = aligned(bytes);
    const shared = [...this.blocks].filter((block) => block.use === use && !block.failed);
    for (const block of shared)
      if (block.spare.some((s) => s.bytes === size) || block.bytes - block.used >= size)
        return this.take(block, bytes);
    // As much again as there is: a small model needs little, a large one few buffers.
    const held = shared.reduce((sum, block) => sum + block.bytes, 0);
    const { bufferBytes, bindingBytes } = this.gpu; // a step binds all states in a block as one
    const more = Math.min(Math.max(MIN, held), MAX, bufferBytes, bindingBytes);
    return this.take(this.make(Math.max(size, more), use, what), bytes);
  }

  private take(block: Block, bytes: number): GpuRange {
    const size = aligned(bytes);
    const i = block.spare.findIndex((s) => s.bytes === size);
    const offset = i < 0 ? block.used : block.spare.splice(i, 1)[0]!.offset;
    if (i < 0) block.used += size;
    block.live++;
    return new GpuRange(block, offset, bytes, offset + bytes, block.use === "weight");
  }

  private make(bytes: number, use: Use, what: string): Block {
    if (bytes > this.gpu.bufferBytes)
      throw noMemory(
        `for ${what}: ${megabytes(bytes)} in one buffer, this GPU has at most ` +
          megabytes(this.gpu.bufferBytes),
        "Use a smaller model, or the device 'wasm'.",
      );
    if (this.bytes + bytes > TOTAL)
      throw noMemory(
        `for ${what}: with ${megabytes(bytes)}, more than ${megabytes(TOTAL)} of the GPU would ` +
          "be in use",
      );
    const gpu = this.guard(
      () => this.gpu.buffer(bytes),
      () => {
        block.failed = true;
        return noMemory(
          `of the GPU for ${what} (${megabytes(bytes)}); ${megabytes(this.bytes)} are in use`,
        );
      },
    );
    const block: Block = {
      gpu,
      number: this.made++,
      bytes,
      use,
      failed: false,
      live: 0,
      used: 0,
      spare: [],
    };
    this.blocks.add(block);
    return block;
  }

  /** Frees an allocation; its GPUBuffer when it holds no other one. */
  release({ block, offset, bytes }: GpuRange): void {
    block.spare.push({ bytes: aligned(bytes), offset });
    if (--block.live) return;
    this.blocks.delete(block);
    this.gpu.free(block.gpu);
  }

  /** Bytes of all GPUBuffers. */
  get bytes(): number {
    return [...this.blocks].reduce((sum, block) => sum + block.bytes, 0);
  }

  /** Frees everything. */
  close(): void {
    for (const { gpu } of this.blocks) gpu.destroy();
    this.blocks.clear();
  }
}

/** What arenas need of a plan. */
interface Arranged {
  /** Of its slots; those of kind `temp` are arenas. */
  readonly kinds: readonly string[];
  readonly parts: { readonly slotBytes: readonly number[] };
  bind(slot: number, buffer: GpuRange, where: string): void;
}

/**
 * The memory between the steps of plans, which all plans of a device share. Its methods are called
 * in the order of calls.
 */
export class Arenas {
  private readonly made: GpuRange[] = [];

  constructor(
    private readonly plans: () => Iterable<Arranged>,
    private readonly memory: {
      allocate(bytes: number): GpuRange;
      release(range: GpuRange): void;
    },
  ) {}

  /** Binds those of a plan, and makes them as large as it needs. */
  bind(plan: Arranged): void {
    slotsOf(plan).forEach((slot, i) => {
      const bytes = plan.parts.slotBytes[slot]!;
      const old = this.made[i];
      if (!old || old.bytes < bytes) this.renew(i, bytes);
      else plan.bind(slot, old, "");
    });
  }

  /** Makes an arena anew, for all plans that have it. */
  private renew(i: number, bytes: number): void {
    const old = this.made[i];
    const made = this.memory.allocate(bytes);
    this.made[i] = made;
    for (const plan of this.plans()) {
      const slot = slotsOf(plan)[i];
      if (slot !== undefined) plan.bind(slot, made, "");
    }
    if (old) this.memory.release(old);
  }

  /** Makes those anew that had no memory, for a plan that is gone: others need smaller ones. */
  mend(): void {
    this.made.forEach((arena, i) => {
      if (!arena.failed) return;
      const sizes = Array.from(this.plans(), (plan) => {
        const slot = slotsOf(plan)[i];
        return slot === undefined ? 0 : plan.parts.slotBytes[slot]!;
      });
      this.renew(i, Math.max(0, ...sizes));
    });
  }
}

/** Slots that are arenas. */
const slotsOf = ({ kinds }: Arranged): number[] =>
  kinds.flatMap((kind, slot) => (kind === "temp" ? [slot] : []));
