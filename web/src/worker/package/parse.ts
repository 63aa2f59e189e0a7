// Validation of a manifest, and what the worker reads of it.

import { FORMAT, MAX_PROGRAMS, PROGRAM_TASKS, TASKS } from "../../gen/manifest.ts";
import {
  type Decoder,
  type Encoder,
  type Inference,
  type Manifest as ManifestJson,
  RECORDS,
  type Seq2SeqDecoder,
  type TrainingProgram,
} from "../../gen/schema.ts";
import { Checker, TOO_DEEP, too_deep } from "../../logic/manifest/checker.ts";
import { check_inference } from "../../logic/manifest/inference.ts";
import {
  type Contents,
  check_decoder,
  check_files,
  check_processor,
  check_seq2seq,
  check_training,
  check_weights,
} from "../../logic/manifest/rules.ts";
import type { graphOf } from "../inference/manifest.ts";
import type { Json } from "./container.ts";
import {
  type DecoderInfo,
  type LoraInfo,
  type Manifest,
  type ProgramInfo,
  type Seq2SeqInfo,
  type StateInfo,
  TRAINING_PLANS,
} from "./manifest.ts";

/**
 * Reads the graphs of packages for other tasks than text generation. The part of the worker that
 * runs graphs brings it (inference/service.ts); without that part their manifests lack them.
 */
export const graphs: { read: typeof graphOf | undefined } = { read: undefined };

/**
 * Parses and checks a manifest. Memory limits are checked elsewhere.
 * @param text the JSON
 * @param where name of the package, for errors
 * @param dataBytes size of the data section, if known
 * @param own whether the package is in the page's own storage, where weights may be in files beside
 *   it
 * @throws PackageError
 */
export function parseManifest(
  text: string,
  where: string,
  dataBytes: number | undefined,
  own = false,
): Manifest {
  const c = new Checker(where, RECORDS);
  const json = parseRoot(c, text);
  const task = c.read_choice(json.task, "task", TASKS);
  const seq2seq = PROGRAM_TASKS.includes(task) && Object.hasOwn(json, "decoder");
  c.check_record(json, recordOf(task, seq2seq), "");
  const root = json as unknown as ManifestJson;

  check_files(c, root, dataBytes ?? null);
  const contents: Contents = {
    files: root.files,
    weights: new Map(),
    adapters: new Map(),
    computed: new Map(),
    own,
  };
  check_weights(c, root.weights, contents);
  check_training(c, root.training ?? [], contents);
  const read = (graph: Inference, at: string) => {
    check_inference(c, graph, at, contents);
    return graphs.read?.(c, graph, at);
  };
  let decoder: DecoderInfo | undefined;
  if (task === "text-generation") {
    check_decoder(c, root.decoder!, contents);
    decoder = decoderOf(root.decoder!);
  }
  const encoding = seq2seq ? parseSeq2Seq(c, root, contents) : undefined;
  const inference = task === "inference" ? read(root.inference!, "inference") : undefined;
  const programs = new Map<string, NonNullable<typeof inference>>();
  if (PROGRAM_TASKS.includes(task))
    for (const [name, program] of programsOf(c, root, seq2seq)) {
      const at = `programs['${name}']`;
      const graph = read(program, at);
      if (!program.outputs.length) c.fail(`${at}.outputs`, "has 0 entries");
      if (graph) programs.set(name, graph);
    }
  if (root.processor) check_processor(c, root.processor);
  return {
    tableHash: root.table_hash,
    task,
    target: root.target ?? "cpu",
    kernels: root.kernels ?? [],
    files: new Map(
      Object.entries(root.files).map(([name, [offset, bytes]]) => [name, { offset, bytes }]),
    ),
    sha256: new Map(Object.entries(root.sha256)),
    weights: new Map(root.weights.map((weight) => [weight.name, weight])),
    decoder,
    inference,
    programs: graphs.read && PROGRAM_TASKS.includes(task) ? programs : undefined,
    seq2seq: encoding,
    processor: root.processor ?? {},
    training: new Map((root.training ?? []).map((program) => [program.name, programOf(program)])),
    cache: root.cache,
  };
}

function recordOf(task: string, seq2seq: boolean): string {
  if (task === "text-generation") return "TextGeneration";
  if (task === "inference") return "AnyModel";
  return seq2seq ? "Seq2SeqPipeline" : "Pipeline";
}

/**
 * Parses JSON and checks that it is a manifest of this version.
 * @throws PackageError
 */
export function parseRoot(c: Checker, text: string): { readonly [field: string]: Json } {
  let json: Json;
  try {
    json = JSON.parse(text) as Json;
  } catch {
    return c.fail("the manifest", "is not JSON");
  }
  if (too_deep(json)) return c.fail("the manifest", TOO_DEEP);
  const format: unknown = c.read_object(json, "the manifest").format ?? null;
  if (format !== FORMAT)
    c.fail(
      "its format",
      `is ${JSON.stringify(format).slice(0, 40)}, this version of Edgewise reads ${FORMAT}`,
      "Build the package again with the same version of Edgewise as the page's: `edgewise build`.",
    );
  return json as { [field: string]: Json };
}

/** The programs of a pipeline's package. */
function programsOf(c: Checker, root: ManifestJson, seq2seq: boolean): [string, Inference][] {
  const programs = Object.entries(root.programs!);
  if (programs.length > MAX_PROGRAMS || !(programs.length || seq2seq))
    c.fail("programs", `has ${programs.length} entries`);
  return programs;
}

function decoderOf(decoder: Decoder): DecoderInfo {
  const { recompute, capacity, vocab_size: vocabSize, cache_dtype, caches, plans } = decoder;
  const ascending = [...plans].sort((a, b) => a.tokens - b.tokens);
  const cacheDtype = cache_dtype ?? "float32";
  return { recompute, capacity, vocabSize, cacheDtype, caches, plans: ascending };
}

function parseSeq2Seq(c: Checker, root: ManifestJson, contents: Contents): Seq2SeqInfo {
  const encoder = root.encoder as Encoder;
  const decoder = root.decoder as unknown as Seq2SeqDecoder;
  check_seq2seq(c, encoder, decoder, contents);
  const plans = encoder.plans.map(({ size, positions, plans: parts }) => ({
    size,
    positions,
    run: parts.length > 1 ? parts[0] : undefined,
    cross: parts.at(-1)!,
  }));
  const bytes = (caches: Seq2SeqDecoder["caches"]) => new Map(caches.map((x) => [x.name, x.bytes]));
  return {
    capacity: decoder.capacity,
    vocabSize: decoder.vocab_size,
    caches: bytes(decoder.caches),
    cross: bytes(decoder.cross),
    encoder: { ...encoder, plans: plans.sort((a, b) => a.size - b.size) },
    plans: decoder.plans,
  };
}

function programOf(program: TrainingProgram): ProgramInfo {
  const { name, batch, sequence, lora, optimizer, states, plans } = program;
  return {
    name,
    batch,
    sequence,
    lora: lora ? ({ ...lora, use_rslora: lora.use_rslora === true } satisfies LoraInfo) : null,
    optimizer: { ...optimizer },
    maxGradNorm: program.max_grad_norm ?? null,
    plans: new Map(
      TRAINING_PLANS.map((kind) => {
        const { file, slots, arena_bytes: arenaBytes } = plans[kind];
        return [kind, { file, slots, arenaBytes }];
      }),
    ),
    states: new Map(states.map((state) => [state.name, state as StateInfo])),
    padTokenId: program.pad_token_id ?? undefined,
    eosTokenId: program.eos_token_id ?? undefined,
  };
}
