// Float16 numbers and descriptions of diffusion models.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isFacts } from "../../src/worker/pipelines/diffusion/host.ts";
import { toFiniteHalf } from "../../src/worker/pipelines/diffusion/tensors.ts";

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
