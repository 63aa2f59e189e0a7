// Made by python/edgewise/text/emit.py from schema/speech.py. Do not edit.

/** Fields of Whisper's generation_config.json that transcription reads itself. */
export const SPEECH_FIELDS: readonly string[] = ["alignment_heads", "forced_decoder_ids", "is_multilingual", "lang_to_id", "task_to_id", "language", "task", "prev_sot_token_id", "median_filter_width", "prompt_condition_type", "condition_on_prev_tokens", "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold", "return_timestamps"];
