import assert from "node:assert/strict";
import { test } from "node:test";
import { isTime, objection, type Terms } from "../../src/federated/terms.ts";

const task = { kind: "task", cohort: 5, privacy: { epsilon: 4 } };

for (const [terms, offered, sent, bytes, expected] of [
  [{}, {}, 0, 1e12, undefined],
  [{ minimumCohort: 5 }, {}, 0, 0, undefined],
  [{ minimumCohort: 6 }, {}, 0, 0, /for 5 clients, the terms say 6/],
  [{ secureAggregation: "optional" }, {}, 0, 0, undefined],
  [{ secureAggregation: "required" }, { secureAggregation: true }, 0, 0, undefined],
  [{ secureAggregation: "required" }, { secureAggregation: "yes" }, 0, 0, /secure aggregation/],
  [{ maxEpsilon: 4 }, {}, 0, 0, undefined],
  [{ maxEpsilon: 3.9 }, {}, 0, 0, /epsilon up to 3.9/],
  [{ maxBytesPerDay: 100 }, {}, 60, 40, undefined],
  [{ maxBytesPerDay: 100 }, {}, 60, 41, /100 bytes a day/],
] as [Terms, Record<string, unknown>, number, number, RegExp | undefined][])
  test(`terms ${JSON.stringify(terms)}, ${sent} + ${bytes} bytes`, () => {
    const reason = objection(terms, task, offered, sent, bytes);
    if (expected) assert.match(reason ?? "", expected);
    else assert.equal(reason, undefined);
  });

test("a task without a cohort or a privacy guarantee meets no terms about them", () => {
  const bare = { kind: "task" };
  assert.match(objection({}, bare, {}, 0, 0) ?? "", /the task is for NaN clients/);
  const small = { ...bare, cohort: 1 };
  assert.match(objection({ maxEpsilon: 1e9 }, small, {}, 0, 0) ?? "", /differential privacy/);
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
    ] as const) {
      given(signals);
      assert.equal(await isTime(all), expected, JSON.stringify(signals));
      assert.equal(await isTime({}), true);
    }
  } finally {
    given(before ?? {});
  }
});
