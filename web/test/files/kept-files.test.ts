import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { PIECE } from "../../src/gen/manifest.ts";
import { ModelError, StorageError } from "../../src/shared/errors.ts";
import { KeptSource } from "../../src/worker/files/kept-source.ts";
import { PieceSums } from "../../src/worker/files/kept-sums.ts";
import { FileServer } from "../common/server.ts";
import { Storage } from "../common/storage.ts";

const nativeFetch = globalThis.fetch;

test("checksums of a stream do not depend on its chunks", async () => {
  const data = new Uint8Array(randomBytes(2 * PIECE + 12_345));
  const want = [0, 1, 2].map((i) =>
    createHash("sha256")
      .update(data.subarray(i * PIECE, (i + 1) * PIECE))
      .digest("hex")
      .slice(0, 32),
  );
  for (const step of [1000_003, PIECE, data.length]) {
    const sums = new PieceSums();
    for (let at = 0; at < data.length; at += step) sums.add(data.subarray(at, at + step));
    assert.deepEqual(await sums.finish(), want);
  }
  assert.deepEqual(await new PieceSums().finish(), []);
});

test("a damaged stored file is fetched again; packages have checksums of their own", async () => {
  const storage = new Storage(true).install();
  const data = new Uint8Array(randomBytes(100_000));
  let fetched = 0;
  globalThis.fetch = (async () => {
    fetched++;
    return new Response(data, { headers: { "Content-Length": String(data.length), ETag: '"1"' } });
  }) as typeof fetch;
  const load = async (url: string): Promise<Uint8Array> => {
    const got: number[] = [];
    for await (const chunk of new KeptSource(url, { model: "m" }, assert.fail).stream())
      for (const b of chunk) got.push(b);
    return Uint8Array.from(got);
  };
  const damage = (): void => {
    for (const [path, bytes] of storage.files) if (path.endsWith(".data")) bytes[50_000]! ^= 1;
  };
  const model = "https://here.example/model.onnx";
  assert.deepEqual(await load(model), data);
  assert.deepEqual(await load(model), data);
  assert.equal(fetched, 1);
  damage();
  await assert.rejects(
    load(model),
    (e) => e instanceof StorageError && /damaged/.test(e.what) && e.where === model,
  );
  assert.deepEqual(await load(model), data);
  assert.deepEqual(await load(model), data);
  assert.equal(fetched, 2);
  const packed = "https://here.example/model.edge";
  await load(packed);
  damage();
  assert.notDeepEqual(await load(packed), data); // openPackage detects it
});

const digest = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");
const known = (data: Uint8Array) => ({ size: data.length, version: `sha256-${digest(data)}` });
const names = (storage: Storage, end: string): string[] =>
  [...storage.files.keys()].filter((path) => path.endsWith(end));

/** A source of a listed file, as `Downloads` makes it. */
const listed = (url: string, data: Uint8Array, model = "m"): KeptSource =>
  new KeptSource(url, { model, known: known(data), integrity: digest(data) }, assert.fail);

async function read(source: KeptSource): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const chunk of source.stream()) parts.push(chunk.slice());
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}

test("equal contents of several addresses are stored once and fetched once", async () => {
  const storage = new Storage(true).install();
  const data = new Uint8Array(randomBytes(100_000));
  const server = await new FileServer(data).start();
  try {
    globalThis.fetch = nativeFetch;
    for (const name of ["a", "b", "a"])
      assert.deepEqual(await read(listed(`${server.url}?${name}`, data, name)), data);
    assert.deepEqual(names(storage, ".data"), [`edgewise/files/${digest(data)}.data`]);
    assert.equal(names(storage, ".json").length, 2);
    assert.equal(server.sent, data.length);
  } finally {
    server.close();
  }
});

test("a file of another version replaces the stored one", async () => {
  const storage = new Storage(true).install();
  const [old, now] = [new Uint8Array(randomBytes(1000)), new Uint8Array(randomBytes(2000))];
  for (const data of [old, now, now]) {
    let fetched = 0;
    globalThis.fetch = (async () => {
      fetched++;
      return new Response(data);
    }) as typeof fetch;
    const fresh = !names(storage, `${digest(data)}.data`).length;
    assert.deepEqual(await read(listed("https://hub.example/model.onnx", data)), data);
    assert.equal(fetched, fresh ? 1 : 0);
    assert.deepEqual(names(storage, ".data"), [`edgewise/files/${digest(data)}.data`]);
  }
});

