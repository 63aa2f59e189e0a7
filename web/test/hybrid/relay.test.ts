// A text that both sides know comes out whole, wherever one of them fails.

import assert from "node:assert/strict";
import test from "node:test";
import { realClock } from "../../src/extras/hybrid/clock.ts";
import { type HybridOptions, hybrid } from "../../src/extras/hybrid/hybrid.ts";
import { HybridError } from "../../src/extras/hybrid/relay.ts";
import { continues, type Task } from "../../src/extras/hybrid/side.ts";
import { Aborted, InputError } from "../../src/shared/errors.ts";
import {
  type Behaviour,
  fakeCloud,
  fakeDevice,
  never,
  TOKENS,
  VirtualClock,
  WHOLE,
} from "./fakes.ts";

const PROMPT = "Tell me: ";
const fine: Behaviour = { before: () => undefined };
const machine = async () => ({ online: true, saveData: false });

/** Fails before the given piece of its first call. */
function breaks(at: number): Behaviour {
  let failed = false;
  return {
    before(piece) {
      if (piece !== at || failed) return;
      failed = true;
      throw new Error(`broken before ${at}`);
    },
  };
}

/** Fails before the given piece of its first call, and at once from then on. */
function always(at: number): Behaviour {
  let failed = false;
  return {
    before(piece) {
      if (!failed && piece !== at) return;
      failed = true;
      throw new Error("gone");
    },
  };
}

function made(device: Behaviour, cloud: Behaviour, more: Partial<HybridOptions> = {}) {
  const clock = new VirtualClock();
  const sides = { device: fakeDevice(PROMPT, device), cloud: fakeCloud(PROMPT, cloud) };
  const write = hybrid({ ...sides, keep: null, clock, machine, ...more });
  return { write, clock, ...sides };
}

for (const from of ["device", "cloud"] as const)
  test(`a ${from} that breaks anywhere loses and repeats nothing`, async () => {
    for (let at = 0; at < TOKENS.length; at++) {
      const behaviour = breaks(at);
      const sides = from === "device" ? ([behaviour, fine] as const) : ([fine, behaviour] as const);
      const { write } = made(...sides, { policy: () => ({ where: from, why: [] }) });
      let told = "";
      const [out] = await write(PROMPT, {
        max_new_tokens: 100,
        streamer: (text: string) => (told += text),
        return_dict_in_generate: true,
      });
      assert.equal(told, WHOLE);
      assert.deepEqual(out, { generated_text: PROMPT + WHOLE, finish_reasons: "eos" });
      const [change, ...rest] = write.last!.switches;
      assert.deepEqual([change!.to === from, rest.length], [false, 0]);
      assert.match(change!.why, /broken before/);
      assert.equal(change!.at, TOKENS.slice(0, at).join("").length);
    }
  });

test("a chat is continued as an unfinished message", async () => {
  const messages = [{ role: "user", content: "Tell me" }];
  const clock = new VirtualClock();
  const cloud = fakeCloud("Tell me", breaks(6));
  const device = fakeDevice("Tell me", fine);
  const policy = () => ({ where: "cloud" as const, why: [] });
  const write = hybrid({ device, cloud, keep: null, clock, machine, policy });
  const [out] = await write(messages, { max_new_tokens: 100 });
  assert.deepEqual(out!.generated_text, [...messages, { role: "assistant", content: WHOLE }]);
  const so = TOKENS.slice(0, 6).join("").trimEnd();
  assert.deepEqual((device.calls[0] as unknown[])[0], [
    ...messages,
    { role: "assistant", content: so },
  ]);
});

test("sides that fail in turns go on while there is progress", async () => {
  const flaky = (): Behaviour => ({
    before(piece) {
      if (piece === 2) throw new Error("flaky");
    },
  });
  const { write } = made(flaky(), flaky());
  const [out] = await write(PROMPT, { max_new_tokens: 100, return_full_text: false });
  assert.equal(out!.generated_text, WHOLE);
  assert.ok(write.last!.switches.length > 5);
});

