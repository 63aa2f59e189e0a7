import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { TimeLimit } from "../../src/page/inference/time-limit.ts";
import { sleep } from "../../src/shared/abort.ts";
import { BLOB_PIECE, BlobReader } from "../../src/shared/files/blobs.ts";
import { NotFound } from "../../src/shared/files/connection.ts";
import { HttpSource } from "../../src/shared/files/http.ts";
import { gather } from "../../src/shared/files/source.ts";
import { sha256 } from "../../src/shared/sha256.ts";
import { setStallTimeout, Watchdog, within } from "../../src/shared/watchdog.ts";
import { digestReads } from "../../src/worker/files/compiled.ts";

test("a watchdog counts the thread's own time and restarts with each sign of life", () => {
  const timers = new Set<() => void>();
  const { setInterval: start, clearInterval: stop } = globalThis;
  globalThis.setInterval = ((f: () => void) => {
    timers.add(f);
    return f;
  }) as unknown as typeof setInterval;
  globalThis.clearInterval = ((f: () => void) =>
    timers.delete(f)) as unknown as typeof clearInterval;
  const tick = (times: number) => {
    for (let i = 0; i < times; i++) for (const f of [...timers]) f();
  };
  try {
    let stalls = 0;
    const dog = new Watchdog(() => stalls++, 30_000);
    tick(100); // asleep
    dog.wake();
    // hours late, since the laptop slept: browsers do not make up for missed ticks
    tick(3);
    assert.equal(stalls, 0);
    for (let i = 0; i < 20; i++) {
      dog.feed();
      tick(15);
    }
    assert.equal(stalls, 0);
    tick(2);
    assert.deepEqual([stalls, timers.size], [1, 0]);
    dog.wake();
    tick(16);
    dog.stop();
    tick(100);
    assert.equal(stalls, 1);
  } finally {
    Object.assign(globalThis, { setInterval: start, clearInterval: stop });
  }
});

test("limits that timers cannot hold do not fire at once", async () => {
  const given: unknown[] = [];
  const { setInterval: every, setTimeout: once } = globalThis;
  const noting = (_: () => void, ms: unknown) => given.push(ms);
  Object.assign(globalThis, { setInterval: noting, setTimeout: noting });
  try {
    for (const ms of [Infinity, 2 ** 40]) {
      new Watchdog(() => undefined, ms).wake();
      void sleep(ms, undefined);
      const call = () => new Promise<never>(() => undefined);
      void new TimeLimit(ms).within(undefined, call);
      await Promise.resolve(); // the time counts from the end of the call before
    }
  } finally {
    Object.assign(globalThis, { setInterval: every, setTimeout: once });
  }
  assert.deepEqual(given, Array(6).fill(2 ** 31 - 1));
});

test("a promise that does not settle in time rejects with the given error", async () => {
  await assert.rejects(
    within(new Promise(() => undefined), () => new Error("it did not answer"), 50),
    /did not answer/,
  );
  assert.equal(await within(Promise.resolve(3), () => new Error("no"), 50), 3);
  await assert.rejects(
    within(Promise.reject(new Error("its own")), () => new Error("no"), 50),
    /its own/,
  );
});

test("ranges of a Blob are read in few pieces", async () => {
  const data = new Uint8Array(randomBytes(3 * BLOB_PIECE + 12_345));
  const blob = new Blob([data]);
  let reads = 0;
  const slice = blob.slice.bind(blob);
  blob.slice = (...args) => {
    reads++;
    return slice(...args);
  };
  const reader = new BlobReader(blob, "it");
  for (let at = 0; at + 1000 < data.length; at += 1000)
    assert.deepEqual(
      Buffer.from(await reader.copy(at, 1000)).equals(data.subarray(at, at + 1000)),
      true,
    );
  assert.ok(reads <= 4, String(reads));
  for (const [at, bytes] of [
    [5, 2 * BLOB_PIECE],
    [data.length - 7, 7],
    [0, data.length],
    [17, 0],
  ] as const)
    assert.ok(Buffer.from(await reader.copy(at, bytes)).equals(data.subarray(at, at + bytes)));
  await assert.rejects(reader.copy(data.length - 7, 8), /ends at byte/);

  reads = 0;
  const places = Array.from({ length: 3000 }, () => {
    const start = Math.floor(Math.random() * (data.length - 5000));
    const target = new Uint8Array(Math.floor(Math.random() * 5000));
    return {
      start,
      bytes: target.length,
      target,
      write: (chunk: Uint8Array, at: number) => target.set(chunk, at),
    };
  });
  await gather(blob, places, "it");
  for (const { start, target } of places)
    assert.ok(Buffer.from(target).equals(data.subarray(start, start + target.length)));
  assert.ok(reads <= 8, String(reads));

  const ranges: [number, number][] = [
    [0, 10],
    [100, 0],
    [5000, BLOB_PIECE + 3],
    [data.length - 1, 1],
  ];
  const parts = ranges.flatMap(([at, n]) => [`m ${at} ${n}\n`, data.subarray(at, at + n)]);
  assert.equal(await digestReads({ m: ranges }, new Map([["m", blob]])), sha256(...parts));
});

test("a Blob that does not respond or was truncated raises an error with its name", async () => {
  const blob = new Blob([new Uint8Array(10)]);
  blob.slice = () => ({ arrayBuffer: () => new Promise(() => undefined) }) as unknown as Blob;
  setStallTimeout(60);
  await assert.rejects(
    new BlobReader(blob, "mine.onnx").read(0, 5),
    /mine\.onnx: the file could not be read \(the browser did not deliver it/,
  );
  setStallTimeout(30_000);
  blob.slice = () => new Blob([]);
  await assert.rejects(
    new BlobReader(blob, "mine.onnx").read(0, 5),
    /mine\.onnx: it ends at byte 0/,
  );
});

test("a file missing at an address other than http is reported immediately", async () => {
  const asked: string[] = [];
  const fetch = (async (url: string) => {
    asked.push(url);
    throw new TypeError("Failed to fetch");
  }) as unknown as typeof globalThis.fetch;
  await assert.rejects(
    new HttpSource("chrome-extension://abc/chat_template.jinja", { fetch }).open(),
    (e) => e instanceof NotFound && e.status === 404,
  );
  assert.equal(asked.length, 1);
});

test("ranges that are copied at once do not take each other's bytes", async () => {
  const bytes = Uint8Array.from({ length: 2 * BLOB_PIECE + 9 }, (_, i) => i % 251);
  const reader = new BlobReader(new Blob([bytes]), "it");
  const ranges = [2 * BLOB_PIECE, 3, BLOB_PIECE - 4, 0].map((at) => [at, at + 8] as const);
  const found = await Promise.all(ranges.map(([at, end]) => reader.copy(at, end - at)));
  assert.deepEqual(
    found,
    ranges.map(([at, end]) => bytes.slice(at, end)),
  );
  await assert.rejects(reader.copy(2 * BLOB_PIECE, 10), /it ends at byte/);
  assert.deepEqual(await reader.copy(1, 2), bytes.slice(1, 3)); // goes on after a failure
  reader.close();
});
