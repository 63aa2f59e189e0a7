import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { TASK_NAMES } from "../../src/page/pipelines/tasks.ts";
import { makeError, plainError } from "../../src/protocol/errors.ts";
import { PackageError } from "../../src/shared/errors.ts";
import { NotFound } from "../../src/shared/files/connection.ts";
import { BlobSource, scatter } from "../../src/shared/files/source.ts";
import type { ByteSource } from "../../src/shared/files/stream.ts";
import { blobOf, checkBytes } from "../../src/shared/inputs.ts";
import { chooseBuild, fileName, type Platform } from "../../src/shared/platform.ts";
import { digestOf, Sha256, sha256 } from "../../src/shared/sha256.ts";
import type { Remote } from "../../src/worker/files/downloads.ts";
import { Listing } from "../../src/worker/files/listing.ts";
import { type DTypes, dtypeOf, SUFFIX } from "../../src/worker/model/dtypes.ts";
import { graphFiles, openGraphs, readFirst, urlOf } from "../../src/worker/model/onnx/graphs.ts";
import { alternativesIn, folderTexts, locate, sortFiles } from "../../src/worker/model/onnx/hub.ts";
import { makePackage, openPackage } from "../../src/worker/package/package.ts";
import { parseManifest, planBytes, refusedManifests } from "../common/manifests.ts";

test("the engine without threads has the file of the one with threads", () => {
  assert.equal(fileName("simd128"), "edgewise-simd128-threads.wasm");
  assert.equal(fileName("simd128-full"), "edgewise-simd128-threads-full.wasm");
  for (const build of ["simd128-threads", "simd128-threads-full", "relaxed-threads-64"])
    assert.equal(fileName(build), `edgewise-${build}.wasm`);
});

test("files of another realm are files", async () => {
  const { buffer, blob } = runInNewContext(
    "({ buffer: new Uint8Array([1, 2]).buffer, blob: { [Symbol.toStringTag]: 'File' } })",
  );
  assert.ok(!(buffer instanceof ArrayBuffer));
  assert.equal((await blobOf(buffer, "file").arrayBuffer()).byteLength, 2);
  assert.equal(blobOf(blob, "file"), blob);
  for (const wrong of [undefined, "a", {}, [1]])
    assert.throws(() => blobOf(wrong, "file"), /it is no file/);
});

test("a number of bytes is finite, and not negative", () => {
  for (const right of [undefined, 0, 1.5, 2 ** 40]) checkBytes("expert_bytes", right);
  for (const wrong of [-1, Infinity, Number.NaN, "1", null])
    assert.throws(() => checkBytes("expert_bytes", wrong), /options.expert_bytes/);
});

test("SHA-256 of chunks of any size", () => {
  for (const size of [0, 1, 55, 56, 63, 64, 65, 127, 128, 1000, 100_000]) {
    const data = new Uint8Array(randomBytes(size));
    const hash = new Sha256();
    for (let at = 0; at < size; ) {
      const n = 1 + Math.floor(Math.random() * 200);
      hash.update(data.subarray(at, at + n));
      at += n;
    }
    assert.equal(hash.hex(), createHash("sha256").update(data).digest("hex"), `${size} bytes`);
  }
  const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  assert.equal(sha256(""), empty);
  for (const text of [
    empty,
    empty.toUpperCase(),
    `sha256-${empty}`,
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
  ])
    assert.equal(digestOf(text), empty);
  assert.equal(digestOf("sha384-x"), undefined);
});

const slots = (tokens: number) => [
  { name: "w", kind: "weight", dtype: "float32", shape: [4], bytes: 16 },
  { name: "c", kind: "computed", dtype: "float32", shape: [2], bytes: 8 },
  { name: "past", kind: "cache", dtype: "float32", shape: [8], bytes: 32 },
  { name: "input_ids", kind: "input", dtype: "int64", shape: [1, tokens], bytes: 8 * tokens },
  { name: "logits", kind: "output", dtype: "float32", shape: [1, 5], bytes: 20 },
];
const manifest = () => ({
  format: 2,
  table_hash: 7,
  task: "text-generation",
  files: { "plan/1": [0, 10], "plan/4": [64, 10], weights: [128, 64] },
  sha256: { "plan/1": "0".repeat(64), "plan/4": "0".repeat(64) },
  weights: [
    { name: "w", file: "weights", offset: 0, bytes: 16, sums: ["0123456789abcdef"] },
    { name: "v", file: "model.onnx", offset: 99, bytes: 16 },
  ],
  decoder: {
    capacity: 8,
    vocab_size: 5,
    logits_type: "float32",
    recompute: false,
    caches: [{ name: "past", bytes: 32 }],
    plans: [4, 1].map((tokens) => ({
      tokens,
      file: `plan/${tokens}`,
      registers: { past: 0, last: 1 },
      slots: slots(tokens),
    })),
  },
});