test("when both fail without progress the text so far is told", async () => {
  const dead: Behaviour = {
    before() {
      throw new Error("dead");
    },
  };
  const { write } = made(always(4), dead, { policy: () => ({ where: "device", why: [] }) });
  const error = await write(PROMPT, { max_new_tokens: 100 }).then(
    () => assert.fail(),
    (e: unknown) => e as HybridError,
  );
  assert.ok(error instanceof HybridError);
  assert.deepEqual([error.text, error.errors.length], [TOKENS.slice(0, 4).join(""), 3]);
});

test("a stream that stalls goes on elsewhere", async () => {
  const stalls: Behaviour = {
    before: (piece, signal) => (piece === 5 ? never(signal) : undefined),
  };
  const { write, clock } = made(fine, stalls, {
    policy: () => ({ where: "cloud", why: [] }),
    stall: 3000,
  });
  const [out] = await clock.run(write(PROMPT, { return_full_text: false }));
  assert.equal(out!.generated_text, WHOLE);
  assert.equal(clock.now(), 3000);
  assert.match(write.last!.switches[0]!.why, /no token for too long/);
});

test("a cloud that takes over and hangs does not hold the text up", async () => {
  const hangs: Behaviour = { before: (_, signal) => never(signal) };
  const policy = () => ({ where: "device" as const, why: [] });
  const { write, clock } = made(breaks(4), hangs, { policy, stall: 3000 });
  const [out] = await clock.run(write(PROMPT, { return_full_text: false }));
  assert.equal(out!.generated_text, WHOLE);
  assert.equal(clock.now(), 3000);
});

test("a cloud that hangs before its first token fails in words", async () => {
  const hangs: Behaviour = { before: (_, signal) => never(signal) };
  const alone = { device: undefined as never };
  const { write, clock } = made(fine, hangs, { ...alone, timeout: 5000 });
  const words = /cloud: it sent no token within 5 s/;
  await assert.rejects(clock.run(write(PROMPT)), (e: HybridError) => {
    return e instanceof HybridError && words.test(String(e.errors[0]));
  });
  assert.equal(clock.now(), 5000);
  // where the device is slower than the cloud may be, the text is the device's
  const slow: Behaviour = { before: (i) => (i ? undefined : both.clock.sleep(20_000)) };
  const both = made(slow, hangs, { policy: () => ({ where: "race", why: [] }), timeout: 5000 });
  const [out] = await both.clock.run(both.write(PROMPT, { return_full_text: false }));
  assert.deepEqual([out!.generated_text, both.clock.now()], [WHOLE, 20_000]);
});

test("a time without end does not end at once", async () => {
  const control = new AbortController();
  const waits = realClock.sleep(Infinity, control.signal).then(
    () => "ended",
    () => "stopped",
  );
  const soon = new Promise((resolve) => setTimeout(resolve, 10, "waits"));
  assert.equal(await Promise.race([waits, soon]), "waits");
  control.abort();
  assert.equal(await waits, "stopped");
});

test("a model that thinks is waited for", async () => {
  const clock = new VirtualClock();
  const cloud = fakeCloud(PROMPT, fine);
  const side = cloud.side({} as never);
  const thinks = {
    ...side,
    async *write(task: Task, signal: AbortSignal) {
      for (let i = 0; i < 9; i++) {
        await clock.sleep(4000, signal);
        yield { text: "", tokens: 0, alive: true };
      }
      yield* side.write(task, signal);
    },
  };
  const options = { keep: null, clock, machine, timeout: 5000 };
  const write = hybrid({ cloud: { ...cloud, side: () => thinks }, ...options });
  const [out] = await clock.run(write(PROMPT, { return_full_text: false }));
  assert.deepEqual([out!.generated_text, clock.now()], [WHOLE, 36_000]);
});

