import assert from "node:assert/strict";
import { test } from "node:test";
import { parseManifest } from "../src/package.ts";
import { planKey } from "../src/inference/manifest.ts";
import { refusedManifests } from "./manifests.ts";

const slot = (name: string, kind: string, bytes: number, shape: number[]) => ({ name, kind, dtype: "float32", shape, bytes });
const manifest = () => ({
  format: 1, table_hash: 5, task: "inference", kernels: ["gemm"], files: { "plan/0": [0, 64], weights: [64, 128] },
  weights: [{ name: "w", file: "weights", offset: 0, bytes: 32 }],
  inference: {
    inputs: [{ name: "x", type: "tensor", dtype: "float32", shape: ["batch", 4] }],
    outputs: [{ name: "y", type: "tensor", dtype: "float32", shape: null }],
    plans: [{ file: "plan/0", inputs: { x: ["float32", [1, 4]] }, outputs: { y: ["y", "float32", [1, 2], 8] }, slots: [slot("x", "input", 16, [1, 4]), slot("w", "weight", 32, [4, 2]), slot("c", "computed", 64, [16]), slot("y", "output", 8, [1, 2])] }],
  },
});

test("a package of any model", () => {
  const { inference, decoder, training } = parseManifest(JSON.stringify(manifest()), "x.edge", 192);
  assert.equal(decoder, undefined);
  assert.equal(training.size, 0);
  assert.deepEqual(inference!.inputs, [{ name: "x", type: "tensor", dtype: "float32", shape: ["batch", 4] }]);
  assert.deepEqual(inference!.plans[0]!.outputs.get("y"), { slot: "y", dtype: "float32", shape: [1, 2], bytes: 8 });
  assert.equal(planKey(inference!.plans[0]!.inputs), planKey([["x", { dtype: "float32", shape: [1, 4] }]]));
  assert.notEqual(planKey(inference!.plans[0]!.inputs), planKey([["x", { dtype: "float32", shape: [4, 1] }]]));
});

test("a damaged one is refused in words", () => {
  assert.ok(refusedManifests(manifest, ["inference"], [null, true, 0, -1, 1e300, 1.5, "", "x", [], [1], {}]) > 150);
});
