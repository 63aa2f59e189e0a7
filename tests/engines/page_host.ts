// A page's InferenceSession and TrainingSession in Node, for page_session.py: the worker's code
// with CPython in Pyodide's stead. Lines of JSON over stdin and stdout; bytes are base64. In:
// {open}, {run}, {kept}, {artifacts}, {step}, ..., and answers to what it asks; out: {ask} (for
// Python), then {value} or {error}.
import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { makeError, type PlainError, plainError } from "../../web/src/protocol/errors.ts";
import type { WireValue } from "../../web/src/protocol/inference.ts";
import { Aborted } from "../../web/src/shared/errors.ts";
import { graphOf } from "../../web/src/worker/inference/manifest.ts";
import type { InferenceModel } from "../../web/src/worker/inference/model.ts";
import { openModel } from "../../web/src/worker/inference/open.ts";
import { graphs } from "../../web/src/worker/package/parse.ts";
import { ArtifactSession } from "../../web/src/worker/training/artifacts.ts";

graphs.read = graphOf; // as the worker's part for graphs does

// biome-ignore lint/suspicious/noExplicitAny: messages of the test, of many kinds
type Json = Record<string, any>;
const [engines] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const send = (message: unknown) => {
  const data = Buffer.from(`${JSON.stringify(message)}\n`);
  for (let at = 0; at < data.length; ) {
    try {
      at += writeSync(1, data, at);
    } catch (e) {
      if ((e as { code?: string }).code !== "EAGAIN") throw e;
    }
  }
};
const next = async () => JSON.parse((await lines.next()).value ?? "null") as Json | null;
const bytes = (text: string) => new Uint8Array(Buffer.from(text, "base64"));
const text = (data: Uint8Array) =>
  Buffer.from(data.buffer, data.byteOffset, data.length).toString("base64");

globalThis.fetch = (async (url: string) =>
  new Response(readFileSync(new URL(url)), {
    headers: { "Content-Type": "application/wasm" },
  })) as typeof fetch;

// The browser's files, in memory: what one session keeps, the next one finds.
const kept = new Map<string, Blob>();
const handle = (name: string) => ({
  getFile: async () => kept.get(name) ?? new Blob(),
  createWritable: async () => {
    let data = new Blob();
    return {
      write: async (d: Blob) => {
        data = d;
      },
      close: async () => {
        kept.set(name, data);
      },
      abort: async () => undefined,
    };
  },
});
const folder: Json = {
  getDirectoryHandle: async () => folder,
  getFileHandle: async (name: string, options?: { create?: boolean }) =>
    kept.has(name) || options?.create ? handle(name) : Promise.reject(new Error("NotFoundError")),
  removeEntry: async (name: string) => void kept.delete(name),
};
Object.defineProperty(globalThis, "navigator", {
  value: { storage: { getDirectory: async () => folder }, hardwareConcurrency: 1 },
  configurable: true,
});

let read: Record<string, [number, number][]> = {}; // Python reads the whole model
let asking = false;
const python = {
  alive: true,
  async compile(files: Map<string, Blob>, options: Json) {
    if (asking)
      throw new Error("Python was asked something before it had answered the previous question");
    asking = true;
    try {
      return await this.answer(files, options);
    } finally {
      asking = false;
    }
  },
  async answer(files: Map<string, Blob>, options: Json) {
    const data: Record<string, string> = {};
    for (const [name, blob] of files) data[name] = text(new Uint8Array(await blob.arrayBuffer()));
    if (options.call === "open")
      read = Object.fromEntries(Array.from(files, ([name, blob]) => [name, [[0, blob.size]]]));
    send({ ask: options, files: data });
    const answer = (await next())!;
    if (answer.error) throw makeError(answer.error as PlainError);
    return {
      manifest: answer.manifest as string,
      files: new Map(
        Object.entries(answer.files as Record<string, string>).map(([n, b]) => [n, bytes(b)]),
      ),
      reads: read,
      ms: { pyodide: 0, compile: 0 },
    };
  },
  end() {},
};

