// Made by python/edgewise/text/emit.py from fields.py, where each member is explained. Do not edit.

/** Members of 4 bytes, and a letter for each one's type: u32, i32 or f32. */
export const Sampling = {
  members: ["vocab_size", "prompt_length", "max_length", "lists_length", "min_length", "min_new_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram_size", "encoder_repetition_penalty", "encoder_no_repeat_ngram_size", "timestamp_begin", "max_initial_timestamp", "forced_bos_token_id", "remove_invalid_values", "exponential_decay_start", "exponential_decay_factor", "begin_index", "renormalize_logits", "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "num_beams", "early_stopping", "length_penalty", "eos_at", "eos_n", "forced_eos_at", "forced_eos_n", "suppress_at", "suppress_n", "begin_suppress_at", "begin_suppress_n", "bad_words_at", "bad_words_n", "bias_at", "bias_n", "encoder_at", "encoder_n"],
  kinds: "uuuuuufffufuuiiuifuuufufffffuufuuuuuuuuuuuuuu",
} as const;

/** Members of 4 bytes, and a letter for each one's type: u32, i32 or f32. */
export const Beams = {
  members: ["num_beams", "keep", "prompt_length", "max_length", "length", "n_running", "n_done", "n_candidates", "scores_at", "parents_at", "candidates_at", "done_at", "rows_at", "spare_at", "finished_at", "total_bytes"],
  kinds: "uuuuuuuuuuuuuuuu",
} as const;

/** Members of 4 bytes, and a letter for each one's type: u32, i32 or f32. */
export const Candidate = {
  members: ["beam", "token", "score", "key", "done"],
  kinds: "uuffu",
} as const;

/** Members of 4 bytes, and a letter for each one's type: u32, i32 or f32. */
export const Finished = {
  members: ["score", "length", "row", "reason"],
  kinds: "fuuu",
} as const;

export const SAMPLING_ERRORS = {"BAD_TOKEN": -1, "NOT_FINITE": -2, "NO_TOKEN": -3, "BAD_LIST": -4, "BAD_CALL": -5, "BAD_FIELD": -1000} as const;
export const FINISH_REASONS = ["running", "eos", "length", "stop_string", "max_time", "stopping_criteria"] as const;
export const SAMPLING_ONLY: readonly string[] = ["temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"];
export const BEAMS_ONLY: readonly string[] = ["early_stopping", "length_penalty"];

export type FieldUse = "used" | "accepted" | "refused";
/** name: [default, what Edgewise does with it, what to do when it is refused] */
export const GENERATION_FIELDS: Readonly<Record<string, readonly [unknown, FieldUse, string]>> = {
  max_length: [20, "used", ""],
  max_new_tokens: [null, "used", ""],
  min_length: [0, "used", ""],
  min_new_tokens: [null, "used", ""],
  early_stopping: [false, "used", ""],
  max_time: [null, "used", ""],
  stop_strings: [null, "used", ""],
  do_sample: [false, "used", ""],
  num_beams: [1, "used", ""],
  use_cache: [true, "used", ""],
  temperature: [1.0, "used", ""],
  top_k: [50, "used", ""],
  top_p: [1.0, "used", ""],
  min_p: [null, "used", ""],
  typical_p: [1.0, "used", ""],
  epsilon_cutoff: [0.0, "used", ""],
  eta_cutoff: [0.0, "used", ""],
  repetition_penalty: [1.0, "used", ""],
  presence_penalty: [0.0, "used", ""],
  frequency_penalty: [0.0, "used", ""],
  logit_bias: [null, "used", ""],
  seed: [null, "used", ""],
  length_penalty: [1.0, "used", ""],
  no_repeat_ngram_size: [0, "used", ""],
  bad_words_ids: [null, "used", ""],
  renormalize_logits: [false, "used", ""],
  forced_bos_token_id: [null, "used", ""],
  forced_eos_token_id: [null, "used", ""],
  remove_invalid_values: [false, "used", ""],
  exponential_decay_length_penalty: [null, "used", ""],
  suppress_tokens: [null, "used", ""],
  begin_suppress_tokens: [null, "used", ""],
  sequence_bias: [null, "used", ""],
  num_return_sequences: [1, "used", ""],
  output_scores: [false, "used", ""],
  output_logits: [null, "used", ""],
  return_dict_in_generate: [false, "used", ""],
  pad_token_id: [null, "accepted", ""],
  bos_token_id: [null, "used", ""],
  eos_token_id: [null, "used", ""],
  cache_implementation: [null, "accepted", ""],
  cache_config: [null, "accepted", ""],
  return_legacy_cache: [null, "accepted", ""],
  prefill_chunk_size: [null, "accepted", ""],
  compile_config: [null, "accepted", ""],
  disable_compile: [false, "accepted", ""],
  low_memory: [null, "accepted", ""],
  decoder_start_token_id: [null, "accepted", ""],
  is_assistant: [false, "accepted", ""],
  num_assistant_tokens: [20, "accepted", ""],
  num_assistant_tokens_schedule: ["constant", "accepted", ""],
  assistant_confidence_threshold: [0.4, "accepted", ""],
  max_matching_ngram_size: [null, "accepted", ""],
  assistant_lookbehind: [10, "accepted", ""],
  target_lookbehind: [10, "accepted", ""],
  _from_model_config: [false, "accepted", ""],
  _commit_hash: [null, "accepted", ""],
  transformers_version: [null, "accepted", ""],
  encoder_repetition_penalty: [1.0, "used", ""],
  encoder_no_repeat_ngram_size: [0, "used", ""],
  return_timestamps: [false, "used", ""],
  no_timestamps_token_id: [null, "used", ""],
  max_initial_timestamp_index: [null, "used", ""],
  token_healing: [false, "refused", "Drop the last token of the prompt yourself, or remove the field."],
  guidance_scale: [null, "refused", "Pass a logits_processor that mixes in the logits of your negative prompt, or set it to 1."],
  watermarking_config: [null, "refused", "Pass a logits_processor that adds the watermark, or remove the field."],
  output_attentions: [false, "refused", "The engine keeps no attention weights; remove the field."],
  output_hidden_states: [false, "refused", "Run the model through InferenceSession with the outputs you need."],
  prompt_lookup_num_tokens: [null, "refused", "It only changes the speed; remove the field."],
  assistant_early_exit: [null, "refused", "It only changes the speed; remove the field."],
  penalty_alpha: [null, "refused", "transformers moved contrastive search out of its core, too; use do_sample or num_beams."],
  dola_layers: [null, "refused", "transformers moved DoLa out of its core, too; use do_sample or num_beams."],
  num_beam_groups: [1, "refused", "transformers itself removed group and constrained beam search from its core; use num_beams without it."],
  diversity_penalty: [0.0, "refused", "transformers itself removed group and constrained beam search from its core; use num_beams without it."],
  constraints: [null, "refused", "transformers itself removed group and constrained beam search from its core; use num_beams without it."],
  force_words_ids: [null, "refused", "transformers itself removed group and constrained beam search from its core; use num_beams without it."],
};
/** values besides the default that mean "off" */
export const OFF_VALUES: Readonly<Record<string, readonly unknown[]>> = {"guidance_scale": [1, 1.0], "output_attentions": [null], "output_hidden_states": [null], "token_healing": [null], "num_beam_groups": [null], "diversity_penalty": [null]};
/** fields that are integers, with their smallest values */
export const INTEGERS: Readonly<Record<string, number>> = {"max_length": 1, "max_new_tokens": 1, "min_length": 0, "min_new_tokens": 0, "num_beams": 1, "top_k": 0, "no_repeat_ngram_size": 0, "num_return_sequences": 1, "encoder_no_repeat_ngram_size": 0, "no_timestamps_token_id": 0, "max_initial_timestamp_index": 0, "forced_bos_token_id": 0, "bos_token_id": 0};
/** fields that are numbers */
export const FLOATS: readonly string[] = ["temperature", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "repetition_penalty", "encoder_repetition_penalty", "presence_penalty", "frequency_penalty", "length_penalty", "max_time"];
/** fields whose default stands in the place of null */
export const NOT_NULL: readonly string[] = ["num_beams", "num_return_sequences", "early_stopping", "length_penalty"];
