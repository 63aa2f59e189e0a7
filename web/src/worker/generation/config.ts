// GenerationConfig with transformers' fields and defaults; no field is silently ignored. Mirrors
// python/edgewise/host/text/config.py; the table of fields is generated from
// python/edgewise/host/text/fields.py.

import {
  FLOATS,
  GENERATION_FIELDS,
  INTEGERS,
  NOT_NULL,
  OFF_VALUES,
  SAMPLING_ERRORS,
  Sampling,
} from "../../gen/sampling.ts";
import type { GenerationFields } from "../../protocol/generation.ts";
import {
  type EdgewiseError,
  EngineError,
  InputError,
  UnsupportedField,
} from "../../shared/errors.ts";
import { meant } from "../../shared/words.ts";

const WHERE = "GenerationConfig";

/**
 * Generation options, as transformers' GenerationConfig. Values that were set take precedence over
 * the model's generation_config.json; defaults do not.
 */
export class GenerationConfig {
  private readonly values = new Map<string, unknown>();

  /**
   * @param fields values by name; `undefined` means not set
   * @param where source of the fields, for errors
   * @throws UnsupportedField for an unknown field, or an unsupported one with a non-default value
   */
  constructor(fields: GenerationFields = {}, where = WHERE) {
    this.update(fields, where);
  }

