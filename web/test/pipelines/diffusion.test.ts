// Schedulers of diffusion models: tests/conformance/diffusion.json, which
// tests/pipelines/diffusion/test_diffusion.py reads as well.
import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError } from "../../src/shared/errors.ts";
import {
  guided,
  previewPixels,
  scaleEmbedding,
} from "../../src/worker/pipelines/diffusion/guidance.ts";
import { isFacts } from "../../src/worker/pipelines/diffusion/host.ts";
import { scheduleOf } from "../../src/worker/pipelines/diffusion/schedulers.ts";
import { Stepper } from "../../src/worker/pipelines/diffusion/stepper.ts";
import { toFiniteHalf } from "../../src/worker/pipelines/diffusion/tensors.ts";
import { vectors } from "../common/vectors.ts";

interface Case {
  config: Record<string, unknown>;
  call: { steps?: number; timesteps?: number[]; sigmas?: number[] };
  timesteps: number[];
  sigma: number;
  start: number[];
  inputs: number[][];
  latents: number[][];
}
interface Guidance {
  without: number[];
  prompted: number[];
  scale: number;
  rescale: number;
  guided: number[];
  embedding: number[];
  preview: number[];
}

const { schedulers, guidance } = vectors<{ schedulers: Case[]; guidance: Guidance[] }>("diffusion");

/** Latents are differences of numbers as large as `start`, which diffusers rounds to float32. */
function close(ours: ArrayLike<number>, theirs: number[], what: string, start = 0): void {
  const most = 1e-5 * Math.max(1, ...theirs.map(Math.abs)) + 2 ** -24 * start;
  assert.equal(ours.length, theirs.length, what);
  theirs.forEach((x, i) => {
    assert.ok(Math.abs(ours[i]! - x) <= most, `${what}: ${Array.from(ours)} is not ${theirs}`);
  });
}

const noise = (step: number): Float32Array<ArrayBuffer> =>
  Float32Array.from([0, 1, 2], (j) => Math.sin(2 + 1.3 * step + 2.9 * j));
const output = (step: number): Float32Array<ArrayBuffer> =>
  Float32Array.from([0, 1, 2], (j) => Math.cos(1 + 3.1 * step + 1.7 * j));

test("schedulers equal those of diffusers", () => {
  for (const { config, call, timesteps, sigma, start, inputs, latents } of schedulers) {
    const what = `${String(config._class_name)} ${JSON.stringify(call)}`;
    const steps = call.steps ?? (call.timesteps ?? call.sigmas)!.length;
    const schedule = scheduleOf(config, { ...call, steps });
    const times = schedule.steps.map((s) => s.timestep);
    close(times, timesteps, what);
    close([schedule.sigma, ...schedule.start], [sigma, ...start], what);
    const stepper = new Stepper(
      schedule,
      noise(-1).map((x) => sigma * x),
    );
    for (const [i, expected] of latents.entries()) {
      close(stepper.scaled(), inputs[i]!, `${what}, input ${i}`);
      stepper.advance(output(i), noise(i));
      close(stepper.latents, expected, `${what}, step ${i}`, sigma);
    }
  }
});

test("guidance and previews", () => {
  for (const g of guidance) {
    const [without, prompted] = [Float32Array.from(g.without), Float32Array.from(g.prompted)];
    close(guided(without, prompted, g.scale, g.rescale), g.guided, "guided");
    // diffusers' angles are float32, of up to some thousands
    close(scaleEmbedding(g.scale, g.embedding.length), g.embedding, "scaleEmbedding", 2 ** 15);
    assert.deepEqual([...previewPixels(prompted)], g.preview);
  }
});

test("numbers of float16", () => {
  const halves: [number, number][] = [
    [0, 0],
    [1, 15360],
    [-2, 49152],
    [0.1, 11878],
    [65504, 31743],
    [1000000.0, 31743],
    [-70000, 64511],
    [1e-8, 0],
    [5.9604645e-8, 1],
    [8.9e-8, 1],
    [6.1e-5, 1023],
    [6.103515625e-5, 1024],
    [2049, 26624],
    [2051, 26626],
    [0.33325195, 13653],
    [-1e-5, 32936],
    [3.0517578e-5, 512],
  ];
  for (const [value, bits] of halves) assert.equal(toFiniteHalf(value), bits, String(value));
  assert.equal(toFiniteHalf(Number.NaN) & 0x7e00, 0x7e00);
});

test("what is not supported is refused", () => {
  const refused: [Record<string, unknown>, object, RegExp][] = [
    [{ _class_name: "HeunDiscreteScheduler" }, {}, /HeunDiscreteScheduler/],
    [{ _class_name: "PNDMScheduler" }, {}, /skip_prk_steps/],
    [{ _class_name: "DDIMScheduler", thresholding: true }, {}, /thresholding/],
    [{ _class_name: "DDIMScheduler", beta_schedule: "sigmoid" }, {}, /beta_schedule/],
    [{ _class_name: "DDIMScheduler", trained_betas: ["x"] }, {}, /trained_betas/],
    [{ _class_name: "DDIMScheduler" }, { steps: 1001 }, /num_inference_steps/],
    [{ _class_name: "DDIMScheduler" }, { timesteps: [5] }, /timesteps/],
    [{ _class_name: "LCMScheduler" }, { steps: 51 }, /num_inference_steps/],
    [{ _class_name: "EulerDiscreteScheduler" }, { timesteps: [1000] }, /timesteps/],
    [{ _class_name: "DPMSolverMultistepScheduler", solver_order: 3 }, {}, /solver_order/],
  ];
  for (const [config, call, words] of refused)
    assert.throws(
      () => scheduleOf(config, { steps: 4, ...call }),
      (e) => e instanceof InputError && words.test(e.message),
    );
});

test("a package's description of a model is checked", () => {
  const facts = {
    kind: "StableDiffusionPipeline",
    scheduler: { _class_name: "DDIMScheduler" },
    size: [64, 64],
    channels: 4,
    scale: 8,
    factor: 0.18215,
    shift: 0,
    cond: null,
    checked: true,
    length: 77,
  };
  assert.ok(isFacts(facts) && isFacts({ ...facts, cond: 256, size: [8, 16] }));
  const wrong: [string, unknown][] = [
    ["size", [64]],
    ["size", [64, 1e9]],
    ["size", "64,64"],
    ["channels", 0],
    ["scale", 0.5],
    ["factor", 0],
    ["factor", null],
    ["shift", "0"],
    ["cond", -1],
    ["length", Infinity],
    ["scheduler", null],
    ["checked", 1],
    ["kind", undefined],
  ];
  for (const [field, value] of wrong) assert.ok(!isFacts({ ...facts, [field]: value }), field);
  for (const value of [null, undefined, 3, []]) assert.ok(!isFacts(value));
});
