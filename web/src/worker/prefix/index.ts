// Prefixes of prompts in files, which Python reads as well: logic/generation/prefix.py says what
// they hold.

import {
  check_bytes,
  check_file,
  common,
  continuations,
  IDS,
  metadata_of,
  type PrefixModel,
  STATE,
  sum_of,
  tensors_of,
  weight_parts,
  whole_pieces,
} from "../../logic/generation/prefix.ts";
import { inputs_of, is_ids } from "../../logic/generation/text.ts";
import type { PrefixRequest, Prompt } from "../../protocol/generation.ts";
import { readSafetensors, safetensorsHead } from "../../shared/checkpoints/safetensors.ts";
import { InputError } from "../../shared/errors.ts";
import { int32_bytes, int32s } from "../../shared/native.ts";
import { sha256 } from "../../shared/sha256.ts";
import type { Model } from "../model/model.ts";
import { type Input, promptOf, toolsOf } from "../model/text-generation.ts";

/** Bytes at the beginning of a weight that tell models apart which have no checksums. */
const EDGE = 4096;

/** Digests of models. */
const known = new WeakMap<Model, string>();

type Bytes = Map<string, Uint8Array<ArrayBuffer>>;

/** The states after a prefix. @throws InputError, TokenizerError, Aborted */
export async function savePrefix(
  model: Model,
  { input, options }: PrefixRequest,
  signal: AbortSignal,
): Promise<Blob> {
  const ids = await idsOf(model, input, options);
  const about = await describe(model);
  const { capacity } = about;
  const count = whole_pieces(ids.length, about.piece, capacity);
  const states = await model.decoder.statesOf(ids, count, signal);
  const contents: Bytes = new Map([[IDS, int32_bytes(ids.slice(0, count))]]);
  for (const [name, bytes] of states) contents.set(STATE + name, bytes);
  const infos = new Map(
    tensors_of(about, count).map(([name, { dtype, shape }]) => [
      name,
      { dtype, shape, bytes: contents.get(name)!.length },
    ]),
  );
  const metadata = metadata_of(about, sum_of(digests(contents)));
  const { head, order } = safetensorsHead(infos, Object.fromEntries(metadata));
  return new Blob([head, ...order.map((name) => contents.get(name)!)]);
}

/**
 * Puts the states of a file among those that are kept.
 * @returns its tokens
 * @throws ModelError, InputError
 */
export async function loadPrefix(model: Model, file: Blob, where = "prefix"): Promise<number> {
  const { decoder } = model;
  if (!decoder.kept)
    throw new InputError(
      "the model keeps no states",
      "loadPrefix",
      "Load it with another cache_bytes than 0.",
    );
  const { tensors, metadata } = await readSafetensors(file, where);
  const about = await describe(model);
  const count = check_file(about, metadata, Object.fromEntries(tensors), where);
  const contents: Bytes = new Map();
  for (const [name, { offset, bytes }] of tensors)
    contents.set(name, new Uint8Array(await file.slice(offset, offset + bytes).arrayBuffer()));
  const ids = int32s(contents.get(IDS)!);
  check_bytes(about, ids, sum_of(digests(contents)), metadata, where);
  decoder.kept.put(decoder.key(), ids, (sequence) =>
    decoder.fill(sequence, ids, ({ name }) => contents.get(STATE + name)!),
  );
  model.info.memory.kept = decoder.kept.bytes();
  return count;
}

/** The token ids that all prompts have which begin so. */
async function idsOf(
  model: Model,
  input: PrefixRequest["input"],
  options: PrefixRequest["options"],
): Promise<number[]> {
  const [inputs]: [Input[], boolean] = inputs_of(input);
  if (inputs.length !== 1)
    throw new InputError("there are several prefixes", "savePrefix", "Save one at a time.");
  const [given] = inputs;
  if (is_ids(given)) return Array.from((given as Prompt).input_ids);
  const tools = await toolsOf({ options, deltas: false });
  const prompts: number[][] = [];
  for (const one of continuations(given as string | Exclude<Input, string | Prompt>))
    prompts.push((await promptOf(model, one as Input, options, tools, null)).prompt);
  return common(prompts);
}

const digests = (contents: Bytes): [string, string][] =>
  Array.from(contents, ([name, bytes]) => [name, sha256(bytes)]);

/** The model, as far as the states of prefixes depend on it. */
async function describe(model: Model): Promise<PrefixModel> {
  const { decoder, device, weights } = model;
  const { info } = decoder;
  const active = model.adapters?.list().find((one) => one.active);
  if (active?.kind === "full")
    throw new InputError(
      "its weights are those of a training session, and may change at any time",
      "prefix",
      "Save a package of the trained model, and load that.",
    );
  const values: Bytes = new Map();
  const slots = active ? info.plans.flatMap((plan) => plan.slots) : [];
  for (const { name, kind, bytes } of slots)
    if (kind === "state" && !values.has(name))
      values.set(name, await device.read(weights.adapter(name, bytes), 0, bytes));
  const digest = known.get(model) ?? (await digestOf(model));
  known.set(model, digest);
  return {
    capacity: info.capacity,
    vocab_size: info.vocabSize,
    cache_dtype: info.cacheDtype,
    caches: info.caches,
    window: decoder.window,
    piece: decoder.prefill_chunk ?? null,
    engine: device.tableHash,
    digest,
    adapter: sum_of(digests(values)),
  };
}

/** A digest of the plans and weights of a model. */
async function digestOf({ decoder, device, weights, described }: Model): Promise<string> {
  const plans: [string, string][] = decoder.info.plans.map(({ file }) => [
    file,
    sha256(decoder.files.get(file)!),
  ]);
  const list = [...described.values()];
  if (list.every(({ sums }) => sums))
    return sum_of([
      ...plans,
      ...weight_parts(list, Object.fromEntries(list.map(({ name, sums }) => [name, sums!]))),
    ]);
  const ranges = weights.all().map(([name, buffer]) => [name, buffer] as const);
  for (const [name, buffer] of ranges) {
    const start = await device.read(buffer, 0, Math.min(EDGE, buffer.bytes));
    plans.push([`weight ${name}`, `${buffer.bytes} ${sha256(start)}`]);
  }
  return sum_of(plans);
}
