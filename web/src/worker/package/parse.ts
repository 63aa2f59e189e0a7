// What the worker reads of a checked manifest.

import { PROGRAM_TASKS } from "../../gen/manifest.ts";
import type {
  Decoder,
  Inference,
  Manifest as ManifestJson,
  SavedParameter,
  Seq2SeqDecoder,
  Seq2SeqPipeline,
  TrainingProgram,
} from "../../gen/schema.ts";
import type { Checker } from "../../logic/manifest/checker.ts";
import type { graphOf } from "../inference/manifest.ts";
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

/** What the worker reads of a checked manifest. */
export function manifestOf(c: Checker, root: ManifestJson): Manifest {
  const { task } = root;
  const read = (graph: Inference, at: string) => graphs.read?.(c, graph, at);
  const programs = new Map<string, NonNullable<ReturnType<typeof read>>>();
  const pipeline = PROGRAM_TASKS.includes(task); // other tasks may have such fields, unchecked
  const seq2seq = pipeline && root.decoder && "encoder" in root;
  const language = pipeline && root.decoder && !seq2seq;
  for (const [name, program] of Object.entries((pipeline && root.programs) || {})) {
    const graph = read(program, `programs['${name}']`);
    if (graph) programs.set(name, graph);
  }
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
    decoder: task === "text-generation" || language ? decoderOf(root.decoder!) : undefined,
    inference: task === "inference" ? read(root.inference!, "inference") : undefined,
    programs: graphs.read && pipeline ? programs : undefined,
    seq2seq: seq2seq ? seq2seqOf(root as unknown as Seq2SeqPipeline) : undefined,
    processor: (pipeline && root.processor) || {},
    training: new Map(
      (root.training ?? []).map((program) => [
        program.name,
        programOf(program, (!seq2seq && root.decoder?.saved) || []),
      ]),
    ),
    cache: root.cache,
  };
}

function decoderOf(decoder: Decoder): DecoderInfo {
  const { recompute, capacity, vocab_size: vocabSize, cache_dtype, caches, plans } = decoder;
  const { padded = true, features = 0, positions = false, sees = null, window } = decoder;
  const ascending = [...plans].sort((a, b) => a.tokens - b.tokens);
  const cacheDtype = cache_dtype ?? "float32";
  const own = { recompute, padded, capacity, vocabSize, cacheDtype, caches, plans: ascending };
  return { ...own, window, features, positions, sees };
}

function seq2seqOf({ encoder, decoder }: Seq2SeqPipeline): Seq2SeqInfo {
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

function programOf(program: TrainingProgram, saved: readonly SavedParameter[]): ProgramInfo {
  const { name, batch, sequence, lora, optimizer, states, plans } = program;
  return {
    name,
    batch,
    sequence,
    lora: lora ? ({ ...lora, use_rslora: lora.use_rslora === true } satisfies LoraInfo) : null,
    saved: lora ? saved : [],
    optimizer: { ...optimizer },
    maxGradNorm: program.max_grad_norm ?? null,
    accumulation: program.gradient_accumulation_steps,
    balances: !!program.router_aux_loss_coef,
    packing: program.packing === true,
    topK: program.top_k,
    plans: new Map(
      TRAINING_PLANS.flatMap((kind) => {
        const plan = plans[kind];
        if (!plan) return [];
        const { file, slots, arena_bytes: arenaBytes } = plan;
        return [[kind, { file, slots, arenaBytes }] as const];
      }),
    ),
    states: new Map(states.map((state) => [state.name, state as StateInfo])),
    padTokenId: program.pad_token_id ?? undefined,
    eosTokenId: program.eos_token_id ?? undefined,
    source: program.source,
  };
}
