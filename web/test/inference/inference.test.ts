import assert from "node:assert/strict";
import { test } from "node:test";
import { graphOf, planJson } from "../../src/worker/inference/manifest.ts";
import type { NodeUnit } from "../../src/worker/inference/program.ts";
import { graphs } from "../../src/worker/package/parse.ts";
import { parseManifest, refusedManifests } from "../common/manifests.ts";

graphs.read = graphOf; // as inference/service.ts does

const slot = (name: string, kind: string, bytes: number, shape: number[]) => ({
  name,
  kind,
  dtype: "float32",
  shape,
  bytes,
});
const manifest = () => ({
  format: 2,
  table_hash: 5,
  task: "inference",
  kernels: ["gemm"],
  files: { "plan/0": [0, 64], weights: [64, 128] },
  sha256: { "plan/0": "0".repeat(64) },
  weights: [{ name: "w", file: "weights", offset: 0, bytes: 32, sums: ["0123456789abcdef"] }],
  inference: {
    inputs: [{ name: "x", type: "tensor", dtype: "float32", shape: ["batch", 4] }],
    outputs: [{ name: "y", type: "tensor", dtype: "float32", shape: null }],
    plans: [
      {
        file: "plan/0",
        seed: "s",
        passed: { z: "x" },
        inputs: { x: ["float32", [1, 4]] },
        outputs: { y: ["y", "float32", [1, 2], 8] },
        slots: [
          slot("x", "input", 16, [1, 4]),
          slot("s", "input", 8, [1]),
          slot("w", "weight", 32, [4, 2]),
          slot("c", "computed", 64, [16]),
          slot("y", "output", 8, [1, 2]),
        ],
        known: { x: "0000803f".repeat(4) },
      },
    ],
  },
});

test("a package is parsed", () => {
  const { inference, decoder, training } = parseManifest(
    JSON.stringify(manifest()),
    "x.edge",
    192,
    true,
  );
  assert.equal(decoder, undefined);
  assert.equal(training.size, 0);
  assert.deepEqual(inference!.inputs, [
    { name: "x", type: "tensor", dtype: "float32", shape: ["batch", 4] },
  ]);
  assert.deepEqual(inference!.plans[0]!.outputs.get("y"), {
    slot: "y",
    dtype: "float32",
    shape: [1, 2],
    bytes: 8,
  });
  assert.throws(
    () => parseManifest(JSON.stringify(manifest()), "x.edge", 192),
    /known is only valid in a page's own storage/,
  );
});

test("a plan is written with the same bytes as it was read", () => {
  const { inference } = parseManifest(JSON.stringify(manifest()), "x.edge", 192, true);
  assert.deepEqual(
    JSON.parse(JSON.stringify(planJson(inference!.plans[0]!))),
    manifest().inference.plans[0],
  );
});

const program = () => ({
  program: "program/0",
  origin: { outputs: ["y"] },
  inputs: ["x"],
  outputs: ["y", "n"],
  where: "g",
  state: { hosts: [1], alone: [], cuts: ["z"] },
  constants: {
    k: { dtype: "int64", shape: [1], data: "0700000000000000" },
    words: { dtype: "string", shape: [2], strings: ["a", ""] },
  },
  units: [
    {
      part: "p",
      inputs: ["x"],
      outputs: ["y", "z", "n"],
      needs: [0],
      askers: [0],
      where: "node 'y' (Slice)",
      nodes: [0],
      dead: ["x"],
    },
    {
      op: "Loop",
      domain: "",
      name: "",
      where: "node 'l' (Loop)",
      inputs: ["z", ""],
      outputs: ["l"],
      reads: ["z", "k"],
      opset: 17,
      known: true,
      host: true,
      function: false,
      attrs: {
        body: { graph: { inputs: 2, outputs: [{ dtype: "float32", shape: [2, -1] }] } },
        x: { int: "-9223372036854775808" },
        f: { float: "-inf" },
        t: { tensor: { dtype: "bool", shape: [], data: "01" } },
        l: [1, 2],
      },
      nodes: [1],
      dead: [],
    },
  ],
});
const own = () => {
  const m = manifest();
  const [plan] = m.inference.plans;
  return {
    ...m,
    inference: {
      ...m.inference,
      programs: [program()],
      plans: [{ ...plan!, part: "p", numbers: { n: ["int32", [1], "05000000"] } }],
    },
  };
};

test("a stored package has programs and the plans of their parts", () => {
  const { inference } = parseManifest(JSON.stringify(own()), "x.edge", 192, true);
  const [p] = inference!.programs;
  assert.deepEqual(
    p!.units.map((u) => u.kind),
    ["part", "node"],
  );
  const node = p!.units[1] as NodeUnit;
  assert.equal(node.attrs.get("x"), -(2n ** 63n));
  assert.equal(node.attrs.get("f"), -Infinity);
  assert.deepEqual(inference!.plans[0]!.numbers.get("n")!.data, Uint8Array.of(5, 0, 0, 0));
  assert.ok(
    refusedManifests(own, ["inference"], [null, true, 0, -1, 1e300, "", "x", [], {}]) > 300,
  );
});

test("feeds and outputs must match a plan's slots", () => {
  type Plan = ReturnType<typeof manifest>["inference"]["plans"][0];
  const refused = (change: (plan: Plan) => void, words: RegExp) => {
    const m = manifest();
    change(m.inference.plans[0]!);
    assert.throws(() => parseManifest(JSON.stringify(m), "x.edge", 192, true), words);
  };
  refused((p) => (p.inputs.x = ["float32", [1, 5]]), /slot of 16 bytes/);
  refused((p) => (p.inputs.x = ["float32", [1, 3]]), /slot of 16 bytes/);
  refused((p) => (p.outputs.y = ["y", "float32", [2, 2], 8]), /do not match float32/);
  refused(
    (p) => (p.inputs = { ...p.inputs, z: ["float32", [1]] } as Plan["inputs"]),
    /not an input of the model/,
  );
  refused((p) => (p.known = { z: "00" } as unknown as Plan["known"]), /is not an input/);
  refused((p) => (p.passed = { z: "y" }), /is not an input/);
  refused((p) => (p.passed = { y: "x" } as unknown as Plan["passed"]), /computed as well/);
  refused((p) => (p.seed = "x"), /not an input slot of 8 bytes/);
  refused((p) => (p.seed = "y"), /not an input slot of 8 bytes/);
  refused((p) => (p.seed = undefined as unknown as string), /a slot for an input 's'/);
});

test("a damaged package is rejected with a message", () => {
  assert.ok(
    refusedManifests(
      manifest,
      ["inference"],
      [null, true, 0, -1, 1e300, 1.5, "", "x", [], [1], {}],
    ) > 150,
  );
});
