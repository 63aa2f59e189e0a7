// Sampling from the highest logits alone, where no other one can be chosen. The tokens are those of
// all logits: core/sampling sees the same candidates in the same order, and where they might
// differ, as with ties at the limit of top_k, all logits are read. The twin of
// python/edgewise/text/shortlist.py.

import type { Host } from "../device.ts";

/** Tokens and logits, highest first. */
export type Candidates = [token: number, logit: number][];

const FLT_MAX = 3.4028234663852886e38;
/** Members of ew_sampling with which ew_sampling_process leaves the logits as they are: 0, or 1. */
const ZERO =
  "min_length min_new_tokens presence_penalty frequency_penalty no_repeat_ngram_size " +
  "encoder_no_repeat_ngram_size timestamp_begin remove_invalid_values forced_eos_n suppress_n " +
  "begin_suppress_n bad_words_n bias_n";
const ONE = "repetition_penalty encoder_repetition_penalty num_beams";
const MINUS_ONE = "forced_bos_token_id exponential_decay_start";

type Members = Readonly<Record<string, number>>;

/** Whether the highest logits decide which token is chosen. */
export function suffices(members: Members): boolean {
  const are = (names: string, value: number): boolean =>
    names.split(" ").every((name) => members[name] === value);
  if (!are(ZERO, 0) || !are(ONE, 1) || !are(MINUS_ONE, -1)) return false;
  return !members.do_sample || (members.top_k! > 0 && members.top_k! < 256);
}

/** The highest logits of one generation. */
export class Shortlist {
  /** Whether all scores are -infinity. */
  cleared = false;
  private readonly temperature: number;

  /**
   * @param members of ew_sampling
   * @param work address of the scores in the host's memory
   */
  constructor(
    private readonly members: Members,
    private readonly host: Host,
    private readonly work: number,
  ) {
    this.temperature = Math.fround(members.temperature!);
  }

  /** Whether all that top_k keeps is among the highest logits: equal scores are all kept. */
  holds(found: Candidates): boolean {
    const { vocab_size: vocab, top_k: kept } = this.members;
    if (found.length === vocab) return true;
    return this.scaled(found.at(-1)![1]) < this.scaled(found[kept! - 1]![1]);
  }

  /** The float32 that core/sampling makes of a logit. */
  private scaled(logit: number): number {
    return Math.fround(Math.max(-FLT_MAX, Math.min(FLT_MAX, logit / this.temperature)));
  }

  /** What `draw` draws, with these scores and -infinity for all other tokens. */
  among(found: Candidates, draw: () => number): number {
    if (!this.cleared) {
      const all = new Float32Array(this.members.vocab_size!).fill(-Infinity);
      this.host.write(this.work, new Uint8Array(all.buffer));
    }
    this.cleared = true;
    const set = (of: (logit: number) => number): void => {
      for (const [token, logit] of found)
        this.host.write(this.work + 4 * token, new Uint8Array(Float32Array.of(of(logit)).buffer));
    };
    set((logit) => logit);
    try {
      return draw();
    } finally {
      set(() => -Infinity);
    }
  }
}
