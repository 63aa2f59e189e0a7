// Device memory for values between plans: allocated by size, and reused when the last value in it
// is released. Mirrors python/edgewise/host/session/memory.py.

import type { Buffer, Device } from "../../device/device.ts";
import { OutOfMemory } from "../../shared/errors.ts";
import { megabytes } from "../../shared/words.ts";

const ALIGN = 64;

/** A range of device memory with a reference count. */
export class PoolBlock {
  refs = 1;
  /** Number of the run that used it last. */
  run = 0;
  constructor(
    readonly buffer: Buffer,
    private readonly pool: Pool,
  ) {}

  /** Size in bytes. */
  get bytes(): number {
    return this.buffer.bytes;
  }

  retain(): void {
    this.refs++;
  }

  release(): void {
    if (--this.refs === 0) this.pool.give(this);
  }
}

/** A pool of blocks. Free blocks are kept by size; after a run, those that the run used. */
export class Pool {
  private readonly idle = new Map<number, PoolBlock[]>();
  private idleBytes = 0;
  private peak = 0;
  private run = 0;
  /** Blocks in use, in order of allocation. */
  private readonly live = new Set<PoolBlock>();
  /** Bytes in use. */
  used = 0;
  /** Bytes of host memory used by values of the run. */
  private held = 0;

  /**
   * @param device where to allocate
   * @param most maximum bytes in use, so that unbounded growth fails before the page does
   */
  constructor(
    private readonly device: Device,
    readonly most: number,
  ) {}

  /**
   * Takes a block of at least `bytes` bytes with undefined contents. `where` is for the error.
   * @throws OutOfMemory
   */
  take(bytes: number, where = ""): PoolBlock {
    const size = Math.max(Math.ceil(bytes / ALIGN), 1) * ALIGN;
    const list = this.idle.get(size);
    let block = list?.pop();
    if (block) {
      this.idleBytes -= size;
      block.refs = 1;
    } else {
      this.checkRoom(size, where);
      block = new PoolBlock(this.allocate(size, where), this);
    }
    block.run = this.run;
    this.live.add(block);
    this.used += size;
    this.peak = Math.max(this.peak, this.used);
    return block;
  }

  /**
   * Counts host memory (strings, lists) until the returned function is called.
   * @throws OutOfMemory
   */
  hold(bytes: number): () => void {
    this.checkRoom(bytes);
    const { run } = this;
    this.held += bytes;
    return () => {
      if (run === this.run) this.held -= bytes;
    };
  }

  /** Bytes that may still be used. */
  get room(): number {
    return Math.max(0, this.most - this.used - this.held);
  }

  /** @throws OutOfMemory if `bytes` more would exceed the limit */
  checkRoom(bytes: number, where = ""): void {
    const used = this.used + this.held;
    if (used + bytes > this.most)
      throw new OutOfMemory(
        `${megabytes(bytes)} more exceed the limit: ${megabytes(used)} are in use and at ` +
          `most ${megabytes(this.most)} may be`,
        where,
        "Use a smaller batch, sequence or model, or set SessionOptions.max_memory_bytes; if " +
          "a loop of the model grows, check its condition.",
      );
  }

  private allocate(size: number, where: string): Buffer {
    for (;;) {
      try {
        return this.device.allocate(size, "values of a run", true);
      } catch (e) {
        if (!(e instanceof OutOfMemory)) throw e;
        if (!this.idleBytes) throw new OutOfMemory(e.what, where, e.remedy);
        this.trim(true);
      }
    }
  }

  /** Returns a block after its last reference is released. */
  give(block: PoolBlock): void {
    if (!this.live.delete(block)) return;
    this.used -= block.bytes;
    if (block.buffer.failed || this.used + this.idleBytes + block.bytes > this.peak) {
      this.device.release(block.buffer);
      return;
    }
    const list = this.idle.get(block.bytes);
    if (list) list.push(block);
    else this.idle.set(block.bytes, [block]);
    this.idleBytes += block.bytes;
  }

  /**
   * Ends a run: takes back all of its blocks except `kept` (with their reference counts), even if
   * they are still referenced, and frees idle blocks that the run did not use.
   */
  finish(kept: ReadonlyMap<PoolBlock, number>): void {
    for (const [block, refs] of kept) block.refs = refs;
    if (this.live.size > kept.size)
      for (const block of [...this.live].reverse())
        if (block.run === this.run && !kept.has(block)) this.give(block);
    this.next();
  }

  /** Ends a run that has released all of its blocks: frees idle blocks that it did not use. */
  next(): void {
    this.trim(false);
    this.held = 0;
    this.run++;
  }

  /** Frees the blocks that are not in use. */
  free(): void {
    this.trim(true);
  }

  private trim(all: boolean): void {
    for (const [size, list] of this.idle) {
      const stay = all ? [] : list.filter((b) => b.run === this.run);
      if (stay.length === list.length) continue;
      for (const block of list) if (!stay.includes(block)) this.device.release(block.buffer);
      this.idleBytes -= size * (list.length - stay.length);
      if (stay.length) this.idle.set(size, stay);
      else this.idle.delete(size);
    }
    this.peak = this.used + this.idleBytes;
  }
}