test("a manifest is parsed", () => {
  const m = parseManifest(JSON.stringify(manifest()), "x.edge", 192, true);
  assert.deepEqual(
    m.decoder!.plans.map((p) => p.tokens),
    [1, 4],
  );
  assert.equal(m.weights.get("v")!.file, "model.onnx");
});

test("an invalid manifest raises a PackageError", () => {
  const refused = refusedManifests(manifest, []);
  assert.ok(refused > 1000, String(refused));
});

test("packages survive a round trip; truncation and flipped bits are detected", async () => {
  const files = new Map([1, 4].map((tokens) => [`plan/${tokens}`, planBytes(slots(tokens))]));
  const { files: _, sha256: __, ...rest } = manifest();
  const blob = makePackage(
    {
      ...rest,
      weights: rest.weights
        .slice(1)
        .concat({ name: "w", file: "model.onnx", offset: 0, bytes: 16 }),
    },
    files,
  );
  const open = async (b: Blob) => {
    const opened = await openPackage(new BlobSource(b, "x.edge"), true);
    await opened.finish(new Map());
    return opened;
  };
  const opened = await open(blob);
  for (const [name, bytes] of files) assert.deepEqual(opened.files.get(name), bytes);
  const whole = new Uint8Array(await blob.arrayBuffer());
  for (let n = 0; n < whole.length; n += 37)
    if (n < whole.length - 48)
      await assert.rejects(open(new Blob([whole.subarray(0, n)])), PackageError, `cut at ${n}`);
  const last = whole.slice();
  last[last.length - 64]! ^= 1;
  await assert.rejects(open(new Blob([last])), PackageError);
});

test("plans are ready, and verified, before the weights of a package arrive", async () => {
  const files = new Map([1, 4].map((tokens) => [`plan/${tokens}`, planBytes(slots(tokens))]));
  const { files: _, sha256: __, ...rest } = manifest();
  const [first, ...more] = rest.weights;
  const parts = new Map([...files, ["weights", new Uint8Array(4096).fill(7)]]);
  const table: Record<string, [number, number]> = {};
  let end = 0;
  for (const [name, { length }] of parts) {
    table[name] = [end, length];
    end += Math.ceil(length / 64) * 64;
  }
  const unsigned = JSON.stringify({
    manifest_sha256: "0".repeat(64),
    ...rest,
    files: table,
    sha256: Object.fromEntries(Array.from(files, ([name, bytes]) => [name, sha256(bytes)])),
    weights: [first, ...more].map((w, i) => ({
      ...first,
      ...{ name: w!.name, offset: 64 * i },
    })),
  });
  const json = new TextEncoder().encode(unsigned.replace("0".repeat(64), sha256(unsigned)));
  const dataAt = Math.ceil((16 + json.length) / 64) * 64;
  const whole = new Uint8Array(dataAt + end);
  whole.set(new TextEncoder().encode("EDGEWISE"));
  new DataView(whole.buffer).setBigUint64(8, BigInt(json.length), true);
  whole.set(json, 16);
  for (const [name, bytes] of parts) whole.set(bytes, dataAt + table[name]![0]);
  const source = {
    name: "x.edge",
    size: whole.length,
    open: async () => undefined,
    async *stream() {
      for (let at = 0; at < whole.length; at += 512) yield whole.slice(at, at + 512);
    },
  } as unknown as ByteSource;
  const opened = await openPackage(source);
  const events: string[] = [];
  const write = (chunk: Uint8Array) => void events.push(`${chunk.length}`);
  await opened.finish(new Map([["weights", [{ start: 0, bytes: 4096, write }]]]), () => {
    for (const [name, bytes] of files) assert.deepEqual(opened.files.get(name), bytes);
    events.push("ready");
  });
  assert.equal(events[0], "ready");
  assert.ok(events.length > 8, "several pieces follow");
});