test("a listed file with other contents is refused and not stored", async () => {
  const storage = new Storage(true).install();
  const data = new Uint8Array(randomBytes(1000));
  const wrong = data.slice();
  wrong[500]! ^= 1;
  globalThis.fetch = (async () => new Response(wrong)) as typeof fetch;
  await assert.rejects(
    read(listed("https://hub.example/model.onnx", data)),
    (e) => e instanceof ModelError && /SHA-256/.test(e.what),
  );
  assert.deepEqual([...names(storage, ".data"), ...names(storage, ".json")], []);
});

test("a visit continues what an earlier one has fetched, and fetches no byte twice", async () => {
  const data = new Uint8Array(randomBytes(3_000_000));
  for (const make of [
    (url: string) => listed(url, data),
    (url: string) => new KeptSource(url, { model: "m" }, assert.fail),
  ]) {
    const storage = new Storage(true).install();
    const server = await new FileServer(data, { cuts: 1, cutAfter: 1_000_000 }).start();
    globalThis.fetch = nativeFetch;
    try {
      let got = 0;
      for await (const chunk of make(server.url).stream()) {
        got += chunk.length;
        if (got === 1_000_000) break; // the tab is closed
      }
      assert.deepEqual(await read(make(server.url)), data);
      assert.deepEqual(server.ranges, ["", "bytes=1000000-"]);
      assert.equal(server.sent, data.length);
      assert.deepEqual(await read(make(server.url)), data);
      assert.equal(server.sent, data.length);
      assert.equal(names(storage, ".data").length, 1);
    } finally {
      server.close();
    }
  }
});

test("Cross-Origin Storage is read first, and receives what was fetched", async () => {
  const storage = new Storage(true).install();
  // in the form of the proposal's explainer
  const shared = new Map<string, Uint8Array>();
  const requests: unknown[] = [];
  const crossOriginStorage = {
    requestFileHandle: async (
      hash: { algorithm: string; value: string },
      options: { create?: boolean; origins?: string } = {},
    ) => {
      requests.push([hash.algorithm, options]);
      const { value } = hash;
      if (!options.create && !shared.has(value)) throw new DOMException("", "NotFoundError");
      return {
        getFile: async () => new File([shared.get(value) as BlobPart], ""),
        createWritable: async () => {
          let data = new Uint8Array(0);
          return {
            write: async (blob: Blob) => void (data = new Uint8Array(await blob.arrayBuffer())),
            close: async () => {
              if (digest(data) !== value) throw new DOMException("", "DataError");
              shared.set(value, data);
            },
          };
        },
      };
    },
  };
  const parts = { ...navigator, crossOriginStorage };
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: parts });
  const data = new Uint8Array(randomBytes(100_000));
  const server = await new FileServer(data).start();
  globalThis.fetch = nativeFetch;
  try {
    assert.deepEqual(await read(listed(server.url, data)), data);
    while (!shared.size) await new Promise((done) => setTimeout(done, 10));
    assert.deepEqual([...shared.keys()], [digest(data)]);
    assert.deepEqual(requests, [
      ["SHA-256", {}],
      ["SHA-256", { create: true, origins: "*" }],
    ]);
    storage.files.clear(); // another site
    assert.deepEqual(await read(listed(server.url, data)), data);
    assert.equal(server.sent, data.length);
    assert.deepEqual(names(storage, ".data"), []);
    // a file that needs authorization is not offered
    shared.clear();
    const secret = { headers: { Authorization: "Bearer abc" } };
    const options = { model: "m", known: known(data), integrity: digest(data) };
    await read(new KeptSource(server.url, { ...options, fetchOptions: secret }, assert.fail));
    assert.equal(requests.length, 4);
    assert.equal(shared.size, 0);
  } finally {
    server.close();
  }
});
