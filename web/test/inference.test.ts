import assert from "node:assert/strict";
import { test } from "node:test";
import { parseManifest } from "../src/package.ts";
import { planJson, planKey, runKey } from "../src/inference/manifest.ts";
import { refusedManifests } from "./manifests.ts";

const slot = (name: string, kind: string, bytes: number, shape: number[]) => ({ name, kind, dtype: "float32", shape, bytes });
const manifest = () => ({
  format: 2, table_hash: 5, task: "inference", kernels: ["gemm"], files: { "plan/0": [0, 64], weights: [64, 128] }, sha256: { "plan/0": "0".repeat(64) },
  weights: [{ name: "w", file: "weights", offset: 0, bytes: 32, sums: ["0123456789abcdef"] }],
  inference: {
    inputs: [{ name: "x", type: "tensor", dtype: "float32", shape: ["batch", 4] }],
    outputs: [{ name: "y", type: "tensor", dtype: "float32", shape: null }],
    plans: [{ file: "plan/0", seed: "s", passed: { z: "x" }, inputs: { x: ["float32", [1, 4]] }, outputs: { y: ["y", "float32", [1, 2], 8] }, slots: [slot("x", "input", 16, [1, 4]), slot("s", "input", 8, [1]), slot("w", "weight", 32, [4, 2]), slot("c", "computed", 64, [16]), slot("y", "output", 8, [1, 2])], known: { x: ["1", "-2"] } }],
  },
});

test("a package of any model", () => {
  const { inference, decoder, training } = parseManifest(JSON.stringify(manifest()), "x.edge", 192, true);
  assert.equal(decoder, undefined);
  assert.equal(training.size, 0);
  assert.deepEqual(inference!.inputs, [{ name: "x", type: "tensor", dtype: "float32", shape: ["batch", 4] }]);
  assert.deepEqual(inference!.plans[0]!.outputs.get("y"), { slot: "y", dtype: "float32", shape: [1, 2], bytes: 8 });
  assert.equal(planKey(inference!.plans[0]!.inputs), planKey([["x", { dtype: "float32", shape: [1, 4] }]]));
  assert.notEqual(planKey(inference!.plans[0]!.inputs), planKey([["x", { dtype: "float32", shape: [4, 1] }]]));
});

test("a plan is written as it was read, and runs that it serves have its key", () => {
  const { inference } = parseManifest(JSON.stringify(manifest()), "x.edge", 192, true);
  const plan = inference!.plans[0]!;
  assert.deepEqual(JSON.parse(JSON.stringify(planJson(plan))), manifest().inference.plans[0]);
  const run = { inputs: [["x", { dtype: "float32", shape: [1, 4] }]] as [string, { dtype: string; shape: number[] }][], outputs: new Set(["y", "z"]), known: [["x", ["1", "-2"]]] as [string, string[]][] };
  assert.equal(runKey(run), runKey(plan));
  assert.notEqual(runKey({ ...run, known: [["x", ["1", "2"]]] }), runKey(plan));
  assert.notEqual(runKey({ ...run, outputs: new Set(["y"]) }), runKey(plan));
});

test("feeds and outputs fit into a plan's slots", () => {
  type Plan = ReturnType<typeof manifest>["inference"]["plans"][0];
  const refused = (change: (plan: Plan) => void, words: RegExp) => {
    const m = manifest();
    change(m.inference.plans[0]!);
    assert.throws(() => parseManifest(JSON.stringify(m), "x.edge", 192, true), words);
  };
  refused((p) => (p.inputs.x = ["float32", [1, 5]]), /slot of 16 bytes/);
  refused((p) => (p.outputs.y = ["y", "float32", [2, 2], 8]), /not those of float32/);
  refused((p) => (p.inputs = { ...p.inputs, z: ["float32", [1]] } as Plan["inputs"]), /no input of the model/);
  refused((p) => (p.known = { z: ["1"] } as unknown as Plan["known"]), /no input/);
  refused((p) => (p.passed = { z: "y" }), /no input/);
  refused((p) => (p.passed = { y: "x" } as unknown as Plan["passed"]), /computed as well/);
  refused((p) => (p.seed = "x"), /no input slot of 8 bytes/);
  refused((p) => (p.seed = "y"), /no input slot of 8 bytes/);
  refused((p) => (p.seed = undefined as unknown as string), /a slot for an input 's'/);
});

test("a damaged one is refused in words", () => {
  assert.ok(refusedManifests(manifest, ["inference"], [null, true, 0, -1, 1e300, 1.5, "", "x", [], [1], {}]) > 150);
});
