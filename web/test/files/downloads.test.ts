import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { Aborted, ModelError } from "../../src/shared/errors.ts";
import { HttpSource } from "../../src/shared/files/http.ts";
import { PART } from "../../src/shared/files/parts.ts";
import { type Faults, FileServer } from "../common/server.ts";

const SMALL = new Uint8Array(randomBytes(3_000_000));
const LARGE = new Uint8Array(randomBytes((40 << 20) + 12_345));

const sha = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const known = (bytes: Uint8Array) => ({ size: bytes.length, version: `sha256-${sha(bytes)}` });

/** The digest of a download. */
async function digest(source: HttpSource, from = 0, before?: Uint8Array): Promise<string> {
  const hash = createHash("sha256").update(before ?? new Uint8Array(0));
  for await (const chunk of source.stream(from)) hash.update(chunk);
  return hash.digest("hex");
}

async function serving<T>(
  body: Uint8Array,
  faults: Faults,
  work: (server: FileServer) => Promise<T>,
): Promise<T> {
  const server = await new FileServer(body, faults).start();
  try {
    return await work(server);
  } finally {
    server.close();
  }
}

/** Waits until no request is being answered. */
async function closed(server: FileServer): Promise<void> {
  while (server.open) await new Promise((done) => setTimeout(done, 10));
}

test("a download that is cut four times fetches no byte twice", () =>
  serving(SMALL, { cuts: 4, cutAfter: 500_000 }, async (server) => {
    assert.equal(await digest(new HttpSource(server.url)), sha(SMALL));
    assert.equal(server.sent, SMALL.length);
    assert.deepEqual(
      server.ranges,
      ["", 1, 2, 3, 4].map((n) => n && `bytes=${(n as number) * 500_000}-`),
    );
  }));

test("several connections fetch a large file of known size; each may be cut", async () => {
  await serving(LARGE, { cuts: 4, cutAfter: PART >> 1 }, async (server) => {
    const loaded: number[] = [];
    const source = new HttpSource(server.url, {
      known: known(LARGE),
      integrity: sha(LARGE),
      onBytes: (n) => loaded.push(n),
    });
    await source.open();
    assert.equal(server.ranges.length, 0, "nothing has to be asked for");
    assert.equal(await digest(source), sha(LARGE));
    assert.equal(server.sent, LARGE.length);
    assert.ok(server.most > 1);
    assert.equal(server.ranges.length, Math.ceil(LARGE.length / PART) + 4);
    assert.ok(loaded.every((n, i) => i === 0 || n > loaded[i - 1]!));
    assert.equal(loaded.at(-1), LARGE.length);
  });
  // a resumed download
  await serving(LARGE, {}, async (server) => {
    const have = 5_000_001;
    const source = new HttpSource(server.url);
    assert.equal(await source.resume(have, '"one"', LARGE.length), true);
    assert.equal(await digest(source, have, LARGE.subarray(0, have)), sha(LARGE));
    assert.equal(server.sent, LARGE.length - have);
    assert.ok(server.most > 1);
  });
});

test("a server without ranges is read as one stream", async () => {
  await serving(LARGE, { rangeless: true }, async (server) => {
    assert.equal(await digest(new HttpSource(server.url, { known: known(LARGE) })), sha(LARGE));
    assert.deepEqual([server.ranges.length, server.sent], [1, LARGE.length]);
  });
  // ranges end amid the download
  await serving(LARGE, { rangelessFrom: 5 }, async (server) => {
    assert.equal(await digest(new HttpSource(server.url, { known: known(LARGE) })), sha(LARGE));
    assert.equal(server.ranges.at(-1), "");
  });
});

test("parts are delivered while their connections are still ending", () =>
  serving(LARGE, { slowEnd: 500 }, async (server) => {
    assert.equal(await digest(new HttpSource(server.url, { known: known(LARGE) })), sha(LARGE));
    assert.equal(server.sent, LARGE.length);
  }));

test("a browser that may not ask for ranges reads one stream", () =>
  serving(LARGE, {}, async (server) => {
    const fetcher: typeof fetch = (url, init) =>
      new Headers(init?.headers).has("Range")
        ? Promise.reject(new TypeError("Failed to fetch")) // a preflight request was refused
        : fetch(url, init);
    const source = new HttpSource(server.url, { known: known(LARGE), fetch: fetcher });
    assert.equal(await digest(source), sha(LARGE));
    assert.deepEqual([server.ranges, server.sent], [[""], LARGE.length]);
  }));

test("a file that changes while its parts are fetched is refused", () =>
  serving(LARGE, { latency: 5 }, async (server) => {
    const source = new HttpSource(server.url, { known: known(LARGE) });
    const chunks = source.stream();
    await chunks.next();
    server.faults.etag = '"two"';
    await assert.rejects(
      async () => {
        for await (const _ of chunks);
      },
      (e) => e instanceof ModelError && /changed on the server/.test(e.what),
    );
    await closed(server);
  }));

test("the connections of an aborted or abandoned download are closed", () =>
  serving(LARGE, { rate: 4_000_000 }, async (server) => {
    const controller = new AbortController();
    const { signal } = controller;
    const chunks = new HttpSource(server.url, { known: known(LARGE), signal }).stream();
    await chunks.next();
    controller.abort();
    await assert.rejects(async () => {
      for await (const _ of chunks);
    }, Aborted);
    for await (const _ of new HttpSource(server.url, { known: known(LARGE) }).stream()) break;
    await closed(server);
    assert.ok(server.sent < LARGE.length);
  }));

test("a partial download continues only if the server has the same version", async () => {
  await serving(SMALL, {}, async (server) => {
    const same = new HttpSource(server.url);
    assert.equal(await same.resume(1000, '"one"', SMALL.length), true);
    assert.equal(await digest(same, 1000, SMALL.subarray(0, 1000)), sha(SMALL));
    assert.equal(server.sent, SMALL.length - 1000);
  });
  for (const [etag, size] of [
    ['"zero"', SMALL.length],
    ['"one"', SMALL.length + 1],
    ['"zero"', SMALL.length * 2],
  ] as const)
    await serving(SMALL, {}, async (server) => {
      const other = new HttpSource(server.url);
      assert.equal(await other.resume(size - 1, etag, size), false);
      assert.deepEqual([other.validator, other.size], ['"one"', SMALL.length]);
      assert.equal(await digest(other), sha(SMALL));
    });
});