test("ranges of a stream are delivered, overlapping ones too", async () => {
  const data = new Uint8Array(randomBytes(10_000));
  async function* chunks() {
    for (let at = 0; at < data.length; at += 333) yield data.subarray(at, at + 333);
  }
  const wanted = Array.from({ length: 40 }, () => {
    const start = Math.floor(Math.random() * 9000);
    const target = new Uint8Array(Math.floor(Math.random() * 1000));
    return {
      start,
      bytes: target.length,
      target,
      write: (chunk: Uint8Array, at: number) => target.set(chunk, at),
    };
  });
  assert.equal(await scatter(chunks(), 0, wanted), data.length);
  for (const w of wanted) assert.deepEqual(w.target, data.slice(w.start, w.start + w.bytes));
});

test("tasks on pictures and sound ask for the settings of their processor", () => {
  const texts =
    /text|token|mask|question|^feature|embeddings|sentiment|ner|transl|summar|zero-shot-cl/;
  const aliases = ["asr", "ocr"];
  const ocr = "optical-character-recognition"; // its models have no settings, but a dictionary
  assert.deepEqual(folderTexts(ocr), ["dict.txt"]);
  for (const task of TASK_NAMES.filter((name) => !texts.test(name) && !aliases.includes(name)))
    assert.ok(task === ocr || folderTexts(task).includes("preprocessor_config.json"), task);
});

test("models are located", () => {
  const options = {
    task: "text-generation",
    remoteHost: "https://hub.test",
    remotePathTemplate: "{model}/resolve/{revision}/",
    revision: "main",
    dtype: "auto" as const,
    subfolder: "onnx",
    model_file_name: "model",
  };
  const page = "https://site.test/app/index.html";
  const graphs = (model: string, more = {}) => {
    const place = locate(model, page, { ...options, ...more });
    return [place.folder, urlOf(place.graphs[0]![0]!.candidates[0]!.path, place.graphFolder)];
  };
  assert.deepEqual(graphs("org/name"), [
    "https://hub.test/org/name/resolve/main/",
    "https://hub.test/org/name/resolve/main/onnx/model_quantized.onnx",
  ]);
  assert.deepEqual(graphs("org/name", { dtype: "q4", revision: "v1/x" }), [
    "https://hub.test/org/name/resolve/v1%2Fx/",
    "https://hub.test/org/name/resolve/v1%2Fx/onnx/model_q4.onnx",
  ]);
  assert.deepEqual(graphs("./models/a", { dtype: "fp32", subfolder: "" }), [
    "https://site.test/app/models/a/",
    "https://site.test/app/models/a/model.onnx",
  ]);
  assert.deepEqual(graphs("/m/onnx/model_q4.onnx"), [
    "https://site.test/m/",
    "https://site.test/m/onnx/model_q4.onnx",
  ]);
  const files = (...names: string[]) => names.map((name) => ({ name, blob: new Blob(["x"]) }));
  const q4 = { ...options, dtype: "q4" as const };
  const given = sortFiles(files("model.onnx", "model_q4.onnx", "tokenizer.json"), q4);
  assert.ok(given.kind === "onnx" && !given.files.has("model.onnx"));
  assert.deepEqual(given.graphs, [{ stem: "model", name: "model_q4.onnx", dtype: "q4" }]);
  assert.throws(() => sortFiles(files("a.onnx", "b.onnx"), options), /2 .onnx files/);
  assert.throws(() => locate("a/b", page, { ...options, dtype: "q3" as never }), /dtype is 'q3'/);
});

test("files of transducers may have more words in their names", () => {
  const task = "automatic-speech-recognition";
  const parts = ["encoder", "decoder", "joiner"];
  const named = (end: string) => parts.map((part) => `${part}-epoch-99-avg-1${end}.onnx`);
  const files = (...names: string[]) => names.map((name) => ({ name, blob: new Blob(["x"]) }));
  const found = (dtype: DTypes, ...names: string[]) => {
    const given = sortFiles(files(...names, "tokens.txt"), {
      task,
      dtype,
      model_file_name: "model",
    });
    assert.ok(given.kind === "onnx" && given.files.size === 4);
    return given.graphs.map(({ stem, name }) => [stem, name]);
  };
  const stems = ["encoder", "predictor", "joiner"];
  const pairs = (end: string) => named(end).map((name, i) => [stems[i], name]);
  assert.deepEqual(found("auto", ...named(".int8"), ...named("")), pairs(""));
  assert.deepEqual(found("auto", ...named(".int8")), pairs(".int8"));
  assert.deepEqual(found("int8", ...named(".int8"), ...named("")), pairs(".int8"));
  const mixed = [named(".int8")[0]!, named("")[1]!, named(".int8")[2]!];
  for (const dtype of [{ encoder: "int8", joiner: "int8" }, { decoder: "fp32" }] as DTypes[])
    assert.deepEqual(
      found(dtype, ...named(".int8"), mixed[1]!),
      mixed.map((name, i) => [stems[i], name]),
    );
  assert.throws(() => found("fp16", ...named("")), /they lack/);
});

