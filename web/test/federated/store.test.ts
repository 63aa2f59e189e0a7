// What counts of an update, and what was kept of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  counted,
  type Finished,
  keep,
  keptOf,
  type State,
  Store,
} from "../../src/extras/federated/store.ts";
import { FakeDatabase } from "./fakes.ts";

const made = await keep("r", Uint8Array.of(1, 2, 3));

test("an update that counts leaves what it has rounded away, and what training keeps", () => {
  const left = new Map([["w", new Float32Array(1)]]);
  const own = { left: new Map(), finished: { left, kept: made } } as unknown as State;
  counted(own);
  assert.deepEqual([own.left, own.kept], [left, made]);
  own.finished = { left } as unknown as Finished;
  counted(own);
  assert.equal(own.kept, made);
});

test("states of older versions are read", async () => {
  const database = new FakeDatabase();
  const given = { value: database.factory, configurable: true };
  Object.defineProperty(globalThis, "indexedDB", given);
  const store = await Store.open("one");
  const old = { token: "t", schema: "s", values: new Map(), left: new Map(), finished: undefined };
  await store.write(old as unknown as State);
  const found = await store.read("s");
  assert.deepEqual([found.token, found.have, found.finished, found.summed], ["t", null, null, {}]);
  await store.write({ ...old, finished: { key: "k" } } as unknown as State);
  assert.equal((await store.read("s")).finished!.secure, null);
  const other = await store.read("other");
  assert.deepEqual([other.token, other.schema, other.finished], [null, "other", null]);
});

test("what was kept is used if it is whole", async (t) => {
  const told = t.mock.method(console, "warn", () => undefined);
  const with_ = (kept: unknown): State => ({ kept }) as State;
  assert.deepEqual(await keptOf(with_(made), "r"), made.data);
  assert.equal(await keptOf(with_(made), "other"), undefined);
  assert.equal(await keptOf(with_(undefined), "r"), undefined);
  assert.equal(told.mock.callCount(), 0);
  const damaged = { ...made, data: Uint8Array.of(1, 2, 4) };
  assert.equal(await keptOf(with_(damaged), "r"), undefined);
  assert.match(String(told.mock.calls[0]!.arguments[0]), /stored optimizer is damaged.*new one/);
});
