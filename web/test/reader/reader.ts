// The page's readers of files, for tests in other languages: `node read.mjs` bundles and runs this.
// Requests on stdin: u32 kind, u32 length, bytes. Responses on stdout: u32 length, JSON: {"error",
// "what", "where", "remedy"} or {"ok"}.

import { readSync, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { openDevice } from "../../src/device/open.ts";
import { asFloat32, readSafetensors } from "../../src/shared/checkpoints/safetensors.ts";
import { BlobSource } from "../../src/shared/files/source.ts";
import { isEdgewise } from "../../src/shared/files/stream.ts";
import { graphOf } from "../../src/worker/inference/manifest.ts";
import { checkRoom, checkTable, decoderOf } from "../../src/worker/model/checks.ts";
import { EngineDecoder } from "../../src/worker/model/decoder.ts";
import { Weights } from "../../src/worker/model/weights.ts";
import { openPackage } from "../../src/worker/package/package.ts";
import { graphs } from "../../src/worker/package/parse.ts";
import { Adapters } from "../../src/worker/training/adapters.ts";
import { checkpointAnswer } from "./checkpoints.ts";
import { prefixAnswer } from "./prefix.ts";
import { taskAnswer } from "./tasks.ts";

type Bytes = Uint8Array<ArrayBuffer>;
const WHERE = "model.edge";
graphs.read = graphOf; // as inference/service.ts does

globalThis.fetch = (async (url: string) =>
  new Response(await readFile(new URL(url)), {
    headers: { "Content-Type": "application/wasm" },
  })) as typeof fetch;
const [engineUrl] = process.argv.slice(2);

/** Reads a package as a page does before it has an engine. */
async function read(bytes: Bytes): Promise<unknown> {
  const opened = await openPackage(new BlobSource(new Blob([bytes]), WHERE));
  await opened.finish(new Map());
  return { files: opened.files.size };
}

/**
 * Loads a package into an engine and runs a few steps; with an adapter if one follows a zero byte.
 */
async function play(bytes: Bytes, adapter?: { name: string; blob: Blob }[]): Promise<unknown> {
  const opened = await openPackage(new BlobSource(new Blob([bytes]), WHERE));
  const device = await openDevice({
    engineUrl: engineUrl!,
    threadUrl: "",
    flavour: "simd128",
    threads: 1,
    full: true,
  });
  try {
    const { manifest } = opened;
    checkTable(device, manifest, WHERE);
    const described = decoderOf(manifest, WHERE);
    checkRoom(manifest, described, WHERE, device.maxBytes!);
    const weights = new Weights(device, manifest);
    await opened.finish(weights.extents(manifest, WHERE));
    const decoder = new EngineDecoder(
      device,
      described,
      weights,
      opened.files,
      {},
      {},
      WHERE,
      !manifest.training.size,
    );
    const adapters = new Adapters(device, weights, decoder, manifest);
    if (adapter) {
      await adapters.load(adapter, "a");
      await adapters.use("a", 1);
    }
    const sequence = decoder.open();
    const logits: number[][] = [];
    for (const ids of [[1, 2, 3], [4]]) {
      const at = await decoder.forward(sequence, ids);
      const bytes = device.host.read(at, 4 * Math.min(decoder.vocab_size, 10_000));
      logits.push([...new Float32Array(bytes.buffer)]);
    }
    if (adapter) await adapters.load(await adapters.save("a"), "b");
    return { logits: logits.map((l) => l.map((x) => (Number.isFinite(x) ? x : String(x)))) };
  } finally {
    device.close();
  }
}

/** u32 length and bytes, repeated. */
function parts(bytes: Bytes): Bytes[] {
  const out: Bytes[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = new DataView(bytes.buffer, bytes.byteOffset + at).getUint32(0, true);
    out.push(bytes.slice(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return out;
}

async function safetensors(bytes: Bytes): Promise<unknown> {
  const { tensors } = await readSafetensors(new Blob([bytes]), "x.safetensors");
  for (const [name, { offset, bytes: n, dtype }] of tensors)
    if (["float32", "float16", "bfloat16"].includes(dtype))
      asFloat32(bytes.slice(offset, offset + n), dtype, name);
  return { tensors: tensors.size };
}

async function adapter(bytes: Bytes): Promise<unknown> {
  const [packed, config, tensors] = parts(bytes);
  return play(packed!, [
    { name: "adapter_config.json", blob: new Blob([config!]) },
    { name: "adapter_model.safetensors", blob: new Blob([tensors!]) },
  ]);
}

const KINDS = [
  read,
  play,
  safetensors,
  adapter,
  (bytes: Bytes) => checkpointAnswer(parts(bytes)),
  (bytes: Bytes) => taskAnswer(parts(bytes), engineUrl!),
  (bytes: Bytes) => prefixAnswer(parts(bytes), engineUrl!),
];

function receive(bytes: number): Bytes | undefined {
  const out = new Uint8Array(bytes);
  for (let at = 0; at < bytes; ) {
    let n = 0;
    try {
      n = readSync(0, out, at, bytes - at, null);
    } catch (e) {
      if ((e as { code?: string }).code !== "EAGAIN") throw e;
      continue;
    }
    if (!n) return undefined;
    at += n;
  }
  return out;
}

for (;;) {
  const head = receive(8);
  if (!head) break;
  const [kind, length] = new Uint32Array(head.buffer);
  const bytes = receive(length!)!;
  let answer: unknown;
  try {
    answer = { ok: await KINDS[kind!]!(bytes) };
  } catch (e) {
    answer = isEdgewise(e)
      ? { error: e.name, what: e.what, where: e.where, remedy: e.remedy }
      : {
          error: "ESCAPED",
          what: e instanceof Error ? (e.stack ?? e.message) : String(e),
          where: "",
          remedy: "",
        };
  }
  const json = new TextEncoder().encode(JSON.stringify(answer));
  const out = new Uint8Array(4 + json.length);
  new DataView(out.buffer).setUint32(0, json.length, true);
  out.set(json, 4);
  for (let at = 0; at < out.length; ) {
    try {
      at += writeSync(1, out, at);
    } catch (e) {
      if ((e as { code?: string }).code !== "EAGAIN") throw e;
    }
  }
}
