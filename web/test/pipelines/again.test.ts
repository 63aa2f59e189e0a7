import assert from "node:assert/strict";
import { test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import { onceMore } from "../../src/worker/pipelines/again.ts";
import type { Events } from "../../src/worker/pipelines/runner.ts";

/** A host whose GPU is lost, or was not; and what a call sends. */
function made(lost: boolean) {
  const sent: unknown[] = [];
  const events: Events = {
    streams: true,
    text: (piece, end) => sent.push([piece, end]),
    send: (name, value) => sent.push([name, value]),
  };
  const [gpu, other] = [{}, {}] as Device[];
  const host = {
    device: gpu!,
    moves: 0,
    async recover() {
      if (!lost) return false;
      this.moves++;
      this.device = other!;
      return true;
    },
  };
  return { host, events, sent };
}

const never = new AbortController().signal;

test("a call begins again after its GPU was lost, and what it sends does not", async () => {
  const { host, events, sent } = made(true);
  let calls = 0;
  const result = await onceMore(host, events, never, async (to) => {
    const { device } = host;
    to.send("progress", 0.25);
    if (calls++) to.text("a text", false);
    to.text("", true); // as `finally` does
    if (calls === 1) throw new Error("lost");
    to.send("progress", 0.5);
    return device;
  });
  assert.equal(result, host.device);
  assert.deepEqual([calls, host.moves], [2, 1]);
  assert.deepEqual(sent, [
    ["progress", 0.25],
    ["a text", false],
    ["progress", 0.5],
    ["", true],
  ]);
});

test("a call whose graph has moved begins again", async () => {
  const { host, events } = made(true);
  let calls = 0;
  const work = async () => {
    if (!calls++) {
      await host.recover();
      throw new Error("the decoder was lost as well");
    }
    return calls;
  };
  assert.equal(await onceMore(host, events, never, work), 2);
  assert.equal(host.moves, 1);
});

test("a call does not begin again if it sent text, was aborted, or lost no GPU", async () => {
  const aborted = AbortSignal.abort();
  for (const [lost, ending, name, moves] of [
    [true, never, "text", 1],
    [true, never, "segment", 1],
    [true, aborted, "", 0],
    [false, never, "", 0],
  ] as const) {
    const { host, events } = made(lost);
    let calls = 0;
    const work = async (to: Events) => {
      calls++;
      if (name === "text") to.text("a", false);
      else if (name) to.send(name, {});
      throw new Error("as if");
    };
    await assert.rejects(onceMore(host, events, ending, work), /as if/);
    assert.deepEqual([calls, host.moves], [1, moves], `${lost} ${name}`);
  }
});
