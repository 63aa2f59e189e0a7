import assert from "node:assert/strict";
import { test } from "node:test";
import type { Compiled } from "../../src/protocol/compiler.ts";
import { Aborted } from "../../src/shared/errors.ts";
import type { ModelFiles } from "../../src/worker/inference/files.ts";
import { Python, type PythonHost } from "../../src/worker/inference/python.ts";

/** A Python that answers "program" after the given number of milliseconds. */
class SlowHost implements PythonHost {
  alive = true;
  constructor(private readonly ms: number) {}
  async compile(_files: Map<string, Blob>, options: Record<string, unknown>): Promise<Compiled> {
    if (options.call === "program")
      await new Promise((resolve) => {
        setTimeout(resolve, this.ms).unref();
      });
    const program = {
      program: "p",
      origin: { outputs: [] },
      inputs: [],
      outputs: [],
      where: "g",
      state: { hosts: [], alone: [], cuts: [] },
      constants: {},
      units: [],
      weights: [],
    };
    return {
      manifest: JSON.stringify(options.call === "open" ? { inputs: [], outputs: [] } : program),
      files: new Map(),
      reads: {},
      ms: { pyodide: 0, compile: 0 },
    };
  }
  end(): void {
    this.alive = false;
  }
}

const files = {
  name: "m.onnx",
  blobs: new Map(),
  blob: async () => new Blob(),
} as unknown as ModelFiles;

test("a run that is stopped does not wait for Python; the next call restarts it", async () => {
  const hosts: SlowHost[] = [];
  const start = () => {
    const host = new SlowHost(hosts.length ? 1 : 100_000);
    hosts.push(host);
    return host;
  };
  const python = new Python(start, files);
  await python.open();
  let ending: Aborted | undefined;
  python.ending = () => ending;
  setTimeout(() => {
    ending = new Aborted("stop");
  }, 50);
  await assert.rejects(python.program({ outputs: [] }), /stop/);
  assert.deepEqual([hosts.length, hosts[0]!.alive], [1, false]);
  await assert.rejects(python.program({ outputs: [] }), /stop/); // the run is still over
  ending = undefined;
  assert.equal((await python.program({ outputs: [] })).program.name, "p");
  assert.deepEqual([hosts.length, hosts[1]!.alive], [2, true]);
});

test("a reply that arrives soon after its run ended does not restart Python", async () => {
  const host = new SlowHost(150);
  const python = new Python(() => host, files);
  await python.open();
  let ending: Aborted | undefined;
  python.ending = () => ending;
  setTimeout(() => {
    ending = new Aborted("stop");
  }, 20);
  assert.equal((await python.program({ outputs: [] })).program.name, "p");
  assert.equal(host.alive, true);
});
