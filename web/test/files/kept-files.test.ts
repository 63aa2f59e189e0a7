import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { PIECE } from "../../src/gen/manifest.ts";
import { StorageError } from "../../src/shared/errors.ts";
import { KeptSource } from "../../src/worker/files/kept-source.ts";
import { PieceSums } from "../../src/worker/files/kept-sums.ts";
import { Storage } from "../common/storage.ts";

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
    for await (const chunk of new KeptSource(url, {}, assert.fail).stream())
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