test("a hub's listing says the names of a transducer's files", () => {
  const folder = "https://hub.test/a/b/resolve/main/";
  const task = "automatic-speech-recognition";
  const parts = ["encoder", "decoder", "joiner"];
  const listing = (...names: string[]) =>
    new Listing(folder, new Map(names.map((n) => [n, { size: 1, version: "" }])), true);
  const options = { task, dtype: { encoder: "int8", joiner: "int8" } as DTypes };
  const named = [[{ stem: "encoder", optional: false, candidates: [] }]];
  const long = parts.flatMap((p) => [`exp 1/${p}-avg-1.int8.onnx`, `exp 1/${p}-avg-1.onnx`]);
  const found = alternativesIn(listing(...long), named, folder, options);
  assert.deepEqual(
    found.map((files) => files.map(({ candidates }) => candidates)),
    [
      [
        [{ path: long[0], dtype: "int8" }],
        [{ path: long[3], dtype: "auto" }],
        [{ path: long[4], dtype: "int8" }],
      ],
    ],
  );
  const exact = [
    parts.map((stem) => ({
      ...{ stem, optional: false },
      candidates: [{ path: `${stem}.onnx`, dtype: "fp32" }],
    })),
  ];
  const both = listing(...long, ...parts.map((p) => `${p}.onnx`));
  assert.equal(alternativesIn(both, exact, folder, options), exact);
  assert.equal(alternativesIn(undefined, exact, folder, options), exact);
  assert.equal(alternativesIn(listing("a.onnx"), exact, folder, options), exact);
});

test("the files of a task with several graphs are found", async () => {
  const options = {
    task: "translation",
    dtype: { encoder_model: "fp32", decoder_model: "q8" } as const,
    model_file_name: "model",
  };
  const files = (...names: string[]) => names.map((name) => ({ name, blob: new Blob(["x"]) }));
  const one = "onnx/encoder_model.onnx";
  const two = ["decoder_model_quantized.onnx", "decoder_with_past_model_q4.onnx"];
  const given = sortFiles(files(one, ...two, "encoder_model_q4.onnx", "config.json"), options);
  assert.ok(given.kind === "onnx");
  assert.deepEqual(
    given.graphs.map(({ name, dtype }) => [name, dtype]),
    [
      [one, "fp32"],
      [two[0], "q8"],
      [two[1], "q4"],
    ],
  );
  assert.deepEqual([...given.files.keys()], [one, ...two, "config.json"]);
  assert.throws(() => sortFiles(files(one, two[0]!), options), /they lack encoder_model.onnx/);
  assert.throws(
    () => sortFiles(files(one), { ...options, dtype: { model: "q4" } }),
    /no file 'model'/,
  );
  const there = ["https://a.test/m/onnx/encoder_model_quantized.onnx"];
  there.push("https://a.test/m/decoder_model_merged.onnx");
  const asked: string[] = [];
  const opened = await openGraphs(
    graphFiles("translation", "auto", "onnx", "model"),
    "https://a.test/m/",
    async (url) => {
      asked.push(url);
      if (!there.includes(url)) throw new NotFound(url, 404);
      return { url } as Remote;
    },
  );
  assert.deepEqual(
    Array.from(opened, ([{ stem, name, dtype }, { url }]) => [stem, name, dtype, url]),
    [
      ["encoder_model", "onnx/encoder_model_quantized.onnx", "q8", there[0]],
      ["decoder_model_merged", "decoder_model_merged.onnx", "fp32", there[1]],
    ],
  );
  await assert.rejects(
    openGraphs(graphFiles("translation", "q4", "", "model"), "https://a.test/m/", async (url) => {
      throw new NotFound(url, 404);
    }),
    /it lacks encoder_model.onnx, decoder_model_merged.onnx; or/,
  );
});

