// Probabilities of tokens that were chosen before: those of beams, whose steps are not kept.
// Mirrors python/edgewise/host/text/speech/rescore.py.

import type { GenerationFields } from "../../../../protocol/generation.ts";
import { Configuration, GenerationRun, resolve } from "../../../generation/index.ts";
import type { EncodedSource, Sequence } from "../source.ts";

/** Runs given tokens. */
class Rescoring extends GenerationRun<Sequence> {
  /** The sum of the logarithms of their probabilities, under the rules of the search. */
  async sum(source: EncodedSource, prompt: readonly number[], tokens: readonly number[]) {
    this.allocate();
    const sequence = this.open();
    const ids = [...prompt];
    let total = 0;
    let logits = await source.forward(sequence, ids);
    for (const [i, token] of tokens.entries()) {
      this.process(this.ids, ids.length, () => [...ids], logits);
      this.checked("ew_sampling_warp", this.params, this.work);
      total += logProbability(source, this.work, token, 1);
      this.writeIds(ids.length, [token]);
      ids.push(token);
      if (i < tokens.length - 1) logits = (await this.forward(sequence, ids)) as number;
    }
    return total;
  }
}

/** The sum of the logarithms of the probabilities of tokens after a prompt. */
export async function logProbabilityOf(
  source: EncodedSource,
  prompt: number[],
  tokens: readonly number[],
  fields: GenerationFields,
): Promise<number> {
  const given = new Configuration(fields, "generate");
  const config = resolve(source, given, given, () => undefined);
  let limit = prompt.length + tokens.length;
  if (config.get("max_new_tokens") === null) limit = Math.max(limit, config.get("max_length") ?? 0);
  const output = { sequences: [], finish_reasons: [] };
  const args = [source, prompt, config, limit, 0n, 0, {}, output, null, Infinity] as const;
  const run = new Rescoring(...args);
  try {
    return await run.sum(source, prompt, tokens);
  } finally {
    run.free();
  }
}

/**
 * The logarithm of the probability of a token.
 * @param scores address of float32 [vocab_size]
 * @param factor of the scores
 */
export function logProbability(
  { engine, vocab_size: n }: EncodedSource,
  scores: number,
  token: number,
  factor: number,
): number {
  const at = engine.alloc(4);
  try {
    engine.write(at, new Uint8Array(Float32Array.of(factor).buffer));
    engine.call("ew_sampling_log_probability", scores, n, token, at);
    const bytes = engine.read(at, 4);
    return new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true);
  } finally {
    engine.free(at);
  }
}
