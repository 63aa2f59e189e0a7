// The client of a page against a server that the test plays.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { FederatedClient } from "../../src/extras/federated/client.ts";
import { pack, Schema, sha256, type Values } from "../../src/extras/federated/codec.ts";
import type { FederatedOptions } from "../../src/extras/federated/options.ts";
import { CHUNK } from "../../src/logic/federated/tasks.ts";
import { FakeDatabase, FakeSocket, until } from "./fakes.ts";

const COUNT = 200_000; // more than 3 chunks in float32
const SHAPES: [string, number[]][] = [["w", [COUNT]]];
const WEIGHTS: Values = new Map([["w", new Float32Array(COUNT).fill(0.5)]]);
const FIELDS = { run: "run", round: 1 };

let database: FakeDatabase;
let schema: Schema;
let weights: Uint8Array<ArrayBuffer>;
let base: string;
let declined: string[];
let clients: FederatedClient<unknown>[];

beforeEach(async () => {
  database = new FakeDatabase();
  declined = [];
  clients = [];
  FakeSocket.made = [];
  FakeSocket.reachable = true;
  given("indexedDB", database.factory);
  given("WebSocket", FakeSocket);
  given("navigator", {});
  schema = await Schema.of(SHAPES);
  base = await schema.base(WEIGHTS);
  weights = (await pack(WEIGHTS, schema, "float32", { base, kind: "weights", run: "run" })).data;
});

afterEach(async () => {
  for (const client of clients) await client.leave();
  assert.equal(database.open.size, 0, "the database is closed");
});

function given(name: string, value: unknown): void {
  Object.defineProperty(globalThis, name, { value, configurable: true });
}

/** Trains by adding 1; `hold` keeps it from ending. */
function trainer(hold?: Promise<void>): FederatedOptions<null>["trainer"] {
  return {
    shapes: async () => SHAPES,
    load: async () => undefined,
    async train() {
      await hold;
      const values = new Map([["w", WEIGHTS.get("w")!.map((x) => x + 1)]]);
      return { values, examples: 3, steps: 5, metrics: { loss: 1 } };
    },
  };
}

async function join(
  options: Partial<FederatedOptions<null>> = {},
  welcome: Record<string, unknown> = {},
): Promise<[FederatedClient<null>, FakeSocket]> {
  const joining = FederatedClient.join("ws://x", {
    trainer: trainer(),
    data: null,
    onDecline: (reason) => declined.push(reason),
    ...options,
  });
  const socket = await socketOf(1, welcome);
  const client = await joining;
  clients.push(client as FederatedClient<unknown>);
  return [client, socket];
}

/** The nth connection, welcomed. */
async function socketOf(n: number, welcome: Record<string, unknown> = {}): Promise<FakeSocket> {
  await until(() => FakeSocket.made.length >= n, "there is no connection");
  const socket = FakeSocket.made[n - 1]!;
  await socket.expect("hello");
  socket.say("welcome", { token: "t", ...welcome });
  return socket;
}

async function task(more: Record<string, unknown> = {}) {
  const file = { kind: "weights", codec: "float32", bytes: weights.length };
  return {
    ...FIELDS,
    base,
    file: { ...file, sha256: await sha256(weights) },
    codec: "float32",
    config: {},
    seed: 1,
    deadline: 100,
    cohort: 5,
    ...more,
  };
}

function chunks(socket: FakeSocket, begin = 0, end = weights.length): void {
  for (let at = begin; at < end; at += CHUNK) socket.bytes(weights.subarray(at, at + CHUNK));
}

/** Plays a task up to the announcement of the update. */
async function update(socket: FakeSocket, more: Record<string, unknown> = {}) {
  socket.say("task", await task(more));
  await socket.expect("fetch");
  chunks(socket);
  return await socket.expect("update");
}

/** Takes an update to the end. */
async function take(socket: FakeSocket, sha: unknown, from = 0, bytes = 800_000): Promise<number> {
  socket.say("ack", { sha256: sha, offset: from });
  let at = from;
  while (at < bytes) {
    const chunk = await socket.next();
    if (!(chunk instanceof Uint8Array)) continue;
    socket.say("ack", { sha256: sha, offset: (at += chunk.length) });
  }
  return at;
}