  /** Reads the contents of a generation_config.json, in which null means not set. */
  static fromJson(
    fields: Record<string, unknown>,
    where = "generation_config.json",
  ): GenerationConfig {
    return new GenerationConfig(
      Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)),
      where,
    );
  }

  /** Sets fields. If it throws, nothing is changed. */
  update(fields: GenerationFields, where = WHERE): this {
    const set = Object.entries(fields).filter(([, value]) => value !== undefined);
    for (const [name, value] of set) checkSupported(name, value, where);
    for (const [name, value] of set)
      this.values.set(
        name,
        value === null && NOT_NULL.includes(name) ? GENERATION_FIELDS[name]![0] : value,
      );
    return this;
  }

  /** The value that was set, or the default. */
  get<K extends keyof GenerationFields & string>(name: K): NonNullable<GenerationFields[K]> | null {
    return (
      this.values.has(name) ? this.values.get(name) : GENERATION_FIELDS[name]![0]
    ) as NonNullable<GenerationFields[K]> | null;
  }

  /** Whether a field was set, even if to its default. */
  isSet(name: string): boolean {
    return this.values.has(name);
  }

  /** The fields that were set. */
  toJSON(): GenerationFields {
    return Object.fromEntries(this.values) as GenerationFields;
  }

  /** A copy in which the fields that are set in `over` take precedence. */
  merged(over: GenerationConfig): GenerationConfig {
    return new GenerationConfig({ ...this.toJSON(), ...over.toJSON() });
  }

  /** eos_token_id as a list; empty if there is none. */
  get eosTokenIds(): number[] {
    return ids(this.get("eos_token_id"), "eos_token_id");
  }

  /** @throws InputError for values that are invalid by themselves or in combination */
  validate(): void {
    for (const [name, smallest] of Object.entries(INTEGERS)) {
      const value = this.get(name);
      if (
        value !== null &&
        !(Number.isInteger(value) && (value as number) >= smallest && (value as number) < 2 ** 31)
      )
        throw wrong(name, value, `an integer of at least ${smallest}`);
    }
    for (const name of FLOATS) {
      const value = this.get(name);
      if (value !== null && !(typeof value === "number" && Math.abs(value) <= 3.4e38))
        throw wrong(name, value, "a finite number");
    }
    if (![true, false, "never"].includes(this.get("early_stopping")!))
      throw wrong("early_stopping", this.get("early_stopping"), 'true, false or "never"');
    const time = this.get("max_time");
    if (time !== null && time <= 0) throw wrong("max_time", time, "a positive number of seconds");
    const seed = this.get("seed");
    if (
      seed !== null &&
      !(typeof seed === "bigint"
        ? seed >= -(2n ** 63n) && seed < 2n ** 64n
        : Number.isSafeInteger(seed))
    )
      throw wrong("seed", seed, "an integer of 64 bits (above 2^53 as a BigInt)");
    const [several, beams] = [this.get("num_return_sequences")!, this.get("num_beams")!];
    if (several !== 1 && beams === 1 && !this.get("do_sample"))
      throw new InputError(
        `num_return_sequences is ${several}, but greedy generation has one result`,
        WHERE,
        "Set do_sample: true or num_beams.",
      );
    if (beams > 1 && several > beams)
      throw new InputError(
        `num_return_sequences (${several}) is above num_beams (${beams})`,
        WHERE,
        "Raise num_beams.",
      );
  }

  /**
   * The C struct ew_sampling and its lists of token ids, for one prompt.
   * @param vocab size of the vocabulary
   * @param promptLength tokens in the prompt
   * @param maxLength maximum number of tokens, prompt included
   * @param encoderIds token ids of the encoder's input, if there is an encoder of text
   * @throws InputError for token ids outside the vocabulary and malformed fields
   */
  pack(
    vocab: number,
    promptLength: number,
    maxLength: number,
    encoderIds?: readonly number[] | null,
  ): { members: Record<string, number>; lists: Int32Array } {
    const { lists, spans } = this.lists(vocab, encoderIds);
    const bos = this.get("forced_bos_token_id");
    if (bos !== null) checkIds([bos], vocab, "forced_bos_token_id");
    const decay = this.lengthDecay();
    const early = this.get("early_stopping");
    const members: Record<string, number> = {
      vocab_size: vocab,
      prompt_length: promptLength,
      max_length: maxLength,
      lists_length: lists.length,
      // as in transformers: min_new_tokens replaces min_length, as max_new_tokens replaces
      // max_length
      min_length: this.get("min_new_tokens") !== null ? 0 : (this.get("min_length") ?? 0),
      min_new_tokens: this.get("min_new_tokens") ?? 0,
      repetition_penalty: this.get("repetition_penalty") ?? 1,
      presence_penalty: this.get("presence_penalty") ?? 0,
      frequency_penalty: this.get("frequency_penalty") ?? 0,
      no_repeat_ngram_size: this.get("no_repeat_ngram_size") ?? 0,
      encoder_repetition_penalty: this.get("encoder_repetition_penalty") ?? 1,
      encoder_no_repeat_ngram_size: this.get("encoder_no_repeat_ngram_size") ?? 0,
      timestamp_begin: this.timestampBegin(vocab),
      max_initial_timestamp: this.get("max_initial_timestamp_index") ?? -1,
      forced_bos_token_id: bos ?? -1,
      remove_invalid_values: +!!this.get("remove_invalid_values"),
      exponential_decay_start: decay ? Math.trunc(decay[0]) : -1,
      exponential_decay_factor: decay ? decay[1] : 1,
      // as in transformers: begin_suppress_tokens apply after a forced first token
      begin_index: promptLength + (promptLength === 1 && bos !== null ? 1 : 0),
      renormalize_logits: +!!this.get("renormalize_logits"),
      do_sample: +!!this.get("do_sample"),
      temperature: this.get("temperature") ?? 1,
      top_k: this.get("top_k") ?? 0,
      top_p: this.get("top_p") ?? 1,
      min_p: this.get("min_p") ?? 0,
      typical_p: this.get("typical_p") ?? 1,
      epsilon_cutoff: this.get("epsilon_cutoff") ?? 0,
      eta_cutoff: this.get("eta_cutoff") ?? 0,
      num_beams: this.get("num_beams")!,
      early_stopping: early === "never" ? 2 : +!!early,
      length_penalty: this.get("length_penalty")!,
      ...spans,
    };
    return { members, lists: Int32Array.from(lists) };
  }

  /** The lists of token ids, and the members of ew_sampling with their offsets and lengths. */
  private lists(
    vocab: number,
    encoderIds: readonly number[] | null | undefined,
  ): { lists: number[]; spans: Record<string, number> } {
    const lists: number[] = [];
    const spans: Record<string, number> = {};
    const put = (name: string, words: number[]) => {
      spans[`${name}_at`] = lists.length;
      spans[`${name}_n`] = words.length;
      for (const word of words) lists.push(word);
    };
    const checked = (field: string) => checkIds(ids(this.get(field), field), vocab, field);
    put("eos", checked("eos_token_id"));
    put("forced_eos", checked("forced_eos_token_id"));
    put("suppress", checked("suppress_tokens"));
    put("begin_suppress", checked("begin_suppress_tokens"));
    const badWords = this.get("bad_words_ids") ?? [];
    if (!Array.isArray(badWords))
      throw wrong("bad_words_ids", badWords, "a list of lists of token ids");
    put(
      "bad_words",
      badWords.flatMap((words) => {
        const found = sequence(words, vocab, "bad_words_ids");
        return [found.length, ...found];
      }),
    );
    put(
      "bias",
      this.biases().flatMap(([words, bias]) => {
        const found = sequence(words, vocab, "sequence_bias or logit_bias");
        return [found.length, ...found, floatBits(bias)];
      }),
    );
    const needed = [
      ["encoder_repetition_penalty", 1] as const,
      ["encoder_no_repeat_ngram_size", 0] as const,
    ].find(([name, off]) => (this.get(name) ?? off) !== off);
    if (needed && !encoderIds)
      throw new UnsupportedField(
        `the generation field '${needed[0]}' is about the text that an encoder reads`,
        WHERE,
        "The model has no encoder of text; remove the field.",
      );
    put("encoder", needed ? [...encoderIds!] : []);
    return { lists, spans };
  }

  /** The id of Whisper's first time; 0: times are not generated. */
  private timestampBegin(vocab: number): number {
    if (!this.get("return_timestamps")) return 0;
    const before = this.get("no_timestamps_token_id");
    if (before === null || !ids(this.get("eos_token_id"), "eos_token_id").length)
      throw new InputError(
        "return_timestamps needs no_timestamps_token_id and eos_token_id",
        WHERE,
        "Put Whisper's generation_config.json beside the model.",
      );
    checkIds([before + 1], vocab, "no_timestamps_token_id");
    return before + 1;
  }

  private lengthDecay(): [start: number, factor: number] | null {
    const decay = this.get("exponential_decay_length_penalty");
    if (
      decay !== null &&
      !(
        Array.isArray(decay) &&
        decay.length === 2 &&
        decay.every((x) => Number.isFinite(x)) &&
        decay[0] >= 0 &&
        decay[0] < 2 ** 31
      )
    )
      throw wrong("exponential_decay_length_penalty", decay, "[tokens before it sets in, factor]");
    return decay;
  }

  private biases(): [number[], number][] {
    const found: [number[], number][] = [];
    try {
      const single: unknown = this.get("logit_bias") ?? {};
      if (typeof single !== "object" || Array.isArray(single)) throw new TypeError("not an object");
      for (const [token, bias] of Object.entries(single as object))
        found.push([[Number(token)], biasValue(bias)]);
      for (const [words, bias, ...more] of (this.get("sequence_bias") ?? []) as unknown[][]) {
        if (typeof words !== "object" || more.length) throw new TypeError("not a pair");
        found.push([Array.from(words as number[]), biasValue(bias)]);
      }
    } catch {
      throw new InputError(
        "a bias has the wrong form",
        WHERE,
        "Write logit_bias as {token id: bias} and sequence_bias as [[[ids], bias], ...].",
      );
    }
    return found;
  }
}

