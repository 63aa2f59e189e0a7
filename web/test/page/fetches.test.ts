import assert from "node:assert/strict";
import { test } from "node:test";
import { fetchesAndOptions } from "../../src/page/inference/fetches.ts";
import { InferenceSession } from "../../src/page/inference/session.ts";
import { TimeLimit } from "../../src/page/inference/time-limit.ts";
import { Tensor } from "../../src/page/tensor.ts";
import { InputError } from "../../src/shared/errors.ts";

const NAMES = ["y", "z"];
const resolve = (fetches?: unknown, options?: unknown) =>
  fetchesAndOptions(NAMES, fetches as object, options as object, "run");

test("the second argument of run is classified as in onnxruntime-common", () => {
  const options = { seed: 1 };
  const tensor = new Tensor("float32", [1]);
  for (const [fetches, given, expected] of [
    [undefined, undefined, [NAMES, {}]],
    [undefined, options, [NAMES, options]],
    [options, undefined, [NAMES, options]],
    [["z"], undefined, [["z"], {}]],
    [["z", "y"], options, [["z", "y"], options]],
    [{ z: null }, undefined, [["z"], {}]],
    [{ z: null, y: tensor }, options, [["z", "y"], options]],
    [{ z: null, seed: 2 }, options, [["z"], options]],
    // values other than null and tensors do not make an object fetches
    [{ z: 1 }, undefined, [NAMES, { z: 1 }]],
    [{ z: undefined }, undefined, [NAMES, { z: undefined }]],
    [Object.create({ z: null }), undefined, [NAMES, {}]],
  ] as const) {
    const found = resolve(fetches, given);
    assert.deepEqual(found.outputs, expected[0]);
    assert.deepEqual({ ...found.options }, expected[1]);
  }
});

test("arguments of other types are rejected", () => {
  const tensor = new Tensor("float32", [1]);
  for (const fetches of [null, "y", 3, tensor, [], ["x"], [1], { other: null }])
    assert.throws(() => resolve(fetches), InputError, JSON.stringify(fetches));
  for (const options of [null, "seed", 3])
    assert.throws(() => resolve(["y"], options), InputError, String(options));
});

/** A session whose worker answers with the request that it received. */
function session(): { session: InferenceSession; requests: Record<string, unknown>[] } {
  const requests: Record<string, unknown>[] = [];
  const client = {
    alive: true,
    end: () => undefined,
    async call(_: string, request: { outputs: string[] }, { signal }: { signal?: AbortSignal }) {
      requests.push({ ...request, signal });
      const values = request.outputs.map(() => ({
        type: "float32",
        dims: [1],
        data: new Uint8Array(4),
      }));
      return { values, spare: [] };
    },
  };
  const info = { inputs: [], outputs: NAMES.map((name) => ({ name, type: "tensor" })) };
  const made = Reflect.construct(InferenceSession, [
    client,
    info,
    undefined,
    undefined,
    true,
    new TimeLimit(undefined),
  ]);
  return { session: made as InferenceSession, requests };
}

test("run(feeds, options) computes all outputs with these options", async () => {
  const { session: s, requests } = session();
  const { signal } = new AbortController();
  assert.deepEqual(Object.keys(await s.run({}, { signal, seed: 5, tag: "x" })), NAMES);
  assert.deepEqual(Object.keys(await s.run({}, { z: null }, { seed: 6 })), ["z"]);
  assert.deepEqual(Object.keys(await s.run({}, ["y"])), ["y"]);
  assert.deepEqual(
    requests.map((r) => [r.outputs, r.seed, r.signal]),
    [
      [NAMES, 5n, signal],
      [["z"], 6n, undefined],
      [["y"], undefined, undefined],
    ],
  );
  await assert.rejects(s.run({}, "y" as never), InputError);
});