test("a task is fetched, trained and sent; the ledger has it", async () => {
  const [client, socket] = await join();
  const told = await update(socket);
  await take(socket, told.sha256, 0, told.bytes as number);
  socket.say("accepted", { sha256: told.sha256 });
  const [entry] = await client.ledger();
  assert.deepEqual(
    [entry!.sha256, entry!.bytes, entry!.sent, entry!.steps, entry!.examples],
    [told.sha256, told.bytes, told.bytes, 5, 3],
  );
});

test("a page sees what it sends, and gets the weights after the last round", async () => {
  const seen: string[] = [];
  const loaded: number[] = [];
  const [client, socket] = await join({
    trainer: { ...trainer(), load: async (w) => void loaded.push(w.get("w")![0]!) },
    onSend: ({ sha256, change, base }) =>
      seen.push(`${sha256} ${change!.get("w")![0]} ${base.get("w")![0]}`),
    onLast: (w) => seen.push(`last ${w.get("w")![0]}`),
  });
  const told = await update(socket);
  assert.deepEqual(seen, [`${told.sha256} 1 0.5`]);
  // the round has ended without the client: it has the weights already
  socket.say("weights", { run: "run", round: 2, base });
  assert.equal((await socket.expect("have")).base, base);
  socket.say("bye");
  await client.done;
  assert.deepEqual([seen[1], loaded], ["last 0.5", [0.5, 0.5]]);
});

const KEY = Buffer.alloc(32, 1).toString("base64url");
for (const [terms, match] of [
  [{ secureAggregation: "required", authority: KEY }, /require secure aggregation/],
  [{ maxEpsilon: 1e9 }, /require noise of the clients/],
] as const)
  test(`a server's word does not meet ${JSON.stringify(terms)}`, async () => {
    const says = { terms: { secureAggregation: true, privacy: { epsilon: 0.1 } } };
    const [, socket] = await join({ terms }, says);
    socket.say("task", await task({ privacy: { epsilon: 0.1 } }));
    assert.equal((await socket.expect("decline")).reason, "terms");
    assert.match(declined[0]!, match);
  });

test("secure aggregation is not required without who certifies members", async () => {
  const terms = { secureAggregation: "required" } as const;
  const joining = FederatedClient.join("ws://x", { trainer: trainer(), data: null, terms });
  await assert.rejects(joining, /server could invent them/);
  for (const authority of ["x", `${KEY}A`, `${KEY.slice(0, -1)}F`]) {
    const options = { trainer: trainer(), data: null, terms: { authority } };
    await assert.rejects(FederatedClient.join("ws://x", options), /base64url of 32 bytes/);
  }
});

test("a page clips its update for privacy, and notes what the server says", async () => {
  const terms = { maxEpsilon: 2, noiseBy: "server" } as const;
  const [client, socket] = await join({ terms });
  const privacy = { epsilon: 1.5, clip: 2 };
  // what earlier updates have rounded away leaves, too
  const { state } = client as unknown as { state: { left: Values } };
  state.left.set("w", new Float32Array(200_000).fill(5));
  const told = await update(socket, { privacy });
  await take(socket, told.sha256, 0, told.bytes as number);
  socket.say("accepted", { sha256: told.sha256 });
  const [entry] = await client.ledger();
  assert.ok(Math.abs(entry!.norm - 2) < 1e-5); // of 200,000 ones
  assert.equal(entry!.epsilon, 1.5);
  socket.say("task", await task({ round: 2, privacy: { epsilon: 2.5, clip: 2 } }));
  assert.equal((await socket.expect("decline")).reason, "terms");
});

test("a page that cannot train as the server asks says so", async () => {
  const [, socket] = await join();
  for (const [n, more] of [{ config: { "proximal-mu": 0.1 } }, { part: "B" }].entries()) {
    socket.say("task", await task({ round: n + 1, ...more }));
    if (n === 0) {
      await socket.expect("fetch");
      chunks(socket);
    }
    assert.equal((await socket.expect("decline")).reason, "training failed");
  }
  assert.match(declined[0]!, /proximal-mu.: this client does not train with it/);
  assert.match(declined[1]!, /'B' is not a part of what is trained/); // it has no matrices B
});

