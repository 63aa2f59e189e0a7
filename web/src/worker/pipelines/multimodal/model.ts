// A language model whose runs take features of pictures or sounds in place of embeddings. Mirrors
// python/edgewise/host/session/features.py.

import type { Buffer, Device } from "../../../device/device.ts";
import { FEATURES, POSITIONS, REACH, SELECTED } from "../../../gen/manifest.ts";
import {
  type Prepared,
  positions_of_run,
  reach_of_run,
  rows_of_run,
} from "../../../logic/multimodal/prompt.ts";
import type { Choosing, Decoder, Logits } from "../../generation/index.ts";
import { type DecoderState, EngineDecoder, type Feeding } from "../../model/decoder.ts";
import type { Features } from "../../model/model.ts";
import type { Weights } from "../../model/weights.ts";
import type { DecoderInfo } from "../../package/manifest.ts";

/**
 * Loads a language model of a package.
 * @param others plans of the package that are loaded already
 * @param release whether weights that were packed are freed
 */
export function languageModel(
  device: Device,
  info: DecoderInfo,
  weights: Weights,
  files: ReadonlyMap<string, Uint8Array>,
  generation: Record<string, unknown>,
  config: Record<string, unknown>,
  where: string,
  others: Parameters<Weights["compute"]>[0],
  release: boolean,
): EngineDecoder {
  const own = [device, info, weights, files, generation, config, where, release, 0] as const;
  return new EngineDecoder(...own, new Inputs(info), others);
}

/** Writes the inputs of runs. */
class Inputs implements Feeding {
  /** Tokens of the last run whose features were written. */
  private selected = 0;

  constructor(private readonly info: DecoderInfo) {}

  allocate(device: Device, most: number): ReadonlyMap<string, Buffer> {
    const { features, positions, sees } = this.info;
    const sizes: [string, number][] = [
      [FEATURES, 4 * features],
      [SELECTED, 8],
      ...(positions ? ([[POSITIONS, 24]] as [string, number][]) : []),
      ...(sees ? ([[REACH, 8]] as [string, number][]) : []),
    ];
    return new Map(
      sizes.map(([name, bytes]) => [name, device.allocate(bytes * most, `the input '${name}'`)]),
    );
  }

  together(given: unknown): Prepared["together"] {
    return (given as Features | undefined)?.prompt.together ?? [];
  }

  write(
    device: Device,
    buffers: ReadonlyMap<string, Buffer>,
    tokens: number,
    given: unknown,
    past: number,
    count: number,
  ): void {
    const features = given as Features | undefined;
    const chosen = new Uint32Array(2 * Math.max(tokens, this.selected)); // low halves of int64
    this.selected = 0;
    const found = features ? rows_of_run(features.prompt.places, features.counts, past, count) : [];
    for (const { at, part, first, count: rows } of found) {
      const data = features!.parts[part]!;
      const size = data.length / features!.counts[part]!;
      device.write(
        buffers.get(FEATURES)!,
        data.subarray(size * first, size * (first + rows)),
        size * at,
      );
      for (let i = at; i < at + rows; i++) chosen[2 * i] = 1;
      this.selected = tokens;
    }
    device.write(buffers.get(SELECTED)!, new Uint8Array(chosen.buffer));
    if (this.info.sees) {
      const seen = new Uint32Array(2 * tokens);
      reach_of_run(features?.prompt.reach ?? [], past, count).forEach((n, i) => (seen[2 * i] = n));
      device.write(buffers.get(REACH)!, new Uint8Array(seen.buffer));
    }
    if (!this.info.positions) return;
    const numbers = new Uint32Array(6 * tokens);
    positions_of_run(features?.prompt.positions ?? [], past, count).forEach((row, axis) => {
      for (const [i, position] of row.entries()) numbers[2 * (axis * tokens + i)] = position;
    });
    device.write(buffers.get(POSITIONS)!, new Uint8Array(numbers.buffer));
  }
}

/** A language model whose sequences begin with a certain prompt. */
export class Prompted implements Decoder<DecoderState> {
  readonly vocab_size: number;
  readonly max_length: number;
  readonly config: Record<string, unknown>;
  readonly generation_config: Record<string, unknown>;
  readonly prefill_chunk?: number;

  constructor(
    private readonly model: EngineDecoder,
    private readonly features: Features,
  ) {
    this.vocab_size = model.vocab_size;
    this.max_length = model.max_length;
    this.config = model.config;
    this.generation_config = model.generation_config;
    // prompts are not divided where tokens belong together
    if (model.prefill_chunk !== undefined && !features.prompt.together.length)
      this.prefill_chunk = model.prefill_chunk;
  }

  get engine(): EngineDecoder["engine"] {
    return this.model.engine;
  }

  open(): DecoderState {
    return this.model.open(this.features);
  }

  close(sequence: DecoderState): void {
    this.model.close(sequence);
  }

  copy(source: DecoderState, target: DecoderState): void {
    this.model.copy(source, target);
  }

  truncate(sequence: DecoderState, n: number): void {
    this.model.truncate(sequence, n);
  }

  forward(sequence: DecoderState, ids: number[]): Promise<number> {
    return this.model.forward(sequence, ids);
  }

  choosing(members: Readonly<Record<string, number>>, work: number): Choosing | undefined {
    return this.model.choosing(members, work);
  }

  forwardBest(sequence: DecoderState, ids: number[], by: Choosing, room: number): Promise<Logits> {
    return this.model.forwardBest(sequence, ids, by, room);
  }
}
