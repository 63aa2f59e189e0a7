import assert from "node:assert/strict";
import { test } from "node:test";
import { deviceOf } from "../../src/page/device.ts";
import { env } from "../../src/page/env.ts";
import { InputError } from "../../src/shared/errors.ts";
import { deviceInfo } from "../../src/shared/platform.ts";

test("devices are selected by name or as ONNX Runtime Web's execution providers", () => {
  assert.equal(deviceOf({}), "auto");
  assert.equal(deviceOf({ device: "wasm" }), "wasm");
  assert.equal(deviceOf({ device: "auto", executionProviders: ["webgpu"] }), "auto");
  assert.equal(deviceOf({ executionProviders: [] }), "auto");
  assert.equal(deviceOf({ executionProviders: ["wasm"] }), "wasm");
  assert.equal(deviceOf({ executionProviders: [{ name: "cpu" }] }), "wasm");
  assert.equal(deviceOf({ executionProviders: ["webgl", "wasm"] }), "wasm");
  assert.equal(deviceOf({ device: "webgpu" }), "webgpu");
  assert.equal(deviceOf({ executionProviders: ["webgpu"] }), "webgpu");
  assert.equal(deviceOf({ executionProviders: ["webgpu", "cpu"] }), "webgpu-or-wasm");
  assert.equal(deviceOf({ executionProviders: ["wasm", "webgpu"] }), "wasm");
});

test("the device of the whole page is a default", () => {
  env.device = "webgpu";
  try {
    assert.equal(deviceOf({}), "webgpu");
    assert.equal(deviceOf({}, false), "webgpu-or-wasm");
    assert.equal(deviceOf({ device: "webgpu" }, false), "webgpu");
    assert.equal(deviceOf({ device: "wasm" }), "wasm");
  } finally {
    env.device = "auto";
  }
});

test("an unavailable device is rejected", () => {
  for (const options of [
    { executionProviders: ["webgl"] },
    { device: "tpu" as "wasm" },
    { device: "webgpu-or-wasm" as "wasm" },
    { executionProviders: ["constructor"] },
    { executionProviders: ["auto", "wasm"] },
    { executionProviders: "webgpu" as unknown as string[] },
  ])
    assert.throws(
      () => deviceOf(options),
      (e: unknown) => e instanceof InputError && e.remedy.includes("wasm"),
    );
});

test("the selected device is reported with the reason", () => {
  const choice = { flavour: "simd128", threads: 1, whyNotThreads: "there is one" } as const;
  assert.deepEqual(deviceInfo(choice, "wasm"), {
    name: "wasm",
    flavour: "simd128",
    threads: 1,
    why: "there is one",
  });
  assert.match(deviceInfo(choice, "auto").why, /WebGPU.*; there is one$/);
});
