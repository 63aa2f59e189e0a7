import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Engine } from "../../src/device/wasm/engine.ts";
import { resolveSteps } from "../../src/device/wasm/resolve.ts";
import { LIMITS } from "../../src/gen/limits.ts";
import { BUFFERS } from "../../src/gen/plan_format.ts";
import { EngineError } from "../../src/shared/errors.ts";
import { shares } from "../../src/shared/share.ts";

const folder = join(process.env.EDGEWISE_SRC!, "../dist/engine/");
const built = existsSync(join(folder, "edgewise-simd128.wasm"));

/** Opens the engine that was built. */
async function opened(beside = false): Promise<Engine> {
  const before = globalThis.fetch;
  globalThis.fetch = (async (url: string) =>
    new Response(readFileSync(new URL(url)), {
      headers: { "Content-Type": "application/wasm" },
    })) as typeof fetch;
  try {
    const engineUrl = pathToFileURL(folder).href;
    return await Engine.open({ engineUrl, threadUrl: "", flavour: "simd128", threads: 1 }, beside);
  } finally {
    globalThis.fetch = before;
  }
}

test("engines tell their threads, those beside a GPU do not", { skip: !built }, async () => {
  const before = shares.report;
  const told: number[] = [];
  shares.report = (threads) => told.push(threads);
  try {
    const beside = await opened(true);
    const engine = await opened();
    assert.deepEqual(told, [0, 1]);
    beside.close();
    engine.close();
    assert.deepEqual(told, [0, 1, 1, 0]);
  } finally {
    shares.report = before;
  }
});

test("the engine hands out the steps that it has checked", { skip: !built }, async () => {
  const engine = await opened();
  const bytes = new Uint8Array(Buffer.from(LIMITS.float32[0], "base64"));
  const plan = engine.loadPlan(bytes, "limits");

  const [step, ...others] = resolveSteps(engine, plan, 0, 1, "limits");
  assert.equal(others.length, 0);
  assert.equal(step!.kernel, "gemm");
  assert.equal(step!.empty, false);
  assert.equal(step!.registers, false);
  const there = step!.operands.filter((o) => o !== undefined);
  const { SLOT0, ARENA } = BUFFERS; // the last operand is scratch
  assert.deepEqual(
    there.map((o) => o.buffer),
    [SLOT0, SLOT0 + 1, SLOT0 + 2, ARENA],
  );
  for (const o of there) {
    assert.equal(o.elementBytes, 4);
    assert.equal(o.begin, o.offset);
    assert.ok(o.end > o.begin && (o.end - o.begin) % 4 === 0);
  }
  assert.deepEqual(resolveSteps(engine, plan, 1, 0, "limits"), []);
  for (const [first, count] of [
    [0, 2],
    [2, 0],
    [0xffffffff, 1],
  ])
    assert.throws(() => resolveSteps(engine, plan, first!, count!, "limits"), EngineError);
  engine.freePlan(plan);
  engine.close();
});
