// Copies between a GPU's memory and the worker's. WebGPU copies whole words.

import { type EdgewiseError, EngineError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { type Gpu, MAP_READ, USAGE } from "./gpu.ts";
import type { GpuRange } from "./memory.ts";

const LOST_MS = 1000; // from a failed map to the news that the GPU was lost
const PIECE = 1 << 20;
const NOTHING = new Uint8Array(0);
/** Bytes of the first buffer for reads: a token and errors need less. */
const MIN = 1 << 12;
/** Bytes of the largest buffer for reads that is kept. */
const KEPT = 1 << 22;

/** A range of a GPUBuffer to read, in whole words. */
export interface WordRange {
  gpu: GPUBuffer;
  offset: number;
  bytes: number;
}

/** Copies between a GPU's memory and the worker's. */
export class Transfers {
  private readonly spare: GPUBuffer[] = [];
  /** Number of reads, each of which maps a buffer. */
  maps = 0;

  constructor(private readonly gpu: Gpu) {
    this.spare.push(this.staging(MIN));
  }

  /** Reads ranges, with one submit and one map. What was encoded before is done then. */
  async read(ranges: readonly WordRange[]): Promise<Uint8Array<ArrayBuffer>[]> {
    const { gpu: own } = this;
    const encoder = own.encoder();
    const total = ranges.reduce((sum, { bytes }) => sum + bytes, 0);
    const staging = this.staging(total);
    let at = 0;
    for (const { gpu, offset, bytes } of ranges) {
      encoder.copyBufferToBuffer(gpu, offset, staging, at, bytes);
      at += bytes;
    }
    own.submit();
    this.maps++;
    try {
      await staging.mapAsync(MAP_READ, 0, total);
    } catch (e) {
      staging.destroy();
      throw await this.reason(e);
    }
    const mapped = new Uint8Array(staging.getMappedRange(0, total));
    at = 0;
    const out = ranges.map(({ bytes }) => mapped.slice(at, (at += bytes)));
    staging.unmap();
    if (staging.size <= KEPT) this.spare.push(staging);
    else staging.destroy();
    return out;
  }

  /** Why a map failed. */
  private async reason(e: unknown): Promise<EdgewiseError> {
    await Promise.race([
      this.gpu.device.lost,
      new Promise((resolve) => {
        setTimeout(resolve, LOST_MS);
      }),
    ]);
    return (
      this.gpu.lost ??
      new EngineError(`the GPU returned nothing (${message(e)})`, "webgpu", "Load the model again.")
    );
  }

  /** A buffer to map, of at least so many bytes. */
  private staging(bytes: number): GPUBuffer {
    const i = this.spare.findIndex(({ size }) => size >= bytes);
    if (i >= 0) return this.spare.splice(i, 1)[0]!;
    this.spare.shift()?.destroy();
    const power = 2 ** Math.ceil(Math.log2(Math.max(bytes, 256)));
    return this.gpu.device.createBuffer({
      size: Math.min(power, Math.max(this.gpu.bufferBytes, bytes)),
      usage: USAGE.MAP_READ | USAGE.COPY_DST,
    });
  }

  /**
   * Writes bytes, if that needs no others.
   * @returns whether it was done: otherwise the words at the ends must be read first
   */
  write(buffer: GpuRange, data: Uint8Array, at: number): boolean {
    const { streamed } = buffer;
    const goesOn = streamed?.end === at;
    buffer.streamed = undefined;
    let begin = buffer.offset + at;
    let words = data;
    if (goesOn && streamed.rest.length) {
      words = new Uint8Array(streamed.rest.length + data.length);
      words.set(streamed.rest);
      words.set(data, streamed.rest.length);
      begin -= streamed.rest.length;
    }
    if (begin % 4) return false;
    const end = begin + words.length;
    const rest = end % 4;
    if (rest && end === buffer.limit) {
      const padded = new Uint8Array(words.length + 4 - rest);
      padded.set(words);
      words = padded;
    } else if (rest) {
      if (!buffer.streams || (at !== 0 && !goesOn)) return false;
      buffer.streamed = { end: at + data.length, rest: words.slice(words.length - rest) };
      words = words.subarray(0, words.length - rest);
    } else if (buffer.streams) buffer.streamed = { end: at + data.length, rest: NOTHING };
    this.put(buffer.block.gpu, begin, words);
    return true;
  }

  /** Writes whole words. */
  put(gpu: GPUBuffer, offset: number, words: Uint8Array): void {
    if (words.length) this.gpu.write(gpu, offset, words as Uint8Array<ArrayBuffer>);
  }

  /** Sets whole words to zero, or all bytes to a value. */
  fill(gpu: GPUBuffer, offset: number, bytes: number, value: number): void {
    if (value === 0) {
      this.gpu.encoder().clearBuffer(gpu, offset, bytes);
      return;
    }
    const piece = new Uint8Array(Math.min(bytes, PIECE)).fill(value);
    for (let at = 0; at < bytes; at += piece.length)
      this.put(gpu, offset + at, piece.subarray(0, Math.min(piece.length, bytes - at)));
  }

  /** Copies whole words. */
  copy(from: GPUBuffer, fromAt: number, to: GPUBuffer, toAt: number, bytes: number): void {
    const encoder = this.gpu.encoder();
    // a buffer cannot be copied to itself
    const between = from === to ? this.gpu.buffer(bytes) : undefined;
    if (between) encoder.copyBufferToBuffer(from, fromAt, between, 0, bytes);
    encoder.copyBufferToBuffer(between ?? from, between ? 0 : fromAt, to, toAt, bytes);
    if (between) this.gpu.free(between);
  }

  close(): void {
    for (const staging of this.spare.splice(0)) staging.destroy();
  }
}

/** The words that a range touches, and the offset of the first byte. */
export function wordsOf(
  { block, offset }: GpuRange,
  at: number,
  bytes: number,
): [words: WordRange, first: number] {
  const first = Math.floor((offset + at) / 4) * 4;
  const end = Math.ceil((offset + at + bytes) / 4) * 4;
  return [{ gpu: block.gpu, offset: first, bytes: end - first }, first];
}
