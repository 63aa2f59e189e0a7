// The end of an extension's port that runs the model, with messages that a web page's tab may send.
import assert from "node:assert/strict";
import test from "node:test";
import { serve } from "../../src/extras/extension/serve.ts";

type Listener<T> = (value: T) => void;

/** An event of the browser's API. */
function event<T>() {
  const listeners: Listener<T>[] = [];
  return {
    addListener: (one: Listener<T>) => void listeners.push(one),
    fire: (value: T) => {
      for (const one of listeners) one(value);
    },
  };
}

function port(id = "us") {
  const answers: { id?: number; ready?: true; result?: unknown; error?: { message: string } }[] =
    [];
  const [onMessage, onDisconnect] = [event<unknown>(), event<unknown>()];
  const postMessage = (message: (typeof answers)[number]) => void answers.push(message);
  return { name: "edgewise", sender: { id }, onMessage, onDisconnect, postMessage, answers };
}

const onConnect = event<unknown>();
Object.assign(globalThis, {
  chrome: { runtime: { id: "us", connect: () => undefined, onConnect } },
});
const waiting: (() => void)[] = [];
const signals: AbortSignal[] = [];
serve({
  echo: (x: never) => x,
  wait: (_: never, { signal }) => {
    signals.push(signal);
    return new Promise<void>((done) => waiting.push(done));
  },
});
const settled = () => new Promise((done) => setTimeout(done));

test("messages that are no calls are not heard", async () => {
  const one = port();
  onConnect.fire(one);
  const odd = [null, undefined, 5, "x", [], {}, { id: "1", method: "echo" }, { method: "echo" }];
  for (const message of [...odd, { id: 1, method: {} }, { id: 1, abort: "yes" }, { alive: true }])
    one.onMessage.fire(message);
  await settled();
  assert.deepEqual(one.answers, [{ ready: true }]);
  for (const method of ["constructor", "__proto__", "toString"])
    one.onMessage.fire({ id: 2, method, argument: 1 });
  await settled();
  assert.equal(one.answers.filter(({ error }) => error?.message.includes("no method")).length, 3);
  one.onMessage.fire({ id: 3, method: "echo", argument: "still here" });
  await settled();
  assert.deepEqual(one.answers.at(-1), { id: 3, result: "still here" });
});

test("a port has some calls at a time, each with its own number", async () => {
  const one = port();
  onConnect.fire(one);
  one.onMessage.fire({ id: 1, method: "wait" });
  one.onMessage.fire({ id: 1, method: "wait" });
  await settled();
  assert.match(one.answers.at(-1)!.error!.message, /number of its own/);
  for (let id = 2; id < 200; id++) one.onMessage.fire({ id, method: "wait" });
  await settled();
  assert.equal(waiting.length, 100);
  one.onDisconnect.fire(one);
  assert.ok(signals.every(({ aborted }) => aborted));
});

test("other extensions are not answered", () => {
  const one = port("another");
  onConnect.fire(one);
  assert.deepEqual(one.answers, []);
});
