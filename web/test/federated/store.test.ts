// What counts of an update, and what was kept of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  countedBefore,
  countedBy,
  type Finished,
  keep,
  keptOf,
  type State,
} from "../../src/extras/federated/store.ts";

const made = await keep("r", Uint8Array.of(1, 2, 3));

function state(secure: boolean): State {
  const finished = { key: `r 4 base${secure ? " group" : ""}`, sha256: "s", kept: made };
  const secrets = { seed: new Uint8Array(32), agreed: {} };
  const left = new Map([["w", new Float32Array(1)]]);
  const whole = { ...finished, left, ...(secure && { secure: secrets }) } as unknown as Finished;
  return { left: new Map(), finished: whole } as unknown as State;
}

test("a masked update counts when its group has a sum, others when they are accepted", () => {
  const result = { kind: "result", run: "r", round: 4, counted: true };
  const accepted = { kind: "accepted", sha256: "s" };
  for (const [secure, message, expected] of [
    [false, accepted, true],
    [false, { ...accepted, sha256: "t" }, false],
    [false, result, false],
    [true, accepted, false],
    [true, result, true],
    [true, { ...result, counted: false }, false],
    [true, { ...result, round: 3 }, false],
    [true, { ...result, run: "" }, false],
    [true, { ...result, kind: "task" }, false],
  ] as const) {
    const own = state(secure);
    assert.equal(countedBy(message, own), expected);
    assert.equal(own.kept, expected ? made : undefined);
    assert.equal(own.left.size, Number(expected));
  }
  for (const [secure, fields, known] of [
    [false, { accepted: ["t", "s"] }, true],
    [false, { accepted: "s", counted: ["r", 4] }, false],
    [true, { accepted: ["s"], counted: null }, false],
    [true, { accepted: ["s"], counted: ["r", 3] }, false],
    [true, { counted: ["r", 4] }, true],
  ] as const) {
    const own = state(secure);
    countedBefore({ kind: "welcome", ...fields }, own);
    assert.equal(own.kept !== undefined, known);
  }
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