function checkSupported(name: string, value: unknown, where: string): void {
  const entry = Object.hasOwn(GENERATION_FIELDS, name) ? GENERATION_FIELDS[name] : undefined;
  if (!entry) {
    throw new UnsupportedField(
      `there is no generation field '${name}'`,
      where,
      meant(
        name.slice(0, 100),
        Object.keys(GENERATION_FIELDS),
        "Remove it, or check its spelling.",
      ),
    );
  }
  const [usual, how, remedy] = entry;
  if (
    how === "refused" &&
    value !== usual &&
    value !== null &&
    !(OFF_VALUES[name] ?? []).includes(value)
  )
    throw new UnsupportedField(
      `the generation field '${name}' (set to ${show(value)}) is not supported`,
      where,
      remedy,
    );
}

function show(value: unknown): string {
  try {
    return typeof value === "bigint" ? String(value) : (JSON.stringify(value) ?? String(value));
  } catch {
    return String(value);
  }
}

function wrong(name: string, value: unknown, expected: string): InputError {
  return new InputError(`${name} has to be ${expected}, but is ${show(value)}`, WHERE);
}

function ids(value: unknown, field: string): number[] {
  if (value === null || value === undefined) return [];
  const found: unknown[] = Array.isArray(value)
    ? value
    : ArrayBuffer.isView(value)
      ? Array.from(value as Int32Array)
      : [value];
  if (!found.every((i) => Number.isInteger(i)))
    throw wrong(field, value, "a token id or a list of token ids");
  return found as number[];
}