test("the file of a model is found beside config.json", async () => {
  const open = async (url: string) => {
    if (url !== "https://a.test/m/model.onnx") throw new NotFound(url, 404);
    return { url, name: "model.onnx" } as Remote;
  };
  const found = (dtype: "auto" | "q4", subfolder = "onnx") =>
    openGraphs(
      graphFiles("text-classification", dtype, subfolder, "model"),
      "https://a.test/m/",
      open,
    );
  assert.deepEqual([...(await found("auto")).keys()][0]!.dtype, "fp32");
  await assert.rejects(found("q4"), /Tried onnx\/model_q4.onnx, model_q4.onnx\. /);
  await assert.rejects(found("auto", "mine"), /Tried mine\/model_quantized.onnx, mine\/model_q4/);
});

test("a model is taken as one file or as two", async () => {
  const task = "zero-shot-image-classification";
  const options = { task, dtype: "auto" as const, model_file_name: "model" };
  const files = (...names: string[]) => names.map((name) => ({ name, blob: new Blob(["x"]) }));
  const stems = (...names: string[]) => {
    const given = sortFiles(files(...names, "config.json"), options);
    return given.kind === "onnx" ? given.graphs.map(({ stem, name }) => [stem, name]) : [];
  };
  const two = ["onnx/vision_model.onnx", "onnx/text_model_quantized.onnx"] as const;
  const halves = [
    ["vision_model", two[0]],
    ["text_model", two[1]],
  ];
  assert.deepEqual(stems(...two), halves);
  assert.deepEqual(stems("model_q4.onnx", ...two), [["model", "model_q4.onnx"]]);
  assert.deepEqual(stems("clip.onnx"), [["model", "clip.onnx"]]);
  assert.throws(() => stems("a.onnx", two[0]), /they lack model.onnx; or vision_model.onnx/);
  const open = async (url: string) => {
    if (!two.some((name) => url === `https://a.test/m/${name}`)) throw new NotFound(url, 404);
    return { url } as Remote;
  };
  const found = await openGraphs(
    graphFiles(task, "auto", "onnx", "model"),
    "https://a.test/m/",
    open,
  );
  assert.deepEqual(
    Array.from(found.keys(), ({ stem, name }) => [stem, name]),
    halves,
  );
  const named = graphFiles(task, "fp32", "onnx", "mine");
  assert.deepEqual(
    named.map((all) => all.map(({ stem, candidates }) => [stem, candidates[0]!.path])),
    [[["mine", "onnx/mine.onnx"]]],
  );
  const hub = { remoteHost: "", remotePathTemplate: "", revision: "", subfolder: "onnx" };
  const { graphs } = locate("https://a.test/m/clip.onnx", "https://a.test/", {
    ...options,
    ...hub,
  });
  assert.equal(graphs[0]![0]!.stem, "model");
});

test("a decoder of embeddings is found, and its embedding among chosen files", async () => {
  const task = "text-generation";
  const place = "https://a.test/m/";
  const found = async (dtype: DTypes, ...there: string[]) => {
    const asked: string[] = [];
    const opened = await openGraphs(
      graphFiles(task, dtype, "onnx", "model"),
      place,
      async (url) => {
        asked.push(url.slice(place.length));
        if (!there.includes(asked.at(-1)!)) throw new NotFound(url, 404);
        return { url, name: asked.at(-1)!.split("/").pop() } as Remote;
      },
    );
    return { asked, found: [...opened.keys()].map(({ stem, name }) => [stem, name]) };
  };
  const decoder = "decoder_model_merged_q4.onnx";
  assert.deepEqual(await found("q4", "onnx/model_q4.onnx", `onnx/${decoder}`), {
    asked: ["onnx/model_q4.onnx"], // the rest is not asked for
    found: [["model", "model_q4.onnx"]],
  });
  const each = { decoder_model_merged: "q4", embed_tokens: "q8", model: "q4" } as const;
  for (const dtype of ["q4", each] as const)
    assert.deepEqual(await found(dtype, `onnx/${decoder}`), {
      asked: ["onnx/model_q4.onnx", "model_q4.onnx", `onnx/${decoder}`],
      found: [["decoder_model_merged", decoder]],
    });
  await assert.rejects(
    found("q1f16"),
    /Tried onnx\/model_q1f16.onnx, .*decoder_model_merged_q1f16/,
  );
  assert.throws(() => graphFiles(task, { vision: "q4" }, "onnx", "model"), /no file 'vision'/);

  const chosen = (...names: string[]) => {
    const list = names.map((name) => ({ name, blob: new Blob(["x"]) }));
    const given = sortFiles(list, { task, dtype: "auto", model_file_name: "model" });
    return given.kind === "onnx" ? [given.graphs[0]!.name, ...given.files.keys()] : [];
  };
  const embedding = "onnx/embed_tokens_quantized.onnx";
  assert.deepEqual(chosen(embedding, "vision_encoder.onnx", `onnx/${decoder}`, "config.json"), [
    `onnx/${decoder}`,
    ...[embedding, `onnx/${decoder}`, "config.json"],
  ]);
  assert.deepEqual(chosen("embedding.onnx", "vision.onnx", "model.onnx"), [
    "model.onnx",
    ...["embedding.onnx", "model.onnx"],
  ]);
});

