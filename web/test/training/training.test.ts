import assert from "node:assert/strict";
import { test } from "node:test";
import {
  asFloat32,
  readSafetensors,
  safetensorsHead,
} from "../../src/shared/checkpoints/safetensors.ts";
import { Sum } from "../../src/shared/checkpoints/sum.ts";
import { ModelError } from "../../src/shared/errors.ts";
import { seedOfRun } from "../../src/shared/seeds.ts";
import { parseManifest, refusedManifests } from "../common/manifests.ts";

// From python/edgewise/training: seed_of_run, save_safetensors.
const SEEDS = [
  "0",
  "6238072747940578789",
  "7760175111023239006",
  "5530076036601818890",
  "7266964230113668128",
];
const SAFETENSORS =
  "c8000000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a227074227d2c2261223a7b226474797065223a22493634222c227368617065223a5b325d2c22646174615f6f666673657473223a5b302c31365d7d2c22622e78223a7b226474797065223a22463332222c227368617065223a5b335d2c22646174615f6f666673657473223a5b31362c32385d7d2c22c3a9223a7b226474797065223a224938222c227368617065223a5b322c325d2c22646174615f6f666673657473223a5b32382c33325d7d7d00000000000000000100000000000000000000000000803f0000004001020304";

test("seeds of runs equal those of Python", () => {
  const runs: [bigint, number][] = [
    [0n, -1],
    [0n, 0],
    [7n, 3],
    [(1n << 62n) + 5n, 12345],
    [1n, -2],
  ];
  assert.deepEqual(
    runs.map(([seed, run]) => String(seedOfRun(seed, run))),
    SEEDS,
  );
});

test("safetensors files equal Python's and can be read back", async () => {
  const data = new Map<string, Uint8Array<ArrayBuffer>>([
    ["b.x", new Uint8Array(Float32Array.of(0, 1, 2).buffer)],
    ["a", new Uint8Array(BigInt64Array.of(0n, 1n).buffer)],
    ["é", Uint8Array.of(1, 2, 3, 4)],
  ]);
  const { head, order } = safetensorsHead(
    new Map([
      ["b.x", { dtype: "float32", shape: [3], bytes: 12 }],
      ["a", { dtype: "int64", shape: [2], bytes: 16 }],
      ["é", { dtype: "int8", shape: [2, 2], bytes: 4 }],
    ]),
    { format: "pt" },
  );
  const blob = new Blob([head, ...order.map((name) => data.get(name)!)]);
  const bytes = new Uint8Array(await blob.arrayBuffer());
  assert.equal(Buffer.from(bytes).toString("hex"), SAFETENSORS);
  const { tensors, metadata } = await readSafetensors(blob, "x");
  assert.deepEqual(metadata, { format: "pt" });
  for (const [name, { offset, bytes: n }] of tensors)
    assert.deepEqual(bytes.slice(offset, offset + n), data.get(name));
  // Truncated anywhere, or with an invalid header: an error, never wrong values.
  for (let n = 0; n < bytes.length; n++)
    await assert.rejects(readSafetensors(blob.slice(0, n), "x"), ModelError, `cut to ${n}`);
  await assert.rejects(readSafetensors(new Blob([blob, "x"]), "x"), ModelError);
  for (const [from, to] of [
    ["[3]", "[4]"],
    ["F32", "F64"],
    ["F32", "Q32"],
    ["[0,16]", "[0,17]"],
    ["[0,16]", "[1,16]"],
  ]) {
    const text = new TextDecoder("latin1").decode(bytes);
    const changed = Uint8Array.from(text.replace(from!, to!), (c) => c.charCodeAt(0));
    if (
      text.includes(from!) &&
      changed.length === bytes.length &&
      text !== text.replace(from!, to!)
    )
      await assert.rejects(readSafetensors(new Blob([changed]), "x"), ModelError, `${from} ${to}`);
  }
});

test("half precision values are read exactly", () => {
  const halves = Uint8Array.from([
    0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x7b, 0x00, 0x00, 0x55, 0x35,
  ]);
  assert.deepEqual(
    [...asFloat32(halves, "float16", "")],
    [1, -2, 2 ** -24, 65504, 0, 0.333251953125],
  );
  assert.deepEqual(
    [...asFloat32(Uint8Array.from([0x80, 0x3f, 0x49, 0x40]), "bfloat16", "")],
    [1, 3.140625],
  );
  assert.throws(() => asFloat32(halves, "int8", "x"), ModelError);
});

