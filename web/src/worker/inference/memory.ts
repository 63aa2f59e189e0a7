// Engine memory of what flows between plans: handed out by size, and taken back when the last value
// in it is released. The counterpart of python/edgewise/session/memory.py.

import type { Buffer, Device } from "../../device/device.ts";
import { OutOfMemory } from "../../shared/errors.ts";
import { megabytes } from "../../shared/words.ts";

const ALIGN = 64;

/** A range of the device's memory with a count of the values in it. */
export class Block {
  refs = 1;
  /** The run that took it last. */
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

/** Memory that is free again is kept for the next of its size: after a run, what that run used. */
export class Pool {
  private readonly idle = new Map<number, Block[]>();
  private idleBytes = 0;
  private peak = 0;
  private run = 0;
  /** Blocks in use; in the order in which they were taken. */
  private readonly live = new Set<Block>();
  /** Bytes in use. */
  used = 0;
  /** Bytes of the host's memory that a run's values take. */
  private held = 0;

  /**
   * @param most bytes that may be in use at once: what grows without end is to fail before the page
   *   does
   */
  constructor(
    private readonly device: Device,
    readonly most: number,
  ) {}

  /**
   * At least `bytes` of memory, with anything in it, for what `where` names. @throws OutOfMemory
   */
  take(bytes: number, where = ""): Block {
    const size = Math.max(Math.ceil(bytes / ALIGN), 1) * ALIGN;
    const list = this.idle.get(size);
    let block = list?.pop();
    if (block) {
      this.idleBytes -= size;
      block.refs = 1;
    } else {
      this.checkRoom(size, where);
      block = new Block(this.allocate(size, where), this);
    }
    block.run = this.run;
    this.live.add(block);
    this.used += size;
    this.peak = Math.max(this.peak, this.used);
    return block;
  }

  /**
   * Counts memory of the host's (strings, lists) until what it gives is called. @throws OutOfMemory
   */
  hold(bytes: number): () => void {
    this.checkRoom(bytes);
    const { run } = this;
    this.held += bytes;
    return () => {
      if (run === this.run) this.held -= bytes;
    };
  }

  /** Bytes that may still be taken. */
  get room(): number {
    return Math.max(0, this.most - this.used - this.held);
  }

  /** Whether `bytes` more may be in use. @throws OutOfMemory: they may not */
  checkRoom(bytes: number, where = ""): void {
    const used = this.used + this.held;
    if (used + bytes > this.most)
      throw new OutOfMemory(
        `${megabytes(bytes)} more are wanted, where ${megabytes(used)} are in use and at ` +
          `most ${megabytes(this.most)} may be`,
        where,
        "Use a smaller batch, sequence or model, or set SessionOptions.max_memory_bytes; if " +
          "a loop of the model grows, check what ends it.",
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

  /** Takes a block back, when its last value is gone. */
  give(block: Block): void {
    if (!this.live.delete(block)) return;
    this.used -= block.bytes;
    if (this.used + this.idleBytes + block.bytes > this.peak) {
      this.device.release(block.buffer);
      return;
    }
    const list = this.idle.get(block.bytes);
    if (list) list.push(block);
    else this.idle.set(block.bytes, [block]);
    this.idleBytes += block.bytes;
  }

  /**
   * Ends a run: takes back all that it took but `kept` (with the number of values in it), whatever
   * still refers to it, and lets go of idle memory that it did not use.
   */
  finish(kept: ReadonlyMap<Block, number>): void {
    for (const [block, refs] of kept) block.refs = refs;
    if (this.live.size > kept.size)
      for (const block of [...this.live].reverse())
        if (block.run === this.run && !kept.has(block)) this.give(block);
    this.trim(false);
    this.held = 0;
    this.run++;
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
