// The names of ONNX Runtime Web's and transformers.js' settings.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { env } from "../../src/page/env.ts";
import { type LogLevel, placeOf } from "../../src/page/env-aliases.ts";
import { InputError } from "../../src/shared/errors.ts";

/** What `work` prints as warnings. */
function warnings(work: () => void): string[] {
  const seen: string[] = [];
  const own = console.warn;
  console.warn = (text: string) => void seen.push(text);
  try {
    work();
  } finally {
    console.warn = own;
  }
  return seen;
}

test("settings of ONNX Runtime Web are Edgewise's", () => {
  const silent = warnings(() => {
    env.wasm.numThreads = 3;
    env.wasm.proxy = false;
    env.wasm.simd = true;
    env.debug = false;
  });
  assert.deepEqual(silent, []);
  assert.deepEqual([env.threads, env.wasm.numThreads, env.proxy], [3, 3, false]);
  env.backends.onnx.wasm.numThreads = 0;
  env.backends.onnx.wasm.proxy = true;
  assert.deepEqual([env.threads, env.proxy, env.wasm.proxy], [undefined, true, true]);
  env.wasm.numThreads = 200; // processors of a large machine
  assert.equal(env.threads, 64);
  env.threads = undefined;
  assert.equal(env.versions.common, env.version);
});

test("settings without an effect say so once, and keep their values", () => {
  const cdn = "https://cdn.example/onnxruntime-web/";
  const { engineUrl } = env;
  const seen = warnings(() => {
    for (let i = 0; i < 2; i++) {
      env.wasm.wasmPaths = cdn;
      env.webgpu.powerPreference = "high-performance";
      env.webgl.pack = true;
      env.wasm.simd = false;
      env.debug = true;
    }
  });
  assert.equal(seen.length, 5, seen.join("\n"));
  assert.match(seen[0]!, /env\.wasm\.wasmPaths has no effect.*engineUrl/);
  assert.deepEqual(
    [env.wasm.wasmPaths, env.webgpu.powerPreference, env.engineUrl],
    [cdn, "high-performance", engineUrl],
  );
});

test("the level of messages", () => {
  assert.equal(env.logLevel, "warning");
  assert.throws(() => (env.logLevel = "loud" as never), InputError);
  const seen = (level: LogLevel | number, name: string) =>
    warnings(() => {
      env.logLevel = level;
      env.webgl[name] = 1;
    }).length;
  assert.deepEqual(
    [seen("error", "a"), seen("verbose", "b"), seen(40, "c"), seen(30, "d")],
    [0, 1, 0, 1],
  );
  env.logLevel = "warning";
});

test("local models, as in transformers.js", async () => {
  assert.equal(await placeOf(env, "org/name"), "org/name");
  const server = createServer(({ url }, answer) => {
    answer.statusCode = url === "/models/org/local/config.json" ? 200 : 404;
    answer.end();
  }).listen(0);
  try {
    const { port } = server.address() as { port: number };
    const models = `http://localhost:${port}/models`;
    env.localModelPath = models;
    env.allowLocalModels = true;
    const places = ["org/local", "org/remote", "./own/", "https://host/model.onnx", "/m/"];
    const found = await Promise.all(places.map((place) => placeOf(env, place)));
    assert.deepEqual(found, [`${models}/org/local/`, ...places.slice(1)]);
    env.allowRemoteModels = false;
    assert.equal(await placeOf(env, "org/remote"), `${models}/org/remote/`);
    env.allowLocalModels = false;
    await assert.rejects(placeOf(env, "org/remote"), InputError);
  } finally {
    Object.assign(env, { allowLocalModels: false, allowRemoteModels: true });
    env.localModelPath = "/models/";
    server.close();
  }
});

test("useBrowserCache is the other name of cacheFiles", () => {
  env.useBrowserCache = false;
  assert.deepEqual([env.cacheFiles, env.useBrowserCache], [false, false]);
  env.useBrowserCache = true;
  assert.equal(env.cacheFiles, "auto");
});