test("a round of B alone: half the update, and A as it was", async () => {
  const zeros = () => new Float32Array(4).fill(0.5);
  const before: Values = new Map(["a.lora_A", "a.lora_B"].map((n) => [n, zeros()]));
  const own = await Schema.of([...before.keys()].map((n) => [n, [2, 2]]));
  const whole = await pack(before, own, "float32", {
    base: await own.base(before),
    kind: "weights",
    run: "run",
  });
  const seen: unknown[] = [];
  const [, socket] = await join({
    trainer: {
      settings: ["part"],
      shapes: async () => [...own.shapes],
      load: async () => undefined,
      async train(_, { config }) {
        seen.push(config.part);
        const values = new Map([...before].map(([n, x]) => [n, x.map((v) => v + 2)]));
        return { values, examples: 1, steps: 1, metrics: {} };
      },
    },
    onSend: ({ change }) => seen.push([...change!.keys()]),
  });
  const file = { kind: "weights", bytes: whole.data.length, sha256: await sha256(whole.data) };
  const fields = { base: await own.base(before), codec: "float32", part: "B" };
  socket.say("task", await task({ ...fields, file }));
  await socket.expect("fetch");
  socket.bytes(whole.data);
  await socket.expect("update");
  assert.deepEqual(seen, ["B", ["a.lora_B"]]);
});

test("an audit trains on its own texts, and other texts are another update", async () => {
  const seen: unknown[] = [];
  const own = trainer();
  const [client, socket] = await join({
    trainer: {
      ...own,
      settings: ["audit"],
      train(data, told) {
        seen.push(data);
        return own.train(data, told);
      },
    },
    terms: { secureAggregation: "required", authority: KEY },
  });
  const audit = (text: unknown) => ({ texts: [text], batch: 1, sequence: 8 });
  const first = await update(socket, { audit: audit("one") });
  socket.close();
  const second = await socketOf(2);
  second.say("task", await task({ audit: audit("one") })); // as before the connection was lost
  assert.equal((await second.expect("update")).sha256, first.sha256);
  second.say("rejected", { sha256: first.sha256 });
  second.say("task", await task({ audit: audit("two") }));
  await second.expect("update");
  assert.deepEqual(seen, [["one"], ["two"]]);
  second.say("rejected", { sha256: first.sha256 });
  for (const more of [{}, { audit: audit(3) }, { audit: {}, config: { audit: audit("x") } }]) {
    second.say("task", await task(more));
    await second.expect("decline");
  }
  assert.match(declined[0]!, /require secure aggregation/);
  assert.match(declined.slice(1).join(), /it has no texts.*its field 'audit' is missing or wrong/);
  assert.equal(seen.length, 2);
  assert.equal((await client.ledger()).length, 1); // the trainer's updates are equal
});

test("what training keeps is that of the last update of the run that counted", async () => {
  const seen: unknown[] = [];
  const own = trainer();
  const [client, first] = await join({
    trainer: {
      ...own,
      settings: ["audit", "keep-optimizer"],
      async train(data, told) {
        seen.push(told.kept?.[0]);
        return { ...(await own.train(data, told)), kept: Uint8Array.of(told.round) };
      },
    },
  });
  const audit = { texts: ["one"], batch: 1, sequence: 8 };
  const rounds = [{ round: 1 }, { round: 2, audit }, { round: 3 }, { round: 4 }, { run: "other" }];
  let [socket, connections] = [first, 1];
  for (const more of rounds) {
    socket.say("task", await task({ ...more, config: { "keep-optimizer": 1 } }));
    if (connections === 1) {
      await socket.expect("fetch");
      chunks(socket);
    }
    const { sha256: sha } = await socket.expect("update");
    socket.say(more.round === 3 ? "rejected" : "accepted", { sha256: sha });
    socket.close(); // the state of the next connection is the stored one
    socket = await socketOf(++connections);
  }
  assert.deepEqual(seen, [undefined, 1, 1, 1, undefined]);
  await client.leave();
});

