import assert from "node:assert/strict";
import { test } from "node:test";
import type { StepEvent, TrainingFields } from "../../src/protocol/training.ts";
import { Checkpoint } from "../../src/shared/checkpoints/checkpoint.ts";
import { Aborted, EngineError } from "../../src/shared/errors.ts";
import { adaptersOf } from "../../src/worker/training/adapters-of.ts";
import { TrainingRun } from "../../src/worker/training/trainer.ts";
import { type Fate, fakeModel } from "../common/fake-trainer.ts";
import { Storage } from "../common/storage.ts";

const TEXT = "A few words of several rows, on which a fake model is trained for some steps.";
const FIELDS = { max_steps: 9, seed: 5, evaluation: "held out words" } as const;
const turn = <T>(work: () => Promise<T>): Promise<T> => work();
const never = new AbortController().signal;

async function open(fate: Fate, more: object = {}, model = fakeModel(fate)) {
  const asked = { ...FIELDS, evaluate_every: 3, evaluation: [FIELDS.evaluation], ...more };
  const run = await TrainingRun.open(model, [TEXT], asked as unknown as TrainingFields, never);
  return { model, run };
}

/** Trains on devices that are lost after so many runs; returns all that came of it. */
async function trained(...runs: number[]) {
  const fate: Fate = { runs, opened: 0 };
  const { model, run } = await open(fate);
  const events: StepEvent[] = [];
  const { losses, evaluations, adapter } = await run.fit(turn, (e) => events.push(e), never);
  await run.close();
  const [file] = await adaptersOf(model).save(adapter);
  const bytes = Buffer.from(await file!.blob.arrayBuffer()).toString("hex");
  return { result: { losses, evaluations, bytes }, events, opened: fate.opened };
}

test("a run whose GPUs were lost equals one that was not disturbed", async () => {
  const whole = await trained();
  assert.equal(whole.result.losses.length, 9);
  assert.equal(new Set(whole.result.losses).size, 9);
  assert.deepEqual(
    whole.result.evaluations.map(([step]) => step),
    [0, 3, 6, 9],
  );
  // before the first copy, later, in the last step; again; while updates are repeated
  for (const runs of [[0], [1], [4], [8], [4, 6, 7], [5, 2, 3], [3, 0, 1]]) {
    const { result, events, opened } = await trained(...runs);
    assert.deepEqual(result, whole.result, runs.join());
    assert.deepEqual(
      events.map(({ step }) => step),
      [1, 2, 3, 4, 5, 6, 7, 8, 9],
    );
    assert.equal(opened, runs.length + 1);
    const moved = events.filter(({ device }) => device);
    assert.ok(moved.length && (moved.at(-1)!.device as { number?: number }).number === opened - 1);
  }
});

test("a GPU that is lost in the same step again and again ends the run", async () => {
  const fate: Fate = { runs: [4, 3, 3, 3, 3, 3, 3], opened: 0 };
  const { model, run } = await open(fate);
  await assert.rejects(
    run.fit(turn, () => undefined, never),
    (e: unknown) => {
      assert.ok(e instanceof EngineError);
      assert.match(e.what, /the GPU was lost, and no other device could go on/);
      assert.match(e.remedy, /at step 1 now/);
      return true;
    },
  );
  assert.equal(fate.opened, 4);
  // what was reached is still there
  const { step, losses, evaluations } = run.result();
  assert.deepEqual([step, losses.length, evaluations.length], [1, 1, 1]);
  const [file] = await adaptersOf(model).save(run.adapter);
  assert.ok(file!.blob.size > 64);
  // and the next call goes on, where a GPU works
  fate.runs = [];
  const { losses: all } = await run.fit(turn, () => undefined, never);
  assert.deepEqual(all, (await trained()).result.losses);
  await run.close();
});

test("an abort stops the repeating of updates", async () => {
  const controller = new AbortController();
  const fate: Fate = { runs: [5], opened: 0 };
  let repeated = 0;
  fate.before = (device) => {
    if (device && ++repeated === 2) controller.abort();
  };
  const { run } = await open(fate);
  const events: number[] = [];
  const heard = ({ step }: StepEvent) => events.push(step);
  await assert.rejects(run.fit(turn, heard, controller.signal), Aborted);
  assert.equal(run.result().step, 3); // the copy after the first update, and two repeated ones
  const { losses } = await run.fit(turn, heard, never);
  assert.deepEqual(losses, (await trained()).result.losses);
  assert.deepEqual(events, [1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]);
  await run.close();
});

