// The answers of reader.ts about checkpoints and stored adapters, which are in the browser's
// private files.

import {
  Checkpoint,
  checkpoints,
  type RunRecord,
} from "../../src/shared/checkpoints/checkpoint.ts";
import { keep, listKept, readKept } from "../../src/worker/training/kept.ts";
import { Storage } from "../common/storage.ts";

const RECORD: RunRecord = {
  step: 3,
  total: 9,
  runs: 3,
  adapter: "x",
  program: "lora",
  losses: [1, 0.5],
  evaluations: [],
  config: {},
  saved: 1,
};

/**
 * Two copies of a checkpoint, and optionally a stored adapter: [a, b, adapter]. Without arguments:
 * a valid copy and a valid adapter.
 */
export async function checkpointAnswer([
  a,
  b,
  adapter,
]: Uint8Array<ArrayBuffer>[]): Promise<unknown> {
  const storage = new Storage(true).install();
  if (!a) {
    const data = async (name: string) =>
      new Uint8Array(new Float32Array(8).fill(name.length).buffer);
    await new Checkpoint("run").write(
      RECORD,
      new Map(
        ["p.lora_A.weight", "step"].map((name) => [
          name,
          { dtype: "float32", shape: [2, 4], bytes: 32 },
        ]),
      ),
      data,
    );
    const [side] = storage.files.values();
    const file = [
      { name: "adapter_model.safetensors", blob: new Blob([side!]) },
      { name: "adapter_config.json", blob: new Blob(["{}"]) },
    ];
    await keep({ key: "k", adapters: { save: async () => file } }, "x");
    return [...storage.files.values()].map((bytes) => Buffer.from(bytes).toString("base64"));
  }
  storage.files.set("edgewise/checkpoints/run.a.safetensors", a);
  if (b) storage.files.set("edgewise/checkpoints/run.b.safetensors", b);
  if (adapter) storage.files.set("edgewise/adapters/k.x.1.safetensors", adapter);
  const list = await checkpoints();
  const found = await new Checkpoint("run").read();
  const owner = { key: "k", adapters: { save: async () => [] } };
  const kept = await listKept(owner);
  const files = adapter
    ? await readKept(owner, "x").then(
        (f) => f.length,
        () => 0,
      )
    : 0;
  return {
    listed: list.length,
    step: found?.record.step ?? null,
    tensors: found
      ? (await Promise.all([...found.contents.tensors.keys()].map((n) => found.tensor(n)))).length
      : 0,
    kept: kept.length,
    files,
  };
}
