import assert from "node:assert/strict";
import { test } from "node:test";
import type { Buffer, Device } from "../../src/device/device.ts";
import { OutOfMemory } from "../../src/shared/errors.ts";
import { type DecoderState, EngineDecoder } from "../../src/worker/model/decoder.ts";

/** Bytes of a device, and how many there are. */
class Memory {
  live = 0;
  peak = 0;
  /** Bytes that it has. */
  most = Infinity;
  readonly info = {};

  allocate(bytes: number): Buffer {
    if (this.live + bytes > this.most) throw new OutOfMemory("no memory", "", "");
    this.live += bytes;
    this.peak = Math.max(this.peak, this.live);
    return new Range(new Uint8Array(bytes)) as unknown as Buffer;
  }
  release({ bytes }: Buffer): void {
    this.live -= bytes;
  }
  copy(source: Buffer, target: Buffer, bytes = source.bytes): void {
    bytesOf(target).set(bytesOf(source).subarray(0, bytes));
  }
}

class Range {
  constructor(readonly data: Uint8Array) {}
  get bytes(): number {
    return this.data.length;
  }
  part(at: number, bytes = this.data.length - at): Range {
    return new Range(this.data.subarray(at, at + bytes));
  }
}

const bytesOf = (buffer: Buffer): Uint8Array => (buffer as unknown as Range).data;

const [LAYERS, HEADS, ROW, ROOM, PAST] = [6, 3, 4, 8, 7];

/** A sequence of `PAST` tokens with room for `ROOM`, and its memory. */
function opened() {
  const memory = new Memory();
  const size = HEADS * ROW * ROOM;
  const caches = Array.from({ length: LAYERS }, (_, i) => ({
    ...{ name: `cache${i}`, bytes: 4 * size, rows: [HEADS, ROW], fixed: false, sliding: false },
  }));
  const decoder = Object.assign(Object.create(EngineDecoder.prototype) as object, {
    device: memory as unknown as Device,
    info: { caches },
    plans: [],
  }) as unknown as EngineDecoder;
  const held = caches.map(({ name }, i): [string, Buffer] => {
    const buffer = memory.allocate(size);
    bytesOf(buffer).forEach((_, k, all) => {
      all[k] = k % (ROW * ROOM) < ROW * PAST ? 17 * i + k : 0;
    });
    return [name, buffer];
  });
  const sequence = {
    past: PAST,
    dropped: 0,
    room: ROOM,
    caches: new Map(held),
    ids: [],
    ahead: [],
  };
  const move = (room: number): void =>
    (Reflect.get(decoder, "move") as (s: unknown, room: number) => void).call(
      ...([decoder, sequence, room] as const),
    );
  const rows = (): number[][] =>
    Array.from(sequence.caches.values(), (buffer) =>
      Array.from({ length: HEADS }, (_, head) => [
        ...bytesOf(buffer).subarray(
          head * ROW * sequence.room,
          head * ROW * sequence.room + ROW * PAST,
        ),
      ]).flat(),
    );
  const bound = { bound: sequence as object | undefined };
  Object.assign(decoder, { plans: [bound] });
  const state = sequence as unknown as DecoderState;
  return { memory, decoder, sequence: state, move, rows, size, bound };
}

test("caches grow one after the other", () => {
  const { memory, sequence, move, rows, size } = opened();
  const before = rows();
  move(2 * ROOM);
  assert.equal(sequence.room, 2 * ROOM);
  assert.deepEqual(rows(), before);
  assert.equal(memory.live, 2 * LAYERS * size);
  assert.equal(memory.peak, 2 * LAYERS * size + size, "of one layer, both exist");
});

test("a sequence that cannot grow keeps its tokens, and can be copied and grow later", () => {
  for (let layers = 0; layers < LAYERS; layers++) {
    const { memory, decoder, sequence, move, rows, size, bound } = opened();
    const before = rows();
    memory.most = LAYERS * size + layers * size + 2 * size - 1;
    assert.throws(() => move(2 * ROOM), OutOfMemory);
    assert.equal(sequence.room, ROOM);
    assert.equal(bound.bound, undefined, "plans have slots on buffers that were freed");
    assert.deepEqual(rows(), before);
    assert.ok(memory.live <= memory.most);
    memory.most = Infinity;
    const other = opened();
    decoder.copy(sequence, other.sequence);
    assert.deepEqual(other.rows(), before);
    move(2 * ROOM);
    assert.deepEqual(rows(), before);
    assert.equal(memory.live, 2 * LAYERS * size);
  }
});
