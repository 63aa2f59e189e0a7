import assert from "node:assert/strict";
import { test } from "node:test";
import { isTime } from "../../src/extras/federated/terms.ts";

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