test("an endpoint that begins new answers is not asked in the middle of one", async () => {
  const clock = new VirtualClock();
  const cloud = fakeCloud("Tell me", breaks(6));
  const side = cloud.side({} as never);
  const strict = { ...cloud, side: () => ({ ...side, can: (t: Task) => !continues(t) }) };
  const device = fakeDevice("Tell me", { before: (i) => (i ? undefined : clock.sleep(60_000)) });
  const policy = () => ({ where: "cloud" as const, why: [] });
  const write = hybrid({ device, cloud: strict, keep: null, clock, machine, policy });
  const [out] = await clock.run(write([{ role: "user", content: "Tell me" }]));
  assert.deepEqual(out!.generated_text.at(-1), { role: "assistant", content: WHOLE });
  assert.equal(cloud.tasks.length, 1);
});

test("a race has one winner, and the loser is stopped", async () => {
  let stopped = false;
  const slow: Behaviour = {
    before: (_, signal) => {
      signal.addEventListener("abort", () => (stopped = true));
      return never(signal);
    },
  };
  const clock = new VirtualClock();
  const policy = () => ({ where: "race" as const, why: [] });
  const { write } = made(slow, { before: () => clock.sleep(5) }, { policy, clock });
  const [out] = await clock.run(write(PROMPT, { return_full_text: false }));
  assert.equal(out!.generated_text, WHOLE);
  assert.deepEqual([write.last!.where, stopped], ["cloud", true]);
});

test("when patience ends the other side begins as well", async () => {
  const late: Behaviour = { before: (_, signal) => never(signal) };
  const { write, clock } = made(fine, late, {
    policy: () => ({ where: "cloud", why: [], patience: 700 }),
  });
  await clock.run(write(PROMPT));
  assert.deepEqual([write.last!.where, write.last!.firstToken], ["device", 700]);
});

test("the budget of tokens is one for both sides", async () => {
  const { write } = made(fine, breaks(3), { policy: () => ({ where: "cloud", why: [] }) });
  const [out] = await write(PROMPT, {
    max_new_tokens: 7,
    return_full_text: false,
    return_dict_in_generate: true,
  });
  assert.deepEqual(out, {
    generated_text: TOKENS.slice(0, 7).join(""),
    finish_reasons: "length",
  });
});

test("an abort ends both sides and tells the text so far", async () => {
  const control = new AbortController();
  const { write } = made(fine, fine, { policy: () => ({ where: "cloud", why: [] }) });
  let told = "";
  const error = await write(PROMPT, {
    signal: control.signal,
    streamer: (text: string) => {
      told += text;
      if (told.length > 10) control.abort();
    },
  }).then(
    () => assert.fail(),
    (e: unknown) => e as Aborted & { text: string },
  );
  assert.ok(error instanceof Aborted && error.text === told && told.length < 20);
});

test("private calls stay here, whatever happens", async () => {
  const asked = "another prompt: ";
  const clock = new VirtualClock();
  const cloud = fakeCloud(asked, fine);
  const broken = fakeDevice(asked, breaks(0));
  const write = hybrid({ device: broken, cloud, keep: null, clock, machine });
  await assert.rejects(write(asked, { private: true }), HybridError);
  assert.equal(cloud.tasks.length, 0);
  await write(asked, { private: true });
  for (const where of ["cloud", "race"] as const) {
    const wrong = hybrid({ device: broken, cloud, keep: null, policy: () => ({ where, why: [] }) });
    await assert.rejects(wrong(asked, { private: true }), InputError);
  }
  const changes = hybrid({
    device: fakeDevice(asked, fine),
    cloud,
    keep: null,
    policy(signals) {
      Object.assign(signals, { private: false });
      return { where: "cloud", why: [] };
    },
  });
  await assert.rejects(changes(asked, { private: true }), TypeError);
  await assert.rejects(write(asked, { private: "yes" as never }), InputError);
  assert.equal(cloud.tasks.length, 0);
  const without = hybrid({ cloud, keep: null });
  await assert.rejects(without(asked, { private: true }), InputError);
});

