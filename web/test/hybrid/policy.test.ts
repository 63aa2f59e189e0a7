// The default policy as a table, and what is kept of measurements.

import assert from "node:assert/strict";
import test from "node:test";
import { type Rules, rules, type Signals } from "../../src/extras/hybrid/policy.ts";
import { Rates } from "../../src/extras/hybrid/rates.ts";

const rates = (first: number, spread = first / 20, failures = 0) => ({
  ...{ measured: 9, first, spread, rate: 20, failures },
});
const unknown = { measured: 0, first: 0, spread: 0, rate: 0, failures: 0 };
const prompt = 84; // 100 units of the device
const base: Signals = {
  ...{ private: false, online: true, saveData: false, split: false, deviceOnly: [], tokens: 50 },
  prompt,
  device: { state: "ready", rates: rates(10) }, // 1000 ms
  cloud: { rates: rates(1000) },
};
const cloud = (first: number, spread?: number, failures?: number) => ({
  cloud: { rates: rates(first, spread, failures) },
});
const device = (state: "absent" | "loading" | "failed", missing?: number) => ({
  device: { state, missing, rates: rates(10) },
});
const battery = { level: 0.1, charging: false };

const TABLE: [Partial<Signals>, Rules, where: string, why: RegExp][] = [
  [{ private: true }, {}, "device", /private/],
  [{ private: true, ...cloud(1) }, { prefer: "cloud" }, "device", /private/],
  [{ private: true, device: undefined }, {}, "device", /private/],
  [{ online: false }, { prefer: "cloud" }, "device", /offline/],
  [{ deviceOnly: ["num_beams"] }, {}, "device", /num_beams/],
  [{ cloud: undefined }, { prefer: "cloud" }, "device", /no other side/],
  [{ device: undefined }, {}, "cloud", /no other side/],
  [cloud(100), {}, "cloud", /1000 ms, cloud 100/],
  [cloud(5000), {}, "device", /cloud 5000/],
  [cloud(970), {}, "race", /neither/],
  [cloud(100, 5, 0.2), {}, "race", /failed lately/],
  [cloud(100, 5, 0.2), { race: false }, "device", /failed lately/],
  [{ ...cloud(970), last: "cloud" }, { race: false }, "cloud", /970/],
  [{ ...cloud(970), last: "device" }, { race: false }, "device", /970/],
  [{ cloud: { rates: unknown } }, {}, "race", /cloud was not measured/],
  [{ cloud: { rates: unknown } }, { race: false }, "device", /not measured/],
  [{ device: { state: "ready", rates: unknown } }, {}, "race", /device was not measured/],
  [device("absent"), {}, "cloud", /not here/],
  [device("failed"), {}, "cloud", /not here/],
  [device("loading"), {}, "race", /being loaded/],
  [
    { ...device("absent", 1e6), ...cloud(9000), downlink: 10 },
    {},
    "device",
    /loading it is faster/,
  ],
  [{ ...device("absent", 90e6), ...cloud(9000), effectiveType: "2g" }, {}, "cloud", /not here/],
  [{ battery }, {}, "cloud", /battery/],
  [{ battery, online: false }, {}, "device", /offline/],
  [{ battery: { level: 0.1, charging: true }, ...cloud(5000) }, {}, "device", /cloud 5000/],
  [{ battery, ...cloud(5000) }, { saveBattery: false }, "device", /cloud 5000/],
  [{}, { prefer: "device" }, "device", /preferred/],
  [{}, { prefer: "cloud" }, "cloud", /preferred/],
  [{ split: true, device: undefined }, {}, "split", /not given/],
  [{ split: true, private: true }, {}, "device", /private/],
  [{ split: true, online: false }, {}, "device", /offline/],
  [{ split: true, ...device("absent") }, {}, "split", /not here/],
  [{ split: true, ...cloud(100) }, {}, "split", /split 100/],
  [{ split: true, ...cloud(100, 5, 0.2) }, {}, "device", /split 100/],
  [{ split: true, ...cloud(900) }, {}, "device", /160 ms, split 900/],
];

test("the default policy", () => {
  for (const [signals, options, where, why] of TABLE) {
    const given = Object.freeze({ ...base, ...signals });
    const found = rules(options)(given);
    assert.equal(found.where, where, JSON.stringify([signals, options, found]));
    assert.match(found.why.join("; "), why);
    assert.deepEqual(rules(options)(given), found, "it depends on its signals alone");
  }
  assert.equal(rules()({ ...base, ...cloud(100, 50) }).patience, 300);
});

test("measurements are kept, and nonsense is not believed", () => {
  const kept = new Map<string, string>();
  const keeper = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
  };
  const first = new Rates(keeper, "a");
  first.observe("cloud", { first: 100, prompt: 10, tokens: 50, rest: 1000 });
  first.observe("device", { first: 260, prompt: 10, tokens: 10, rest: 1000 });
  first.failed("cloud");
  const again = new Rates(keeper, "a");
  assert.deepEqual(again.of("cloud"), first.of("cloud"));
  assert.deepEqual([again.of("cloud").first, again.of("cloud").rate], [100, 50]);
  assert.deepEqual([again.of("device").first, again.of("device").rate], [10, 10]);
  assert.ok(again.of("cloud").failures > 0);
  assert.equal(new Rates(keeper, "b").of("cloud").measured, 0);
  for (const bad of ["{", "null", "[]", '{"cloud": 5}', '{"cloud": {"measured": -1}}']) {
    kept.set("a", bad);
    assert.equal(new Rates(keeper, "a").of("cloud").measured, 0);
  }
  const closed = {
    getItem: () => assert.fail("not permitted"),
    setItem: () => assert.fail("not permitted"),
  };
  new Rates(closed, "a").failed("cloud");
});