test("a checksum detects flipped bits and swapped words", () => {
  const data = Uint8Array.from({ length: 103 }, (_, i) => (i * 37) & 255);
  const sum = new Sum().add(data).hex();
  assert.equal(new Sum().add(data.subarray(0, 40)).add(data.subarray(40)).hex(), sum);
  for (let bit = 0; bit < data.length * 8; bit++) {
    const changed = data.slice();
    changed[bit >> 3]! ^= 1 << (bit & 7);
    assert.notEqual(new Sum().add(changed).hex(), sum);
  }
  const swapped = data.slice();
  swapped.copyWithin(0, 4, 8);
  swapped.set(data.subarray(0, 4), 4);
  assert.notEqual(new Sum().add(swapped).hex(), sum);
});

const slot = (name: string, kind: string, dtype: string, shape: number[]) => ({
  name,
  kind,
  dtype,
  shape,
  bytes: shape.reduce((a, b) => a * b, dtype === "int64" ? 8 : 4),
});
const io = [
  slot("input_ids", "input", "int64", [2, 4]),
  slot("labels", "input", "int64", [2, 4]),
  slot("loss", "output", "float32", []),
];
const a = slot("q.lora_A.weight", "state", "float32", [2, 3]);
const manifest = () =>
  structuredClone({
    format: 2,
    table_hash: 7,
    task: "text-generation",
    files: { "plan/1": [0, 10], t: [64, 10], weights: [128, 64] },
    sha256: { "plan/1": "0".repeat(64), t: "0".repeat(64) },
    weights: [{ name: "w", file: "weights", offset: 0, bytes: 16, sums: ["0123456789abcdef"] }],
    decoder: {
      capacity: 1,
      vocab_size: 5,
      logits_type: "float32",
      recompute: true,
      caches: [],
      plans: [
        {
          tokens: 1,
          file: "plan/1",
          registers: { past: 0, last: 1 },
          slots: [
            a,
            slot("input_ids", "input", "int64", [1, 1]),
            slot("logits", "output", "float32", [1, 5]),
          ],
        },
      ],
    },
    training: [
      {
        name: "lora",
        task: "causal_lm",
        batch: 2,
        sequence: 4,
        lora: { r: 2, lora_alpha: 4, use_rslora: false },
        optimizer: { type: "AdamW", lr: 0.001 },
        max_grad_norm: 1,
        pad_token_id: null,
        eos_token_id: 0,
        plans: {
          train: {
            file: "t",
            slots: [...io, a, slot("learning_rate", "input", "float32", [1])],
            arena_bytes: 100,
          },
          accumulate: {
            file: "t",
            slots: [...io, a, slot("gradient/q", "state", "float32", [2, 3])],
            arena_bytes: 100,
          },
          update: {
            file: "t",
            slots: [
              a,
              slot("learning_rate", "input", "float32", [1]),
              slot("gradient_scale", "input", "float32", [1]),
            ],
            arena_bytes: 0,
          },
          evaluate: { file: "t", slots: [...io, a], arena_bytes: 50 },
          initialize: {
            file: "t",
            slots: [a, slot("seed", "input", "int64", [1])],
            arena_bytes: 0,
          },
        },
        states: [
          { ...a, kind: "adapter", initial: ["uniform", 0.5, 1] },
          { ...slot("gradient/q", "", "float32", [2, 3]), kind: "gradient", initial: ["fill", 0] },
          { ...slot("p", "", "float32", [4]), kind: "parameter", initial: ["constant", "w"] },
        ],
      },
    ],
  });

test("a manifest's training programs are parsed", () => {
  const m = parseManifest(JSON.stringify(manifest()), "x.edge", 192, true);
  const program = m.training.get("lora")!;
  assert.deepEqual(
    [
      program.batch,
      program.sequence,
      program.lora!.r,
      program.eosTokenId,
      program.padTokenId,
      program.plans.size,
      program.states.size,
    ],
    [2, 4, 2, 0, undefined, 5, 3],
  );
  assert.equal(
    parseManifest(
      JSON.stringify({
        ...manifest(),
        training: undefined,
        decoder: {
          ...manifest().decoder,
          plans: [
            { ...manifest().decoder.plans[0], slots: manifest().decoder.plans[0]!.slots.slice(1) },
          ],
        },
      }),
      "x.edge",
      192,
      true,
    ).training.size,
    0,
  );
});

test("an invalid training program raises a PackageError", () => {
  const refused = refusedManifests(manifest, ["training"]);
  assert.ok(refused > 2000, String(refused));
});