test("what was lost before its first copy begins anew", async () => {
  const { model, run } = await open({ runs: [0, 0, 0, 0, 0, 0], opened: 0 });
  await assert.rejects(run.advance(), /at step 0 now/);
  await assert.rejects(adaptersOf(model).save(run.adapter), /was lost with the GPU/);
  await run.close();
  assert.equal((await adaptersOf(model).save(run.adapter)).length, 2);
});

test("generation goes on with the values of the latest update", async () => {
  const fate: Fate = { runs: [], opened: 0 };
  const { model, run } = await open(fate);
  for (let i = 0; i < 4; i++) await run.advance();
  const state = () => run.session.readState(run.session.results[0]!);
  const before = await state();
  const { device } = model as unknown as { device: { lost: unknown } };
  device.lost = new EngineError("the GPU was lost");
  assert.ok(await model.decoder.recover());
  assert.deepEqual(await state(), before);
  assert.equal(fate.opened, 2);
});

test("an evaluation that was stopped is made, and told, when the run goes on", async () => {
  const whole = await trained();
  for (const last of [3, 9]) {
    const controller = new AbortController();
    const fate: Fate = { runs: [], opened: 0 };
    const { run } = await open(fate);
    fate.evaluates = () => run.step === last && fate.opened === 1;
    let repeated = 1; // the first update is in a copy
    fate.before = (device) => {
      if (device && ++repeated === last) controller.abort();
    };
    const events: StepEvent[] = [];
    const heard = (event: StepEvent) => events.push(event);
    await assert.rejects(run.fit(turn, heard, controller.signal), Aborted);
    assert.equal(run.result().step, last);
    const { losses, evaluations } = await run.fit(turn, heard, never);
    assert.deepEqual([losses, evaluations], [whole.result.losses, whole.result.evaluations]);
    const told = ({ step, loss, evaluation }: StepEvent) => [step, loss, evaluation];
    assert.deepEqual(events.map(told), whole.events.map(told));
    await run.close();
  }
});

test("a run begins where the GPU was lost before", async () => {
  const fate: Fate = { runs: [], opened: 0 };
  const model = fakeModel(fate);
  const { device } = model as unknown as { device: { lost: unknown } };
  device.lost = new EngineError("the GPU was lost");
  const { run } = await open(fate, {}, model);
  const { losses } = await run.fit(turn, () => undefined, never);
  assert.deepEqual(losses, (await trained()).result.losses);
  assert.equal(fate.opened, 2);
});

const CHECKPOINT = { checkpoint: { name: "run", every: 2 } };

test("a run without copies is given up at its stored checkpoint", async () => {
  new Storage().install();
  const fate: Fate = { runs: [5, 0, 0, 0], opened: 0 };
  const { run } = await open(fate, CHECKPOINT);
  const { backup } = (run as unknown as { recovery: { backup: object } }).recovery;
  Object.defineProperty(backup, "useful", { value: false });
  await assert.rejects(
    run.fit(turn, () => undefined, never),
    /at step 4 now/,
  );
  const { losses } = await run.fit(turn, () => undefined, never);
  assert.deepEqual(losses, (await trained()).result.losses);
});

test("a checkpoint has the states of its step", async () => {
  new Storage().install();
  const fate: Fate = { runs: [4, 1], opened: 0 };
  const { model, run } = await open(fate, { checkpoint: { name: "run", every: 9 } });
  for (let i = 0; i < 4; i++) await run.advance();
  const [state] = run.session.results;
  const wanted = await run.session.readState(state!);
  const { device } = model as unknown as { device: { lost: unknown } };
  device.lost = new EngineError("the GPU was lost");
  await assert.rejects(model.decoder.recover(), /lost/); // while updates are repeated
  await run.save();
  const { record, tensor } = (await new Checkpoint("run").read())!;
  assert.deepEqual([record.step, record.runs], [4, 4]);
  assert.deepEqual(await tensor(state!.name), wanted);
});