test("texts of errors are not told", async () => {
  const failing = { ...trainer(), train: () => Promise.reject(new Error("a secret text")) };
  const [, socket] = await join({ trainer: failing });
  socket.say("task", await task());
  await socket.expect("fetch");
  chunks(socket);
  assert.equal((await socket.expect("decline")).reason, "training failed");
  assert.deepEqual(declined, ["a secret text"]);
});

for (const answer of ["refused", "task", "bye"])
  test(`a download ends with '${answer}'`, async () => {
    const [client, socket] = await join();
    socket.say("task", await task());
    await socket.expect("fetch");
    chunks(socket, 0, CHUNK);
    if (answer === "bye") {
      socket.say("bye");
      return await client.done;
    }
    if (answer === "refused") socket.say("refused", { code: "stale", reason: "too late" });
    socket.say("task", await task({ round: 2 }));
    socket.bytes(weights.subarray(0, CHUNK)); // of the first task: dropped
    const again = await socket.expect("fetch");
    assert.deepEqual([again.round, again.offset], [2, CHUNK]);
    chunks(socket, CHUNK);
    assert.equal((await socket.expect("update")).round, 2);
  });

test("a download ends at the deadline", async () => {
  const [, socket] = await join();
  socket.say("task", await task({ deadline: 1 }));
  await socket.expect("fetch");
  await new Promise((resolve) => setTimeout(resolve, 1100));
  socket.say("task", await task({ round: 2 }));
  assert.equal((await socket.expect("fetch")).round, 2);
});

for (const [what, more] of Object.entries({
  "a size above the schema's": { bytes: 1e12 },
  "a size of 0": { bytes: 0 },
  "no size": { bytes: "x" },
  "an unknown kind": { kind: "x" },
}))
  test(`a file with ${what} is not fetched`, async () => {
    const [, socket] = await join();
    const good = await task();
    socket.say("task", { ...good, file: { ...good.file, ...more } });
    assert.equal((await socket.expect("decline")).reason, "training failed");
    assert.ok(!socket.sent.some((m) => !(m instanceof Uint8Array) && m.kind === "fetch"));
  });

for (const offset of [-1e300, 0.5, "x", 1e9])
  test(`an acknowledged offset of ${offset} ends the sending`, async () => {
    const [, socket] = await join();
    const told = await update(socket);
    socket.say("ack", { sha256: told.sha256, offset });
    await socket.expect("decline");
    assert.match(declined[0]!, /do not exist/);
  });

test("a server that floods a client in training is left", async () => {
  let end!: () => void;
  const [, socket] = await join({ trainer: trainer(new Promise<void>((r) => (end = r))) });
  socket.say("task", await task());
  await socket.expect("fetch");
  chunks(socket);
  await until(() => database.tables.get("clients")!.size, "it is not trained");
  for (let k = 0; k < 100; k++) socket.bytes(new Uint8Array(CHUNK)); // dropped
  assert.equal(socket.readyState, 1);
  for (let k = 0; k < 100; k++) socket.say("result", { round: k });
  assert.equal(socket.readyState, 3);
  end();
  await socketOf(2);
});

for (const bad of ["x".repeat((64 << 10) + 1), "[1]"])
  test(`a message of ${bad.length} characters that is none ends the connection`, async () => {
    const [, socket] = await join();
    socket.onmessage!({ data: bad });
    assert.equal(socket.readyState, 3);
  });

test("leaving while the connection is lost ends soon, and sends nothing", async () => {
  const [client, socket] = await join();
  await update(socket);
  FakeSocket.reachable = false;
  socket.close();
  await until(() => FakeSocket.made.length > 1, "it does not come back");
  FakeSocket.reachable = true;
  await client.leave();
  await client.done;
  for (const later of FakeSocket.made.slice(1)) assert.deepEqual(later.sent, []);
  assert.equal(database.tables.get("clients")!.size, 0);
  assert.equal(database.ledger().length, 1);
});

