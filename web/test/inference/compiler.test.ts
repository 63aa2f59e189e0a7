import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { EngineError } from "../../src/shared/errors.ts";
import { Compiler } from "../../src/worker/compiler-client.ts";
import type { ModelFiles } from "../../src/worker/inference/files.ts";
import { Python, type PythonHost } from "../../src/worker/inference/python.ts";

const urls = {
  engineUrl: "",
  threadUrl: "",
  compilerUrl: "",
  python: { files: { loader: "", module: "", wasm: "", library: "", wheel: "", snapshot: "" } },
};
const none = (): void => undefined;
const answer = { files: new Map(), reads: {}, ms: { pyodide: 0, compile: 0 } };

test("requests to a compiler are answered in order", async () => {
  const asked: string[] = [];
  class FakeWorker {
    onmessage: (e: { data: unknown }) => void = none;
    terminate(): void {}
    postMessage({ options }: { options?: { call: string } }): void {
      if (!options) return;
      asked.push(options.call);
      setTimeout(
        () => this.onmessage({ data: { compiled: { ...answer, manifest: options.call } } }),
        1,
      );
    }
  }
  const before = Reflect.get(globalThis, "Worker") as unknown;
  Reflect.set(globalThis, "Worker", FakeWorker);
  try {
    const compiler = new Compiler(urls, new AbortController().signal);
    const calls = ["a", "b", "c"].map((call) => compiler.compile(new Map(), { call }, none));
    await calls[0];
    assert.deepEqual(asked, ["a"], "the second waits for the first");
    assert.deepEqual(
      (await Promise.all(calls)).map((c) => c.manifest),
      ["a", "b", "c"],
    );
    const late = [
      compiler.compile(new Map(), { call: "d" }, none),
      compiler.compile(new Map(), { call: "e" }, none),
    ];
    await Promise.resolve();
    compiler.end(new EngineError("it has died"));
    for (const call of late) await assert.rejects(call, /it has died/);
    assert.equal(compiler.alive, false);
  } finally {
    Reflect.set(globalThis, "Worker", before);
  }
});

test("the next request restarts Python after a crash", async () => {
  let started = 0;
  let dies = true;
  const start = (): PythonHost => {
    started++;
    const host = {
      alive: true,
      async compile(_: unknown, { call }: Record<string, unknown>) {
        if (call === "open")
          return { ...answer, manifest: JSON.stringify({ format: 1, inputs: [], outputs: [] }) };
        if (dies) host.alive = false;
        throw new EngineError(dies ? "it has died" : "it does not know");
      },
      end: none,
    };
    return host;
  };
  const files = {
    name: "m.onnx",
    blobs: new Map(),
    blob: async () => new Blob(),
  } as unknown as ModelFiles;
  const python = new Python(start, files);
  await assert.rejects(python.program({}), /it has died/);
  dies = false;
  await assert.rejects(python.program({}), /it does not know/);
  await assert.rejects(python.program({}), /it does not know/);
  assert.equal(started, 2, "one that lives goes on");
});

test("Python that is not asked for ends, and starts again when it is", async (t) => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  t.after(() => mock.timers.reset());
  let [started, ended] = [0, 0];
  let answered = (): void => undefined;
  const start = (): PythonHost => {
    started++;
    const host = {
      alive: true,
      async compile(_: unknown, { call }: Record<string, unknown>) {
        if (call === "open")
          return { ...answer, manifest: JSON.stringify({ format: 1, inputs: [], outputs: [] }) };
        await new Promise<void>((resolve) => (answered = resolve));
        throw new EngineError("it does not know");
      },
      end() {
        host.alive = false;
        ended++;
      },
    };
    return host;
  };
  const blob = async (): Promise<Blob> => new Blob();
  const files = { name: "m.onnx", blobs: new Map(), blob } as unknown as ModelFiles;
  const python = new Python(start, files);
  await python.open();
  mock.timers.tick(29_000);
  const asked = assert.rejects(python.program({}), /it does not know/);
  await new Promise((resolve) => setImmediate(resolve)); // the request is sent
  mock.timers.tick(60_000);
  assert.deepEqual([started, ended], [1, 0], "it is at work");
  answered();
  await asked;
  mock.timers.tick(29_000);
  assert.equal(ended, 0);
  mock.timers.tick(2000);
  assert.deepEqual([started, ended], [1, 1]);
  mock.timers.tick(60_000);
  await python.open();
  assert.deepEqual([started, ended], [2, 1]);
  python.end();
  mock.timers.tick(60_000);
  assert.deepEqual([started, ended], [2, 2]);
});
