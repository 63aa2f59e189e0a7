import assert from "node:assert/strict";
import { test } from "node:test";
import type { StepEvent, TrainingFields } from "../../src/protocol/training.ts";
import { Aborted, EngineError } from "../../src/shared/errors.ts";
import { adaptersOf } from "../../src/worker/training/adapters-of.ts";
import { TrainingRun } from "../../src/worker/training/trainer.ts";
import { type Fate, fakeModel } from "../common/fake-trainer.ts";

const TEXT = "A few words of several rows, on which a fake model is trained for some steps.";
const FIELDS = { max_steps: 9, seed: 5, evaluation: "held out words" } as const;
const turn = <T>(work: () => Promise<T>): Promise<T> => work();
const never = new AbortController().signal;

async function open(fate: Fate) {
  const model = fakeModel(fate);
  const { evaluation, ...fields } = FIELDS;
  const asked = { ...fields, evaluation: [evaluation], evaluate_every: 3 };
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
