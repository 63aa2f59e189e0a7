// Adapters' files in a page: what is read of them, and what is refused.

import assert from "node:assert/strict";
import { test } from "node:test";
import { safetensorsHead } from "../../src/shared/checkpoints/safetensors.ts";
import { InputError, ModelError } from "../../src/shared/errors.ts";
import type { LoraInfo } from "../../src/worker/package/manifest.ts";
import { rescaled } from "../../src/worker/training/adapter-config.ts";
import { openFile, readTensors } from "../../src/worker/training/adapter-files.ts";
import { fromFile, tensorsOf, toFile } from "../../src/worker/training/adapter-tensors.ts";
import { PROGRAM } from "../common/fake-trainer.ts";

const LORA: LoraInfo = { r: 1, lora_alpha: 2, use_rslora: false };
const A = [1, 2];
const B = [3, 4];

/** The program of the fake trainer with a pair of rank 2, for layers of 2 numbers. */
const program = {
  ...PROGRAM,
  states: new Map(
    ["A", "B"].map((half) => {
      const name = `layer.lora_${half}.weight`;
      return [name, { ...PROGRAM.states.get("layer.lora_A.weight")!, name }];
    }),
  ),
};

async function read(tensors: Record<string, [shape: number[], values: number[]]>) {
  const infos = Object.entries(tensors).map(
    ([name, [shape, values]]) =>
      [name, { dtype: "float32", shape, bytes: 4 * values.length }] as const,
  );
  const { head, order } = safetensorsHead(new Map(infos), { format: "pt" });
  const data = order.map((name) => Float32Array.from(tensors[name]![1]));
  const files = [{ name: "adapter_model.safetensors", blob: new Blob([head, ...data]) }];
  const training = new Map([["lora", program]]);
  const { weights, given } = await openFile(files, { training });
  const found = await readTensors(weights, given, program, LORA);
  return Object.fromEntries(
    Array.from(found, ([name, bytes]) => [name, [...new Float32Array(bytes.buffer)]]),
  );
}

test("an adapter of a lower rank is padded with zeros", async () => {
  for (const [prefix, infix] of [
    ["base_model.model.", ""],
    ["", ".default"],
  ])
    assert.deepEqual(
      await read({
        [`${prefix}layer.lora_A${infix}.weight`]: [[1, 2], A],
        [`${prefix}layer.lora_B${infix}.weight`]: [[2, 1], B],
      }),
      { "layer.lora_A.weight": [1, 2, 0, 0], "layer.lora_B.weight": [3, 0, 4, 0] },
    );
});

test("adapters that do not fit are refused", async () => {
  const [a, b] = ["layer.lora_A.weight", "layer.lora_B.weight"] as const;
  const good = { [a]: [[1, 2], A], [b]: [[2, 1], B] } as const;
  const tries: [object, typeof InputError | typeof ModelError, RegExp][] = [
    [{ [a]: [[1, 2], A] }, ModelError, /lora_A alone/],
    [{ ...good, [b]: [[1, 2], B] }, ModelError, /incompatible/],
    [{ [a]: [[2, 1], A], [b]: [[1, 2], B] }, ModelError, /has rank 2/],
    [{ [a]: [[1, 1], [1]], [b]: [[2, 1], B] }, InputError, /\[2, 2\] is expected/],
    [{ "x.lora_A.weight": [[1, 2], A], "x.lora_B.weight": [[2, 1], B] }, InputError, /adapts 'x'/],
    [{ ...good, "head.weight": [[2], A] }, InputError, /contains 'head.weight'/],
    [
      {
        ...good,
        [b]: [
          [2, 1],
          [3, NaN],
        ],
      },
      ModelError,
      /infinite or NaN/,
    ],
  ];
  for (const [tensors, kind, words] of tries)
    await assert.rejects(
      read(tensors as Parameters<typeof read>[0]),
      (e: Error) => e instanceof kind && words.test(e.message),
      words.source,
    );
});

test("whole modules are transposed where the model stores them so", () => {
  const states = new Map(program.states);
  const state = { ...PROGRAM.states.get("layer.lora_A.weight")!, kind: "parameter" as const };
  states.set("onnx::MatMul_1", { ...state, name: "onnx::MatMul_1", shape: [2, 3], bytes: 24 });
  const saved = [
    { parameter: "onnx::MatMul_1", name: "head.weight", transposed: true, shape: [2, 3] },
  ];
  const tensors = tensorsOf({ ...program, states, saved }, LORA);
  const head = tensors.get("base_model.model.head.weight")!;
  assert.deepEqual(head.info, { dtype: "float32", shape: [3, 2], bytes: 24 });
  const bytes = new Uint8Array(Float32Array.of(1, 2, 3, 4, 5, 6).buffer);
  const written = toFile(bytes, head);
  assert.deepEqual([...new Float32Array(written.buffer)], [1, 4, 2, 5, 3, 6]);
  assert.deepEqual([...fromFile(written, head, [3, 2])], [...bytes]);
});

test("ranks and scalings by module", () => {
  const lora = { ...LORA, r: 2, rank_pattern: { layer: 1 }, alpha_pattern: { layer: 6 } };
  const shapes = Array.from(tensorsOf(program, lora).values(), ({ shape }) => shape);
  assert.deepEqual(shapes, [
    [1, 2],
    [2, 1],
  ]);
  const made = rescaled(program, lora, ["layer"]); // the program's is 2 / 2
  assert.deepEqual([...made.factors], [["layer", 6]]);
  assert.deepEqual(made.lora.alpha_pattern, { layer: 1 });
});
