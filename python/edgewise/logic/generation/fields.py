"""The fields of transformers' GenerationConfig (4.57), their defaults, and the treatment of each;
codes of core/sampling.
"""

from __future__ import annotations

from typing import Any, Literal

# What the functions of core/sampling/sampling.h return below 0. A bad member of ew_sampling is
# BAD_FIELD - its index in the declaration.
ERRORS = {
    "BAD_TOKEN": -1,  # a token id is outside the vocabulary
    "NOT_FINITE": -2,  # logits hold NaN or +inf
    "NO_TOKEN": -3,  # every token is suppressed: all scores are -inf
    "BAD_LIST": -4,  # a list reaches outside the lists array or its lengths do not add up
    "BAD_CALL": -5,  # an argument does not fit the state (length, beam index)
    "BAD_GRAMMAR": -6,  # the tables of a grammar contradict each other
    "FULL": -7,  # the memory of a grammar's states does not suffice
    "AMBIGUOUS": -8,  # a text can be read in too many ways
    "STUCK": -9,  # no token continues a text that is not complete
    "BAD_FIELD": -1000,
}

# Why a sequence ended: ew_finished.reason, and by name in the result's `finish_reasons`.
REASONS = {
    "running": 0,
    "eos": 1,
    "length": 2,
    "stop_string": 3,
    "max_time": 4,
    "stopping_criteria": 5,
}

_GROUPS = (
    "transformers itself removed group and constrained beam search from its core; use num_beams"
    " without it."
)

FieldUse = Literal["used", "accepted", "refused"]

