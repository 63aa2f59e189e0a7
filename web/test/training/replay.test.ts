import assert from "node:assert/strict";
import { test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import { EngineError, InputError, OutOfMemory } from "../../src/shared/errors.ts";
import { Weights } from "../../src/worker/model/weights.ts";
import { ArtifactSession, type PythonCompiler } from "../../src/worker/training/artifacts.ts";
import { Replay } from "../../src/worker/training/recovery/replay.ts";
import { Session } from "../../src/worker/training/session.ts";
import { FakeDevice, type Fate, FILES, PROGRAM } from "../common/fake-trainer.ts";

const weightsOf = (device: Device) => new Weights(device, { weights: new Map() });

/** With it, a loss depends on all steps before. */
const RATE = { learning_rate: new Uint8Array(Float32Array.of(0.1).buffer) };

/** A session whose calls are made again on another device. */
class Calls {
  readonly session: Session;
  readonly replay: Replay;
  private device: Device;

  constructor(fate: Fate) {
    this.device = new FakeDevice(fate) as unknown as Device;
    this.session = new Session(this.device, PROGRAM, FILES, weightsOf(this.device), 3n, "a test");
    this.session.initialize(false);
    this.replay = new Replay(this.session);
  }

  lose(): void {
    Object.assign(this.device, { lost: new EngineError("the GPU was lost") });
  }

  async move(): Promise<boolean> {
    const device = await this.device.replacement!();
    if (!device) return false;
    this.device = device;
    this.session.move(device, weightsOf(device));
    this.session.initialize(false);
    return true;
  }

  kept<T>(work: () => Promise<T>): Promise<T> {
    return this.replay.kept(work, () => this.move());
  }

  async step(i: number, size = 32): Promise<string> {
    const { session, replay } = this;
    const feeds = { input_ids: new Uint8Array(32).fill(i), labels: new Uint8Array(32), ...RATE };
    const loss = await this.kept(() => {
      session.pass("train", feeds);
      return session.output("loss");
    });
    await replay.add(() => session.pass("train", feeds), size);
    return String(loss);
  }

  /** Twelve steps, between which the seed and a state are set. */
  async all(size?: number): Promise<string[]> {
    const { session, replay } = this;
    const results: string[] = [];
    const set = () => {
      session.seed = 9n;
      session.writeState(session.moments[0]!, Uint8Array.of(1, 2, 3));
    };
    for (let i = 0; i < 12; i++) {
      results.push(await this.step(i, size));
      if (i === 3) {
        set();
        await replay.add(set);
      }
    }
    for (const state of session.allStates)
      results.push(String(await this.kept(() => session.readState(state))));
    return results;
  }
}

test("calls of a session are made again after a GPU was lost", async () => {
  const whole = await new Calls({ runs: [], opened: 0 }).all();
  assert.equal(new Set(whole.slice(0, 12)).size, 12);
  for (const runs of [[0], [1], [5], [11], [6, 5], [5, 0, 1]])
    for (const size of [32, 2 ** 24]) {
      // many bytes of feeds are copied earlier
      const fate = { runs, opened: 0 };
      assert.deepEqual(await new Calls(fate).all(size), whole, runs.join());
      assert.equal(fate.opened, runs.length + 1);
    }
});

test("a GPU that is lost in the same call again and again ends it", async () => {
  const fate: Fate = { runs: [4, 3, 3, 3, 3, 3, 3, 3], opened: 0 };
  const calls = new Calls(fate);
  await assert.rejects(calls.all(), /the GPU was lost/);
  assert.equal(fate.opened, 4);
  fate.runs = [];
  const loss = await calls.step(4); // goes on
  const other = new Calls({ runs: [], opened: 0 });
  await assert.rejects(
    other.kept(() => Promise.reject(new InputError("wrong", "", ""))),
    InputError,
  );
  for (let i = 0; i < 4; i++) await other.step(i);
  other.session.seed = 9n;
  other.session.writeState(other.session.moments[0]!, Uint8Array.of(1, 2, 3));
  assert.equal(await other.step(4), loss);
});

test("a session with too many states for copies does not begin anew", async () => {
  const fate: Fate = { runs: [1100], opened: 0 };
  const calls = new Calls(fate);
  const { backup } = calls.replay as unknown as { backup: object };
  Object.defineProperty(backup, "useful", { value: false });
  for (let i = 0; i < 1001; i++) await calls.step(i % 7);
  const refused = new OutOfMemory("no room", "", "");
  // its states are still there
  await assert.rejects(
    calls.kept(() => Promise.reject(refused)),
    refused,
  );
  for (let i = 1001; i < 1100; i++) await calls.step(i % 7);
  for (let i = 0; i < 2; i++)
    await assert.rejects(calls.step(0), (e: EngineError) => {
      assert.match(e.what, /what was trained was lost with the GPU \(the GPU was lost\)/);
      return e instanceof EngineError;
    });
  assert.equal(fate.opened, 1);
});

/** The losses of steps of a TrainingSession, whose device is what `prepare` makes of it. */
async function steps(prepare: (device: { lost: unknown }) => void, fate: Fate): Promise<unknown[]> {
  const { plans, states } = PROGRAM;
  const of = (kind: "initialize" | "train") => {
    const { file, slots } = plans.get(kind)!;
    return { file, slots, arena_bytes: 0 };
  };
  const described = {
    plans: { initialize: of("initialize"), accumulate: of("train"), update: of("initialize") },
    weights: [],
    states: [...states.values()],
    moments: {},
    step: 0,
  };
  const python: PythonCompiler = {
    compile: async () => ({ manifest: JSON.stringify(described), files: FILES as never }) as never,
    end: () => undefined,
  };
  const names = { inputs: ["input_ids", "labels", "learning_rate"], outputs: ["loss"] };
  const info = { train: names, parameters: [], learning_rate: 1, device: { name: "webgpu" } };
  const device = new FakeDevice(fate);
  prepare(device);
  const made = new (ArtifactSession as unknown as new (...of: unknown[]) => ArtifactSession)(
    device,
    python,
    info,
  );
  const results: unknown[] = [];
  for (let i = 0; i < 3; i++) {
    const tensor = (x: number) => ({ type: "int64", dims: [4], data: new Uint8Array(32).fill(x) });
    const learning_rate = { type: "float32", dims: [1], data: RATE.learning_rate };
    const feeds = { input_ids: tensor(i), labels: tensor(0), learning_rate } as never;
    const { values } = await made.run("train", feeds, new AbortController().signal);
    results.push(values.loss!.data);
  }
  return results;
}

test("a TrainingSession begins where the GPU was lost before", async () => {
  const whole = await steps(() => undefined, { runs: [], opened: 0 });
  assert.equal(new Set(whole.map(String)).size, 3);
  const fate: Fate = { runs: [], opened: 0 };
  const lose = (device: { lost: unknown }) => {
    device.lost = new EngineError("the GPU was lost");
  };
  assert.deepEqual(await steps(lose, fate), whole);
  assert.equal(fate.opened, 2);
  for (const runs of [[0], [1], [2, 1]])
    assert.deepEqual(await steps(() => undefined, { runs, opened: 0 }), whole, runs.join());
});

test("a device that could not be filled is not copied", async () => {
  const whole = new Calls({ runs: [], opened: 0 });
  const calls = new Calls({ runs: [2], opened: 0 });
  for (const one of [whole, calls]) for (let i = 0; i < 2; i++) await one.step(i);
  const { replay, session } = calls;
  const refused = new OutOfMemory("no room", "", "");
  const feeds = { input_ids: new Uint8Array(32), labels: new Uint8Array(32), ...RATE };
  const work = () => {
    session.pass("train", feeds);
    return session.output("loss");
  };
  await assert.rejects(
    replay.kept(work, async () => {
      await calls.move(); // its states have their first values
      throw refused;
    }),
    refused,
  );
  const reset = (one: Calls) => one.replay.add(() => one.session.reset(), 2 ** 26);
  for (const one of [whole, calls]) await reset(one);
  calls.lose(); // which is then given up, too
  assert.equal(await calls.step(2), await whole.step(2));
});
