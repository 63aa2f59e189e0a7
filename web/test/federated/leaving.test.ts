// How a client's part ends: by leave, by its signal, and while its connection is lost.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { FederatedClient } from "../../src/extras/federated/client.ts";
import { FakeDatabase, FakeSocket, until } from "./fakes.ts";

let database: FakeDatabase;

beforeEach(() => {
  database = new FakeDatabase();
  FakeSocket.made = [];
  FakeSocket.reachable = true;
  const globals = { indexedDB: database.factory, WebSocket: FakeSocket, navigator: {} };
  for (const [name, value] of Object.entries(globals))
    Object.defineProperty(globalThis, name, { value, configurable: true });
});

afterEach(() => {
  assert.equal(database.open.size, 0, "the database is closed");
});

function joining(signal?: AbortSignal): Promise<FederatedClient<null>> {
  return FederatedClient.join("ws://x", {
    trainer: {
      shapes: async () => [["w", [2]]],
      load: async () => undefined,
      train: () => Promise.reject(new Error("there is nothing to train")),
    },
    data: null,
    ...(signal && { signal }),
  });
}

/** The nth connection, when its client has said hello. */
async function connection(n: number): Promise<FakeSocket> {
  await until(() => FakeSocket.made.length >= n, "there is no connection");
  await FakeSocket.made[n - 1]!.expect("hello");
  return FakeSocket.made[n - 1]!;
}

const stored = () => database.tables.get("clients")!.size;

test("a client says bye when its signal is aborted", async () => {
  const page = new AbortController();
  const joined = joining(page.signal);
  const socket = await connection(1);
  socket.say("welcome", { token: "t" });
  const client = await joined;
  page.abort();
  await socket.expect("bye");
  await client.done;
  await until(() => !stored() && !database.open.size, "its state is not removed");
});

test("a client says bye on a connection that was lost and made again", async () => {
  const joined = joining();
  const socket = await connection(1);
  socket.say("welcome", { token: "t" });
  const client = await joined;
  socket.close();
  const back = await connection(2);
  back.say("welcome", { token: "t" });
  await client.leave();
  await back.expect("bye");
});

test("a signal that is aborted before the answer leaves nothing to the next client", async () => {
  const before = joining();
  (await connection(1)).say("welcome", { token: "t" });
  FakeSocket.made[0]!.say("bye");
  await (await before).done;
  assert.equal(stored(), 1);

  const page = new AbortController();
  const joined = joining(page.signal);
  await connection(2);
  page.abort();
  await assert.rejects(joined, /the client has left/);
  assert.equal(stored(), 0);
  await assert.rejects(joining(page.signal), /the client has left/);
});

test("the signal of a client that has ended does not end the next one", async () => {
  const page = new AbortController();
  const joined = joining(page.signal);
  (await connection(1)).say("welcome", { token: "t" });
  FakeSocket.made[0]!.say("bye");
  await (await joined).done;

  const again = joining();
  (await connection(2)).say("welcome", { token: "u" });
  const client = await again;
  page.abort();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(stored(), 1);
  await client.leave();
});
