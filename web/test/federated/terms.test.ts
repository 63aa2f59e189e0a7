import assert from "node:assert/strict";
import { test } from "node:test";
import { isTime, objection, type Terms } from "../../src/extras/federated/terms.ts";

// what a server says about its rounds meets no terms, unless they trust it
const task = { kind: "task", cohort: 5, privacy: { epsilon: 4 }, secureAggregation: true };
const secure = { ...task, secure: { noise: 0 } };
const noised = { ...task, secure: { noise: 2 } };

for (const [terms, sent, bytes, expected] of [
  [{}, 0, 1e12, undefined],
  [{ minimumCohort: 5 }, 0, 0, undefined],
  [{ minimumCohort: 6 }, 0, 0, /for 5 clients, the terms say 6/],
  [{ secureAggregation: "optional" }, 0, 0, undefined],
  [{ secureAggregation: "required" }, 0, 0, /secure aggregation, which the task does not have/],
  [{ maxEpsilon: 1e9 }, 0, 0, /noise of the clients, which the task does not have/],
  [{ maxEpsilon: 4, noiseBy: "server" }, 0, 0, undefined],
  [{ maxEpsilon: 3.9, noiseBy: "server" }, 0, 0, /spends epsilon 4, the terms allow 3.9/],
  [{ maxBytesPerDay: 100 }, 60, 40, undefined],
  [{ maxBytesPerDay: 100 }, 60, 41, /100 bytes a day/],
] as [Terms, number, number, RegExp | undefined][])
  test(`terms ${JSON.stringify(terms)}, ${sent} + ${bytes} bytes`, () => {
    const reason = objection(terms, task, sent, bytes);
    if (expected) assert.match(reason ?? "", expected);
    else assert.equal(reason, undefined);
  });

test("tasks with secure sums", () => {
  const required = { secureAggregation: "required" } as const;
  assert.equal(objection(required, secure, 0, 0), undefined);
  assert.match(objection({ maxEpsilon: 9 }, secure, 0, 0) ?? "", /noise of the clients/);
  assert.equal(objection({ maxEpsilon: 9 }, noised, 0, 0), undefined);
});

test("a task without a cohort meets no terms", () => {
  assert.match(objection({}, { kind: "task" }, 0, 0) ?? "", /the task is for NaN clients/);
});

test("conditions that the browser cannot tell are met; the others are read", async () => {
  const all = { charging: true, unmetered: true, visible: true };
  const given = (signals: object) =>
    Object.defineProperty(globalThis, "navigator", { value: signals, configurable: true });
  const before = globalThis.navigator;
  try {
    for (const [signals, expected] of [
      [{}, true],
      [{ connection: { type: "wifi" } }, true],
      [{ connection: { type: "cellular" } }, false],
      [{ connection: { saveData: true } }, false],
      [{ getBattery: async () => ({ charging: true }) }, true],
      [{ getBattery: async () => ({ charging: false }) }, false],
      [{ getBattery: () => Promise.reject(new Error("not allowed")) }, true],
    ] as const) {
      given(signals);
      assert.equal(await isTime(all), expected, JSON.stringify(signals));
      assert.equal(await isTime({}), true);
    }
  } finally {
    given(before ?? {});
  }
});
