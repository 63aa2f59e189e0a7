// Prefixes of prompts, as a page saves and loads them.

import { openDevice } from "../../src/device/open.ts";
import { BlobSource } from "../../src/shared/files/source.ts";
import { sha256 } from "../../src/shared/sha256.ts";
import { checkTable, decoderOf } from "../../src/worker/model/checks.ts";
import { EngineDecoder } from "../../src/worker/model/decoder.ts";
import type { Model } from "../../src/worker/model/model.ts";
import { Weights } from "../../src/worker/model/weights.ts";
import { openPackage } from "../../src/worker/package/package.ts";
import { loadPrefix, savePrefix } from "../../src/worker/prefix/index.ts";

type Bytes = Uint8Array<ArrayBuffer>;
const WHERE = "model.edge";
const models = new Map<string, Promise<Model>>();

async function load(bytes: Bytes, engineUrl: string, sums: boolean): Promise<Model> {
  const opened = await openPackage(new BlobSource(new Blob([bytes]), WHERE));
  const options = { engineUrl, threadUrl: "", threads: 1, full: true } as const;
  const device = await openDevice({ ...options, flavour: "simd128" });
  const { manifest } = opened;
  checkTable(device, manifest, WHERE);
  const of = decoderOf(manifest, WHERE);
  const weights = new Weights(device, manifest);
  await opened.finish(weights.extents(manifest, WHERE));
  const parts = [weights, opened.files, {}, {}, WHERE, true] as const;
  const decoder = new EngineDecoder(device, of, ...parts);
  const info = { memory: {} };
  const described = manifest.weights;
  if (!sums) for (const weight of described.values()) delete weight.sums;
  return { device, decoder, weights, described, info } as unknown as Model;
}

/** Bits of the logits after a prompt, and the tokens of it that were kept. */
async function logitsOf({ decoder }: Model, prompt: number[], keeps: boolean) {
  const { kept, prefill_chunk: piece = 1 } = decoder;
  const taken = keeps ? kept!.take(decoder.key(), prompt) : undefined;
  const sequence = taken?.sequence ?? decoder.open();
  const past = taken?.past ?? 0;
  let at = 0;
  for (let done = past; done < prompt.length; done += piece)
    at = await decoder.forward(sequence, prompt.slice(done, done + piece));
  const bits = sha256(decoder.engine.read(at, 4 * decoder.vocab_size));
  decoder.close(sequence);
  return { bits, past };
}

/**
 * @param parts a package; a file, or nothing; the JSON of the token ids of a prefix and of prompts,
 *   and whether the weights have checksums: those of models that a page compiles have none
 * @returns without a file: that of the prefix, in base64; else its tokens, and of each prompt how
 *   many were kept, and whether the logits are those without
 */
export async function prefixAnswer([packed, file, text]: Bytes[], url: string): Promise<unknown> {
  const { prefix, prompts, sums } = JSON.parse(new TextDecoder().decode(text)) as {
    prefix: number[];
    prompts: number[][];
    sums: boolean;
  };
  const key = `${sha256(packed!)} ${sums}`;
  if (!models.has(key)) models.set(key, load(packed!, url, sums));
  const model = await models.get(key)!;
  const { decoder } = model;
  decoder.clearCache();
  const { signal } = new AbortController();
  if (!file!.length) {
    const request = { model: 0, input: { input_ids: prefix }, options: {} };
    const blob = await savePrefix(model, request, signal);
    return { file: Buffer.from(await blob.arrayBuffer()).toString("base64") };
  }
  const count = await loadPrefix(model, new Blob([file!]));
  const results: { past: number; same: boolean }[] = [];
  for (const prompt of prompts) {
    const { bits, past } = await logitsOf(model, prompt, true);
    results.push({ past, same: bits === (await logitsOf(model, prompt, false)).bits });
    await loadPrefix(model, new Blob([file!]));
  }
  return { count, results };
}