function checkIds(found: number[], vocab: number, field: string): number[] {
  for (const i of found)
    if (i < 0 || i >= vocab)
      throw new InputError(
        `${field} contains the token id ${i}, and the vocabulary has ${vocab}`,
        WHERE,
      );
  return found;
}

function sequence(words: unknown, vocab: number, field: string): number[] {
  const found = ids(words, field);
  if (!found.length)
    throw new InputError(`${field} contains an empty sequence`, WHERE, "Remove it.");
  return checkIds(found, vocab, field);
}

function biasValue(value: unknown): number {
  if (typeof value !== "number" || Number.isNaN(value) || value >= 3e38)
    throw new TypeError("not a bias");
  return value === -Infinity ? value : Math.max(value, -3e38);
}

function floatBits(value: number): number {
  return new Int32Array(Float32Array.of(value).buffer)[0]!;
}

/** The error for a negative result of core/sampling. */
export function errorFor(code: number): EdgewiseError {
  if (code <= SAMPLING_ERRORS.BAD_FIELD) {
    const name = Sampling.members[SAMPLING_ERRORS.BAD_FIELD - code];
    return new InputError(
      `${name} is out of its range`,
      WHERE,
      name === "temperature" ? "For greedy generation set do_sample: false." : "",
    );
  }
  switch (code) {
    case SAMPLING_ERRORS.BAD_TOKEN:
      return new InputError(
        "a token id is outside the model's vocabulary",
        "generate",
        "The tokenizer and the model do not belong together, or a list of ids names a wrong one.",
      );
    case SAMPLING_ERRORS.NOT_FINITE:
      return new EngineError(
        "the model's logits contain NaN or infinity",
        "generate",
        "The weights or the inputs are broken; remove_invalid_values: true replaces such values.",
      );
    case SAMPLING_ERRORS.NO_TOKEN:
      return new InputError(
        "every token is suppressed, none can be chosen",
        "generate",
        "Loosen suppress_tokens, bad_words_ids, no_repeat_ngram_size, min_length or your own " +
          "processor.",
      );
    case SAMPLING_ERRORS.BAD_LIST:
      return new EngineError(
        "the packed lists are inconsistent",
        "generate",
        "This is a bug in Edgewise.",
      );
    default:
      return new EngineError(
        `the sampling code returned ${code}`,
        "generate",
        "This is a bug in Edgewise.",
      );
  }
}
