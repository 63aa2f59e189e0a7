// Streams of sound in the worker: those that fail, and the ports to what finds speech in them.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { TaskFeed } from "../../src/protocol/tasks.ts";
import { InputError } from "../../src/shared/errors.ts";
import type { TaskHost } from "../../src/worker/pipelines/host.ts";
import type { TaskStream } from "../../src/worker/pipelines/runner.ts";
import { samplesOf } from "../../src/worker/pipelines/seq2seq/speech/samples.ts";
import { feedStream, type Make, type Turn } from "../../src/worker/pipelines/sounds/streams.ts";

const never = new AbortController().signal;

/** A worker that hears: [what feeds a stream, turns that wait]. */
function worker(make: Make): (request: Partial<TaskFeed>) => Promise<unknown[]> {
  const host = { task: "automatic-speech-recognition" } as TaskHost;
  let last: Promise<unknown> = Promise.resolve();
  const turn: Turn = (work) => {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  };
  const nothing = { stream: 1, sampling_rate: 0, last: false, options: {} };
  return (request) => {
    const samples = new Float32Array(4);
    return feedStream(host, { ...nothing, samples, ...request }, make, turn, never);
  };
}

const stream = (feed: TaskStream["feed"]): TaskStream => ({
  sampling_rate: 16000,
  feed,
  end: async () => ["end"],
});

test("what is sent before it is known that a stream failed opens no other one", async () => {
  let made = 0;
  const feed = worker(async () => {
    made++;
    return stream(async () => {
      throw new InputError("it failed", "", "");
    });
  });
  const first = feed({ first: true });
  const second = feed({});
  await assert.rejects(first, /it failed/);
  assert.deepEqual(await second, []);
  for (let i = 0; i < 70; i++) assert.deepEqual(await feed({ last: i === 69 }), []);
  assert.equal(made, 1);
  await assert.rejects(feed({ first: true }), /it failed/); // there is room for further ones
});

test("samples that are not finite end a stream", async () => {
  const feed = worker(async () => stream(async (samples) => [samples.length]));
  assert.deepEqual(await feed({ first: true }), [4]);
  await assert.rejects(feed({ samples: Float32Array.of(0, NaN) }), /samples are not finite/);
  const sound = { name: "a", sampling_rate: 0, samples: Float32Array.of(0, Infinity) };
  assert.throws(() => samplesOf({} as TaskHost, sound, 16000, never), /a: samples are not finite/);
});

test("streams that end, fail or are too many close the port to what finds speech", async () => {
  const closed = (port: MessagePort) =>
    new Promise<string>((resolve) => {
      port.onmessage = () => undefined;
      (port as unknown as EventTarget).addEventListener("close", () => resolve("closed"));
    });
  const feed = worker(async ({ wrong }) => {
    if (wrong) throw new InputError("no option 'wrong'", "", "");
    return stream(async () => []);
  });
  const options = { wrong: true };
  for (const [i, request] of [{ last: true }, { options }].entries()) {
    const { port1, port2 } = new MessageChannel();
    const done = closed(port2);
    const found = feed({ stream: 100 + i, first: true, port: port1, ...request });
    await (i ? assert.rejects(found, /wrong/) : found);
    assert.equal(await done, "closed");
  }
  for (let i = 0; i < 64; i++) await feed({ stream: i, first: true });
  const { port1, port2 } = new MessageChannel();
  const done = closed(port2);
  await assert.rejects(feed({ stream: 64, first: true, port: port1 }), /64 streams/);
  assert.equal(await done, "closed");
});

test("what finds speech says why it cannot", async () => {
  const feed = worker(async () => {
    throw new InputError("its model takes no 16000 Hz", "", "");
  });
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise<{ error: { what: string } }>((resolve) => {
    port1.onmessage = ({ data }) => resolve(data);
  });
  port1.postMessage(new Float32Array(512));
  await assert.rejects(feed({ serve: port2 }), /16000/);
  assert.match((await answer).error.what, /16000/);
  port1.close();
});
