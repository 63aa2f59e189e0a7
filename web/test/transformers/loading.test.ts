// What edgewise/transformers loads, as far as it needs no engine: options, progress, and the
// pictures and sounds that Node cannot decode.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AutoModel,
  AutoModelForCausalLM,
  AutoProcessor,
  AutoTokenizer,
  InputError,
  load_audio,
  RawImage,
  read_audio,
  Tensor,
} from "../../src/extras/transformers/index.ts";
import type { ProgressEvent } from "../../src/protocol/loading.ts";
import { openModel } from "../../src/worker/inference/open.ts";
import { FileServer } from "../common/server.ts";
import { type Sent, SilentWorker, withSilentWorkers } from "../common/silent-worker.ts";

const AUTO = { AutoModel, AutoModelForCausalLM, AutoProcessor, AutoTokenizer };

test("from_pretrained refuses options that do not exist, as pipeline does", async () => {
  for (const [name, auto] of Object.entries(AUTO)) {
    const load = (options: object) => auto.from_pretrained("http://localhost:1/m/", options);
    const refused = (options: object, words: RegExp) =>
      assert.rejects(load(options), (e) => e instanceof InputError && words.test(e.message), name);
    await refused({ revison: "a" }, /no option 'revison'. Did you mean 'revision'\?/);
    await refused({ local_files_only: true }, /no option 'local_files_only'. Options are: dtype/);
    await refused({ progress_callback: 5 }, /options\.progress_callback: it is no function/);
  }
  for (const auto of [AutoModel, AutoTokenizer])
    await assert.rejects(
      auto.from_pretrained("http://localhost:1/m/", { capacity: 64 }),
      /no option 'capacity'/,
    );
});

/** The next call of a method that a silent worker receives. */
async function sent(method: string): Promise<{ worker: SilentWorker; id: number }> {
  for (;;) {
    for (const worker of SilentWorker.made) {
      const call = worker.sent.find((m: Sent) => m.method === method);
      if (call) return { worker, id: call.id! };
    }
    await new Promise((done) => setTimeout(done, 1));
  }
}

test("progress_callback of AutoModel receives that of the files beside and of the weights", () =>
  withSilentWorkers(async () => {
    const seen: string[] = [];
    const progress_callback = (event: ProgressEvent) =>
      void ("file" in event && seen.push(`${event.name} ${event.file} ${event.status}`));
    const folder = "http://localhost:1/m/";
    const loading = AutoModel.from_pretrained(folder, { progress_callback });
    const find = await sent("find");
    const event = { status: "initiate", name: folder, file: "config.json" };
    find.worker.answer({ id: find.id, progress: event });
    find.worker.answer({ id: find.id, value: { texts: {}, onnx: `${folder}model.onnx` } });
    const open = await sent("inference_open");
    const weights = { status: "done", name: `${folder}model.onnx`, file: "model.onnx" };
    open.worker.answer({ id: open.id, progress: weights });
    open.worker.answer({ id: open.id, value: { inputs: [], outputs: [], device: {} } });
    const model = await loading;
    assert.deepEqual(seen, [`${folder} config.json initiate`, `${folder} model.onnx done`]);
    const ended = model.dispose();
    for (const worker of SilentWorker.made) worker.answer({ ended: true });
    await ended;
  }));

test("a session reports the progress of its file", async () => {
  const server = await new FileServer(new Uint8Array(5000)).start();
  const seen: ProgressEvent[] = [];
  try {
    const model = server.url.replace("model.onnx", "model.edge");
    await assert.rejects(
      openModel(
        { model, external: {}, urls: {}, cache: false, cache_files: false } as never,
        new AbortController().signal,
        (event) => void seen.push(event),
        undefined,
        (async () => ({ close: () => undefined })) as never,
      ),
      { name: "PackageError" },
    );
    assert.deepEqual(
      seen.slice(0, 2).map((event) => ("file" in event ? [event.status, event.file] : [])),
      [
        ["initiate", "model.edge"],
        ["download", "model.edge"],
      ],
    );
    const total = seen.find((event) => event.status === "progress_total");
    assert.equal(total?.total, 5000);
  } finally {
    server.close();
  }
});

test("pictures and sounds that Node cannot decode are refused in words", async () => {
  const picture = new RawImage(new Uint8Array(12), 2, 2, 3);
  const blob = new Blob([Uint8Array.of(0x89, 0x50, 0x4e, 0x47)]);
  const calls: Record<string, () => unknown> = {
    read: () => RawImage.read("http://localhost:1/a.png"),
    fromBlob: () => RawImage.fromBlob(blob),
    resize: () => picture.resize(1, 1),
    crop: () => picture.crop([0, 0, 0, 0]),
    pad: () => picture.pad([1, 1, 1, 1]),
    center_crop: () => picture.center_crop(1, 1),
    toCanvas: () => picture.toCanvas(),
    toBlob: () => picture.toBlob(),
    save: () => picture.save("a.png"),
    fromImage: () => Tensor.fromImage("http://localhost:1/a.png"),
    toImageData: () => new Tensor("float32", [0, 0, 0], [1, 3, 1, 1]).toImageData(),
    toDataURL: () => new Tensor("float32", [0, 0, 0], [1, 3, 1, 1]).toDataURL(),
    read_audio: () => read_audio("http://localhost:1/a.wav", 16000),
    load_audio: () => load_audio("http://localhost:1/a.wav", 16000),
  };
  for (const [name, call] of Object.entries(calls))
    await assert.rejects(
      async () => call(),
      (e) => e instanceof InputError && /^there (is|are) no|a page only/.test(e.what) && !!e.remedy,
      name,
    );
});