// biome-ignore lint/suspicious/noExplicitAny: a value as the test wrote it
function decoded(v: any): WireValue {
  if (v === null || v === undefined) return null;
  if (v.sequence) return { sequence: v.sequence.map(decoded) };
  if (v.map) return { map: new Map(v.map), key: "", value: "" };
  return v.strings || v.pinned ? v : { ...v, data: bytes(v.data) };
}

function encoded(v: WireValue): unknown {
  if (v === null) return null;
  if ("sequence" in v) return { sequence: v.sequence.map(encoded) };
  if ("map" in v)
    return {
      map: Array.from(v.map, ([k, x]) => [String(k), typeof x === "bigint" ? String(x) : x]),
      key: v.key,
      value: v.value,
    };
  return "data" in v ? { ...v, data: text(v.data) } : v;
}

let model: InferenceModel | undefined;
let training: ArtifactSession | undefined;
const { signal } = new AbortController();
const urls = {
  engineUrl: engines!,
  threadUrl: "",
  compilerUrl: "",
  python: { files: { loader: "", module: "", wasm: "", library: "", wheel: "", snapshot: "" } },
};
for (let message = await next(); message; message = await next()) {
  try {
    let value: unknown;
    if (message.open !== undefined) {
      model?.device.close();
      const request = {
        model: new Blob([bytes(message.open)]),
        external: {},
        urls,
        flavour: "simd128" as const,
        threads: 1,
        cache_files: false,
        ...message.options,
      };
      model = await openModel(
        request,
        new AbortController().signal,
        () => undefined,
        () => python,
      );
      value = model.info;
    } else if (message.run) {
      const feeds = Object.fromEntries(
        Object.entries(message.run.feeds).map(([n, v]) => [n, decoded(v)]),
      );
      const ending = { aborted: false };
      const timer =
        message.run.abort === undefined
          ? undefined
          : setTimeout(() => {
              ending.aborted = true;
            }, message.run.abort);
      try {
        const { outputs, pinned, copied } = message.run;
        const kept = copied ? { names: copied, bytes: 1 } : undefined;
        const out = await model!.run(
          { feeds, outputs, seed: undefined, pinned: pinned ?? undefined, kept },
          [],
          ending,
          () => undefined,
        );
        value = {
          outputs: out.map(encoded),
          used: model!.library.pool.used,
          driven: (model as Json).driver.runs,
        };
      } finally {
        clearTimeout(timer);
      }
    } else if (message.kept !== undefined) {
      for (const [name, data] of Object.entries(message.kept as Record<string, string>))
        kept.set(name, new Blob([bytes(data)]));
      value = {};
      for (const [name, blob] of kept)
        (value as Json)[name] = text(new Uint8Array(await blob.arrayBuffer()));
    } else if (message.read !== undefined) value = text(await model!.read(message.read));
    else if (message.artifacts) {
      training?.close();
      training = undefined;
      const files = new Map(
        Object.entries(message.artifacts as Record<string, string>).map(([n, b]) => [
          n,
          new Blob([bytes(b)]),
        ]),
      );
      training = await ArtifactSession.open(
        files,
        urls,
        { flavour: "simd128", threads: 1 },
        signal,
        () => python,
      );
      value = training.info;
    } else if (message.step) {
      const feeds = Object.fromEntries(
        Object.entries(message.step.feeds as Record<string, Json>).map(([n, v]) => [
          n,
          { ...v, data: bytes(v.data) },
        ]),
      );
      const { values } = await training!.run(
        message.step.kind,
        feeds as Parameters<ArtifactSession["run"]>[1],
        signal,
      );
      value = Object.fromEntries(
        Object.entries(values).map(([n, v]) => [n, { ...v, data: text(v.data as Uint8Array) }]),
      );
    } else if (message.update) value = training!.update();
    else if (message.reset) value = training!.reset();
    else if (message.save) value = text(await training!.save(true));
    else if (message.export) value = text(await training!.export(message.export));
    else if (message.drop) {
      model!.drop(message.drop);
      value = model!.library.pool.used;
    }
    send({ value: value ?? null });
  } catch (e) {
    send({ error: plainError(e), aborted: e instanceof Aborted });
  }
}
process.exit(0);