test("a pause does not throw away what was trained", async () => {
  let end!: () => void;
  const [client, socket] = await join({ trainer: trainer(new Promise<void>((r) => (end = r))) });
  socket.say("task", await task());
  await socket.expect("fetch");
  chunks(socket);
  client.pause();
  await socket.expect("state");
  end();
  await socket.expect("update");
  socket.say("rejected", { sha256: database.ledger()[0]!.sha256 });
  socket.say("task", await task({ round: 2 }));
  assert.equal((await socket.expect("decline")).reason, "when");
});

test("a finished update is not sent over a metered connection", async () => {
  let end!: () => void;
  const hold = new Promise<void>((r) => (end = r));
  const [, socket] = await join({ trainer: trainer(hold), when: { unmetered: true } });
  socket.say("task", await task());
  await socket.expect("fetch");
  chunks(socket);
  given("navigator", { connection: { type: "cellular" } });
  end();
  assert.equal((await socket.expect("decline")).reason, "when");
});

test("bytes of a day are those that left, also of repeated sends", async () => {
  const size = (await pack(WEIGHTS, schema, "float32", {})).data.length + 200;
  const [, first] = await join({ terms: { maxBytesPerDay: size * 1.5 } });
  const told = await update(first);
  const bytes = told.bytes as number;
  first.say("ack", { sha256: told.sha256, offset: 0 });
  await first.next();
  await until(() => database.ledger()[0]!.sent === bytes, "it is not sent");
  first.close();
  // the server has a third of it: the rest is sent again
  const second = await socketOf(2);
  second.say("task", await task({ file: undefined }));
  await second.expect("update");
  await take(second, told.sha256, 2 * CHUNK, bytes);
  assert.equal(database.ledger()[0]!.sent, 2 * bytes - 2 * CHUNK);
  second.close();
  // the server has lost it: all of it would be too much
  const third = await socketOf(3);
  third.say("task", await task({ file: undefined }));
  await third.expect("update");
  third.say("ack", { sha256: told.sha256, offset: 0 });
  assert.equal((await third.expect("decline")).reason, "terms");
  assert.equal(database.ledger().length, 1);
});

test("the same bytes for another server are in the ledger, too", async () => {
  const [client, first] = await join();
  const told = await update(first);
  await take(first, told.sha256, 0, told.bytes as number);
  const joining = FederatedClient.join("ws://y", { trainer: trainer(), data: null });
  const second = await socketOf(2);
  clients.push((await joining) as FederatedClient<unknown>);
  const again = await update(second);
  assert.equal(again.sha256, told.sha256);
  await take(second, again.sha256, 0, again.bytes as number);
  const entries = (await client.ledger()).map((e) => [e.url, e.sent]);
  assert.deepEqual(entries, [
    ["ws://x", told.bytes],
    ["ws://y", told.bytes],
  ]);
});

test("an update whose answer was lost is known from the welcome", async () => {
  const [, socket] = await join();
  const told = await update(socket, { codec: "int4" });
  const state = () => [...database.tables.get("clients")!.values()][0] as { left: Values };
  assert.equal(state().left.size, 0);
  socket.close();
  await socketOf(2, { accepted: [told.sha256] });
  await until(() => state().left.size === 1, "what was rounded away is lost");
});

test("a server that cannot be reached any more ends join", async () => {
  const joining = FederatedClient.join("ws://x", { trainer: trainer(), data: null });
  await until(() => FakeSocket.made.length, "there is no connection");
  await FakeSocket.made[0]!.expect("hello");
  FakeSocket.made[0]!.close();
  await assert.rejects(joining, /connection was lost/);
});

test("a task that is longer than the terms allow is declined", async () => {
  const stopped = trainer();
  stopped.train = async (_, { signal }) => {
    await until(() => signal.aborted, "it is not stopped");
    throw new Error("stopped");
  };
  const [, socket] = await join({ trainer: stopped, terms: { maxSeconds: 0.5 } });
  socket.say("task", await task({ deadline: 1e8 }));
  await socket.expect("fetch");
  chunks(socket);
  assert.equal((await socket.expect("decline")).reason, "too long");
});