test("precisions have the suffixes of transformers.js 4.3.2 (src/utils/dtypes.js)", () => {
  assert.deepEqual(SUFFIX, {
    ...{ fp32: "", fp16: "_fp16", int8: "_int8", uint8: "_uint8", q8: "_quantized" },
    ...{ q4: "_q4", q2: "_q2", q1: "_q1", q4f16: "_q4f16", q2f16: "_q2f16", q1f16: "_q1f16" },
    bnb4: "_bnb4",
  });
  assert.equal(dtypeOf("https://a.test/onnx/model_q1f16.onnx?x"), "q1f16");
});

test("the first file of several names is read", async () => {
  const server: Record<string, string> = { "b.onnx": "<!doctype html>", "c.onnx": "\b\x07" };
  const read = async (...names: string[]) => {
    const asked: string[] = [];
    const open = async (name: string) => {
      asked.push(name);
      if (!(name in server)) throw new NotFound(name, 404);
      return name;
    };
    const found = await readFirst(names, open, async (name) => new Blob([server[name]!]));
    return [found?.[0], ...asked];
  };
  assert.deepEqual(await read("a.onnx", "b.onnx", "c.onnx", "d.onnx"), [
    "c.onnx",
    ...["a.onnx", "b.onnx", "c.onnx"],
  ]);
  assert.deepEqual(await read("a.onnx", "b.onnx"), [undefined, "a.onnx", "b.onnx"]);
  await assert.rejects(read("a.onnx_data"), NotFound);
});

test("builds and threads are chosen, and the reason is given", () => {
  const has = { simd: true, relaxed: true, wide: true, shared: true, isolated: true };
  const all: Platform = { ...has, cores: 8 };
  assert.deepEqual(chooseBuild(all), { flavour: "relaxed-threads", threads: 4, whyNotThreads: "" });
  assert.equal(chooseBuild(all, "auto", 6).threads, 6);
  assert.match(
    chooseBuild({ ...all, isolated: false }).whyNotThreads,
    /Cross-Origin-Opener-Policy/,
  );
  assert.equal(chooseBuild({ ...all, isolated: false }).flavour, "relaxed-threads");
  const safari = { ...all, relaxed: false };
  assert.deepEqual(chooseBuild(safari), {
    flavour: "simd128-threads",
    threads: 4,
    whyNotThreads: "",
  });
  for (const one of [
    chooseBuild({ ...safari, isolated: false }),
    chooseBuild({ ...all, shared: false }),
    chooseBuild(safari, "auto", 1),
  ])
    assert.ok(one.flavour === "simd128" && one.threads === 1 && one.whyNotThreads);
  assert.match(chooseBuild(safari, "relaxed-threads").whyNotThreads, /relaxed SIMD/);
  for (const c of [
    chooseBuild(all, "simd128"),
    chooseBuild(all, "auto", 1),
    chooseBuild({ ...all, cores: 1 }),
  ])
    assert.ok(c.threads === 1 && c.whyNotThreads);
});

test("errors keep class, message and fields between worker and page", () => {
  const e = new PackageError("it is broken", "a.edge", "Fetch it again.");
  const back = makeError(
    structuredClone(plainError(Object.assign(e, { extra: [1, 2], f: () => 0 }))),
  );
  assert.ok(back instanceof PackageError);
  assert.deepEqual(
    [
      back.name,
      back.what,
      back.where,
      back.remedy,
      back.message,
      (back as unknown as { extra: number[] }).extra,
    ],
    ["PackageError", e.what, e.where, e.remedy, e.message, [1, 2]],
  );
  assert.equal(makeError(plainError(new TypeError("oops"))).name, "EngineError");
  assert.equal(
    makeError({ name: "constructor", what: "x", where: "", remedy: "", stack: "", fields: {} })
      .name,
    "EdgewiseError",
  );
});
