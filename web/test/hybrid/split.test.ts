// A model in two parts, of which the test plays the second one.

import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import test, { after, before } from "node:test";
import { HybridError } from "../../src/extras/hybrid/relay.ts";
import { type SplitOptions, splitSession } from "../../src/extras/split/session.ts";
import { packTensors, type TensorLike, unpackTensors } from "../../src/extras/split/wire.ts";
import { InputError, ModelError } from "../../src/shared/errors.ts";

class Tensor implements TensorLike {
  constructor(
    readonly type: string,
    readonly data: Float32Array,
    readonly dims: readonly number[],
  ) {}
}

const of = (...values: number[]) =>
  new Tensor("float32", Float32Array.from(values), [values.length]);
let got: Uint8Array<ArrayBuffer>;
let answer: (response: ServerResponse) => void;
let rest = "";
const server = createServer(async (request, response) => {
  const pieces: Uint8Array[] = [];
  for await (const piece of request) pieces.push(piece);
  got = new Uint8Array(await new Blob(pieces as BlobPart[]).arrayBuffer());
  answer(response);
});

before(async () => {
  await new Promise<void>((done) => server.listen(0, "localhost", done));
  rest = `http://localhost:${(server.address() as AddressInfo).port}/v1/split/m`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

function made(more: Partial<SplitOptions<Tensor>> = {}) {
  const first = {
    inputNames: ["x"],
    run: async ({ x, ...others }: Record<string, Tensor>) => {
      assert.deepEqual(others, {}, "inputs of the second part alone");
      return { hidden: of(...x!.data.map((v) => v * 2)), early: of(7) };
    },
  };
  return splitSession<Tensor>({ first, rest, tensors: ["hidden", "y"], Tensor, ...more });
}

const feeds = () => ({ x: of(1, 2), y: of(5) });

test("what is named leaves, and the outputs of both parts come back", async () => {
  answer = (response) => response.end(packTensors({ out: of(3, 4) }));
  const session = made({ token: "key" });
  const outputs = await session.run(feeds());
  assert.deepEqual(outputs, { early: of(7), out: of(3, 4) });
  const sent = await unpackTensors(got, "");
  assert.deepEqual([...sent.keys()].sort(), ["hidden", "y"]);
  assert.deepEqual([...sent.get("hidden")!.data], [2, 4]);
  assert.deepEqual([session.ledger().length, session.ledger()[0]!.bytes], [1, got.length]);
});

test("private runs leave nothing", async () => {
  answer = () => assert.fail("it was asked");
  const session = made();
  await assert.rejects(session.run(feeds(), { private: true }), InputError);
  const whole = { run: async () => ({ out: of(9) }) };
  const own = made({ whole: async () => whole });
  assert.deepEqual(await own.run(feeds(), { private: true }), { out: of(9) });
  const wrong = made({ whole, policy: () => ({ where: "split", why: [] }) });
  await assert.rejects(wrong.run(feeds(), { private: true }), InputError);
  await assert.rejects(own.run(feeds(), { private: 1 as never }), InputError);
  const misnamed = made({ whole, tensors: ["hiden"] });
  await assert.rejects(misnamed.run(feeds()), /no tensor 'hiden'/);
  for (const one of [session, own, wrong]) assert.deepEqual(one.ledger(), []);
});

for (const [what, respond, words] of [
  ["refuses", (r) => r.writeHead(400).end('{"error": {"message": "no"}}'), /\(400\): no/],
  ["sends too much", (r) => r.end(Buffer.alloc(3000)), /more than 2000 bytes/],
  ["sends no file", (r) => r.end(Buffer.alloc(100, 255)), /header claims/],
  ["never answers", () => undefined, /sent nothing for 0.2 s/],
  ["stops", (r) => r.writeHead(200).write("x"), /sent nothing for 0.2 s/],
  ["breaks off", (r) => r.writeHead(200, { "Content-Length": 9 }).destroy(), /terminated|failed/],
] as [string, (r: ServerResponse) => void, RegExp][])
  test(`a server that ${what}`, async () => {
    answer = respond;
    const error = await made({ maxBytes: 2000, stall: 200 })
      .run(feeds())
      .then(
        () => assert.fail(),
        (e: unknown) => e as HybridError,
      );
    assert.ok(error instanceof HybridError);
    assert.match(error.message, words);
    const session = made({
      maxBytes: 2000,
      stall: 200,
      whole: async () => ({ run: async () => ({ out: of(9) }) }),
    });
    assert.deepEqual(await session.run(feeds()), { out: of(9) });
    assert.match(session.last!.switched!, words);
  });

test("tensors of all types, and files that are none", async () => {
  const tensors = {
    a: { type: "int64", dims: [2], data: BigInt64Array.of(-1n, 2n ** 62n) },
    b: { type: "bool", dims: [3, 1], data: Uint8Array.of(0, 1, 1) },
    c: { type: "float16", dims: [], data: Uint16Array.of(0x3c00) },
    d: { type: "float32", dims: [0, 4], data: new Float32Array() },
    e: { type: "float64", dims: [1], data: Float64Array.of(0.1) },
  };
  const file = packTensors(tensors);
  assert.deepEqual(Object.fromEntries(await unpackTensors(file, "")), tensors);
  for (let n = 0; n < file.length; n += 7)
    await assert.rejects(unpackTensors(file.slice(0, n), ""), ModelError);
  const strings = { s: { type: "string", dims: [1], data: ["a"] } };
  assert.throws(() => packTensors(strings), InputError);
});