# name: (default, how, remedy). `how` is
# - "used": it does what it does in transformers;
# - "accepted": it cannot change the tokens here (hints about caches and compilers, records of where
#   the file came from), any value is fine;
# - "refused": any value but the default raises UnsupportedField with the remedy.
GENERATION_FIELDS: dict[str, tuple[Any, FieldUse, str]] = {
    "max_length": (20, "used", ""),
    "max_new_tokens": (None, "used", ""),
    "min_length": (0, "used", ""),
    "min_new_tokens": (None, "used", ""),
    "early_stopping": (False, "used", ""),
    "max_time": (None, "used", ""),
    "stop_strings": (None, "used", ""),
    "do_sample": (False, "used", ""),
    "num_beams": (1, "used", ""),
    "use_cache": (True, "used", ""),
    "temperature": (1.0, "used", ""),
    "top_k": (50, "used", ""),
    "top_p": (1.0, "used", ""),
    "min_p": (None, "used", ""),
    "typical_p": (1.0, "used", ""),
    "epsilon_cutoff": (0.0, "used", ""),
    "eta_cutoff": (0.0, "used", ""),
    "repetition_penalty": (1.0, "used", ""),
    "presence_penalty": (0.0, "used", ""),  # not in transformers: OpenAI's and vLLM's
    "frequency_penalty": (0.0, "used", ""),  # likewise
    "logit_bias": (None, "used", ""),  # likewise: {token id: addend of its logit}
    "seed": (None, "used", ""),  # not in transformers, where torch.manual_seed does it
    "length_penalty": (1.0, "used", ""),
    "no_repeat_ngram_size": (0, "used", ""),
    "bad_words_ids": (None, "used", ""),
    "renormalize_logits": (False, "used", ""),
    "forced_bos_token_id": (None, "used", ""),
    "forced_eos_token_id": (None, "used", ""),
    "remove_invalid_values": (False, "used", ""),
    "exponential_decay_length_penalty": (None, "used", ""),
    "suppress_tokens": (None, "used", ""),
    "begin_suppress_tokens": (None, "used", ""),
    "sequence_bias": (None, "used", ""),
    "num_return_sequences": (1, "used", ""),
    "output_scores": (False, "used", ""),
    "output_logits": (None, "used", ""),
    "return_dict_in_generate": (False, "used", ""),
    "pad_token_id": (
        None,
        "accepted",
        "",
    ),  # nothing is padded: sequences come back with their own lengths
    "bos_token_id": (None, "used", ""),
    "eos_token_id": (None, "used", ""),
    "cache_implementation": (None, "accepted", ""),
    "cache_config": (None, "accepted", ""),
    "return_legacy_cache": (None, "accepted", ""),
    "prefill_chunk_size": (None, "accepted", ""),
    "compile_config": (None, "accepted", ""),
    "disable_compile": (False, "accepted", ""),
    "low_memory": (None, "accepted", ""),
    "decoder_start_token_id": (
        None,
        "accepted",
        "",
    ),  # transformers, too, reads it for encoder-decoder models only
    "is_assistant": (False, "accepted", ""),
    "num_assistant_tokens": (20, "used", ""),  # these two with an assistant model alone
    "assistant_confidence_threshold": (0.4, "used", ""),
    "num_assistant_tokens_schedule": ("constant", "accepted", ""),  # measured times decide
    "max_matching_ngram_size": (None, "accepted", ""),
    "assistant_lookbehind": (10, "accepted", ""),
    "target_lookbehind": (10, "accepted", ""),
    "_from_model_config": (False, "accepted", ""),
    "_commit_hash": (None, "accepted", ""),
    "transformers_version": (None, "accepted", ""),
    # for encoder-decoder models; `pack` refuses them for others
    "encoder_repetition_penalty": (1.0, "used", ""),
    "encoder_no_repeat_ngram_size": (0, "used", ""),
    # Whisper's
    "return_timestamps": (False, "used", ""),
    "no_timestamps_token_id": (None, "used", ""),
    "max_initial_timestamp_index": (None, "used", ""),
    "token_healing": (
        False,
        "refused",
        "Drop the last token of the prompt yourself, or remove the field.",
    ),
    "guidance_scale": (
        None,
        "refused",
        "Pass a logits_processor that mixes in the logits of your negative prompt, or set it to 1.",
    ),
    "watermarking_config": (
        None,
        "refused",
        "Pass a logits_processor that adds the watermark, or remove the field.",
    ),
    "output_attentions": (
        False,
        "refused",
        "The engine keeps no attention weights; remove the field.",
    ),
    "output_hidden_states": (
        False,
        "refused",
        "Run the model through InferenceSession with the outputs you need.",
    ),
    "prompt_lookup_num_tokens": (None, "used", ""),
    "assistant_early_exit": (None, "refused", "It only changes the speed; remove the field."),
    "penalty_alpha": (
        None,
        "refused",
        "transformers moved contrastive search out of its core, too; use do_sample or num_beams.",
    ),
    "dola_layers": (
        None,
        "refused",
        "transformers moved DoLa out of its core, too; use do_sample or num_beams.",
    ),
    "num_beam_groups": (1, "refused", _GROUPS),
    "diversity_penalty": (0.0, "refused", _GROUPS),
    "constraints": (None, "refused", _GROUPS),
    "force_words_ids": (None, "refused", _GROUPS),
}

# Fields that are integers, with their smallest values.
INTEGERS = {
    "max_length": 1,
    "max_new_tokens": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "num_beams": 1,
    "top_k": 0,
    "no_repeat_ngram_size": 0,
    "num_return_sequences": 1,
    "encoder_no_repeat_ngram_size": 0,
    "no_timestamps_token_id": 0,
    "max_initial_timestamp_index": 0,
    "forced_bos_token_id": 0,
    "bos_token_id": 0,
    "prompt_lookup_num_tokens": 1,
    "num_assistant_tokens": 1,
}
# Fields that are numbers.
FLOATS = [
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "length_penalty",
    "max_time",
    "assistant_confidence_threshold",
]
# Fields that cannot be None: the default is used instead.
NOT_NONE = [
    "num_beams",
    "num_return_sequences",
    "early_stopping",
    "length_penalty",
    "num_assistant_tokens",
    "assistant_confidence_threshold",
]

# Values besides the default that mean "off", as transformers reads them.
OFF_VALUES: dict[str, list[Any]] = {
    "guidance_scale": [1, 1.0],
    "output_attentions": [None],
    "output_hidden_states": [None],
    "token_healing": [None],
    "num_beam_groups": [None],
    "diversity_penalty": [None],
}

# Fields that do something only with do_sample, or only with num_beams > 1: given by hand without
# it, they cause a warning.
SAMPLING_ONLY = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
]
BEAMS_ONLY = ["early_stopping", "length_penalty"]