test("the cloud answers while the model is loaded, then the device takes over", async () => {
  const clock = new VirtualClock();
  const cloud = fakeCloud(PROMPT, { before: () => clock.sleep(20) });
  const pipe = fakeDevice(PROMPT, fine);
  let loads = 0;
  const device = async () => {
    loads++;
    await clock.sleep(1000);
    return pipe;
  };
  const write = hybrid({ device, cloud, keep: null, clock, machine });
  const seen: string[] = [];
  for (let i = 0; i < 4; i++) {
    const [out] = await clock.run(write(PROMPT, { return_full_text: false }));
    assert.equal(out!.generated_text, WHOLE);
    seen.push(`${write.last!.decision.where} ${write.last!.where}`);
  }
  assert.deepEqual([loads, seen[0], seen[1]], [1, "cloud cloud", "race cloud"]);
  assert.match(seen.at(-1)!, / device$/);
  const waits = hybrid({ device, cloud, keep: null, clock, machine, preload: false });
  await clock.run(waits(PROMPT));
  assert.equal(loads, 1);
});

test("what only the device can do is a call of the pipeline itself", async () => {
  const calls: unknown[] = [];
  const pipe = async (...given: unknown[]) => {
    calls.push(given);
    return [{ generated_text: "a" }, { generated_text: "b" }];
  };
  const device = Object.assign(pipe, { task: "text-generation" });
  const cloud = fakeCloud(PROMPT, fine);
  const write = hybrid({ device, cloud, keep: null, machine });
  const options = { num_beams: 4, num_return_sequences: 2, max_new_tokens: 5 };
  const outputs = await write(PROMPT, { ...options, private: true });
  assert.deepEqual(
    outputs.map((o) => o.generated_text),
    ["a", "b"],
  );
  assert.deepEqual([calls, cloud.tasks], [[[PROMPT, options]], []]);
  const without = hybrid({ cloud, keep: null, machine });
  await assert.rejects(without(PROMPT, options), /only a device has num_beams/);
});

test("options and policies that mean nothing are refused in words", async () => {
  const cloud = fakeCloud(PROMPT, fine);
  for (const [wrong, words] of [
    [{}, /neither a device nor a cloud/],
    [{ device: Promise.resolve(fakeDevice(PROMPT, fine)) }, /device: it is no pipeline/],
    [{ device: "model.edge", cloud }, /device: it is no pipeline/],
    [{ cloud: { baseURL: "https://x/", model: "x" } }, /cloud: it is no endpoint/],
    [{ cloud, policy: "faster" }, /policy: it is no function/],
    [{ cloud, stall: Number.NaN }, /stall: it is NaN/],
    [{ cloud, timeout: 0 }, /timeout: it is 0/],
  ] as [object, RegExp][])
    assert.throws(() => hybrid(wrong), words);
  for (const policy of [() => undefined, async () => ({ where: "cloud", why: [] })]) {
    const write = hybrid({ cloud, keep: null, machine, policy: policy as never });
    await assert.rejects(write(PROMPT), /it decides nothing/);
  }
  const throwing = () => {
    throw new Error("no model");
  };
  const write = hybrid({ device: throwing, cloud, keep: null, machine });
  const [out] = await write(PROMPT, { return_full_text: false });
  assert.equal(out!.generated_text, WHOLE);
  await assert.rejects(write([PROMPT, 5] as never), InputError);
  assert.equal(cloud.tasks.length, 1);
});

test("a stream gives the pieces, and stops when nobody listens", async () => {
  const { write } = made(fine, fine);
  let told = "";
  for await (const piece of write.stream(PROMPT)) told += piece;
  assert.equal(told, WHOLE);
  for await (const _ of write.stream(PROMPT)) break;
});
