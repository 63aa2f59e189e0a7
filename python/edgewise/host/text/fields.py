"""Declarations that C, Python and TypeScript share for text generation.

`STRUCTS` are the structs of core/sampling/sampling.h: `emit.py` writes them as C into
core/gen/sampling_fields.h and as byte offsets into web/src/gen/sampling.ts; Python computes the
same offsets here. All members take four bytes, so nothing needs padding and the layout is the same
natively and in wasm; nothing in them is an address, lists lie in an int32 array beside
`ew_sampling`.

`GENERATION_FIELDS` are the fields of transformers' GenerationConfig (4.57), with its defaults, and
what Edgewise does with each. The TypeScript side gets the same table.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

STRUCTS = {
    # What a generation needs to know, constant from its first token to its last. A list is (`*_at`,
    # `*_n`): the place of its first int32 in the lists array and how many int32 it has.
    "ew_sampling": [
        ("vocab_size", "u32"),
        # ids before it are the prompt for presence and frequency penalties, min_new_tokens and
        # exponential decay
        ("prompt_length", "u32"),
        ("max_length", "u32"),  # prompt and new tokens together
        ("lists_length", "u32"),  # int32s in the lists array
        ("min_length", "u32"),
        ("min_new_tokens", "u32"),
        ("repetition_penalty", "f32"),  # 1: off
        ("presence_penalty", "f32"),  # 0: off
        ("frequency_penalty", "f32"),  # 0: off
        ("no_repeat_ngram_size", "u32"),  # 0: off
        ("encoder_repetition_penalty", "f32"),  # 1: off
        ("encoder_no_repeat_ngram_size", "u32"),  # 0: off
        # id of Whisper's <|0.00|>; the id before is <|notimestamps|>, all after are times. 0: off
        ("timestamp_begin", "u32"),
        ("max_initial_timestamp", "i32"),  # largest first time, from timestamp_begin; -1: any
        ("forced_bos_token_id", "i32"),  # -1: off
        ("remove_invalid_values", "u32"),
        ("exponential_decay_start", "i32"),  # -1: off; new tokens before it sets in
        ("exponential_decay_factor", "f32"),
        ("begin_index", "u32"),  # length of the ids at which begin_suppress_tokens applies
        ("renormalize_logits", "u32"),
        ("do_sample", "u32"),  # 0: the warpers from here to eta_cutoff do nothing
        ("temperature", "f32"),
        ("top_k", "u32"),  # 0: off
        ("top_p", "f32"),  # 1: off
        ("min_p", "f32"),  # 0: off
        ("typical_p", "f32"),  # 1: off
        ("epsilon_cutoff", "f32"),  # 0: off
        ("eta_cutoff", "f32"),  # 0: off
        ("num_beams", "u32"),
        ("early_stopping", "u32"),  # 0 False, 1 True, 2 "never"
        ("length_penalty", "f32"),
        ("eos_at", "u32"),
        ("eos_n", "u32"),  # ids
        ("forced_eos_at", "u32"),
        ("forced_eos_n", "u32"),  # ids
        ("suppress_at", "u32"),
        ("suppress_n", "u32"),  # ids
        ("begin_suppress_at", "u32"),
        ("begin_suppress_n", "u32"),  # ids
        ("bad_words_at", "u32"),
        ("bad_words_n", "u32"),  # length, ids..., length, ids...
        ("bias_at", "u32"),
        ("bias_n", "u32"),  # length, ids..., bits of a float32, length, ...
        ("encoder_at", "u32"),
        ("encoder_n", "u32"),  # ids of the encoder's input
    ],
    # Head of the state of a beam search; `*_at` are byte offsets from its start.
    "ew_beams": [
        ("num_beams", "u32"),
        ("keep", "u32"),  # candidates looked at per step: max(2, 1 + eos tokens) * num_beams
        ("prompt_length", "u32"),
        ("max_length", "u32"),
        ("length", "u32"),  # ids in each running row
        ("n_running", "u32"),
        ("n_done", "u32"),
        ("n_candidates", "u32"),
        ("scores_at", "u32"),  # float32[num_beams]
        # int32[num_beams]: the beam of the previous step that each running one continues
        ("parents_at", "u32"),
        ("candidates_at", "u32"),  # ew_candidate[keep], best first once ew_beams_rank was called
        ("done_at", "u32"),  # ew_finished[num_beams], best first
        ("rows_at", "u32"),  # int32[num_beams][max_length]: the running sequences, prompt included
        ("spare_at", "u32"),  # as rows: the other half of the double buffer
        # int32[num_beams][max_length]: the finished sequences, indexed by ew_finished.row
        ("finished_at", "u32"),
        ("total_bytes", "u32"),
    ],
    "ew_candidate": [
        ("beam", "u32"),
        ("token", "u32"),
        ("score", "f32"),
        ("key", "f32"),
        ("done", "u32"),
    ],
    "ew_finished": [("score", "f32"), ("length", "u32"), ("row", "u32"), ("reason", "u32")],
}

# What the functions of core/sampling/sampling.h return below 0. A bad member of ew_sampling is
# BAD_FIELD - its index in the declaration.
ERRORS = {
    "BAD_TOKEN": -1,  # a token id is outside the vocabulary
    "NOT_FINITE": -2,  # logits hold NaN or +inf
    "NO_TOKEN": -3,  # every token is suppressed: all scores are -inf
    "BAD_LIST": -4,  # a list reaches outside the lists array or its lengths do not add up
    "BAD_CALL": -5,  # an argument does not fit the state (length, beam index)
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

# name: (default, how, remedy). `how` is
# - "used": it does what it does in transformers;
# - "accepted": it cannot change the tokens here (hints about caches and compilers, records of where
#   the file came from), any value is fine;
# - "refused": any value but the default raises UnsupportedField with the remedy.
GENERATION_FIELDS = {
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
    "is_assistant": (
        False,
        "accepted",
        "",
    ),  # these work only with an assistant model, which generate() refuses
    "num_assistant_tokens": (20, "accepted", ""),
    "num_assistant_tokens_schedule": ("constant", "accepted", ""),
    "assistant_confidence_threshold": (0.4, "accepted", ""),
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
    "prompt_lookup_num_tokens": (None, "refused", "It only changes the speed; remove the field."),
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
]
# Fields that cannot be None: the default is used instead.
NOT_NONE = ["num_beams", "num_return_sequences", "early_stopping", "length_penalty"]

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


def offsets(name: str) -> dict[str, int]:
    """{member: byte offset} of one of STRUCTS."""
    return {member: 4 * i for i, (member, _) in enumerate(STRUCTS[name])}


def size(name: str) -> int:
    """Bytes of one of STRUCTS."""
    return 4 * len(STRUCTS[name])


def _format(name: str) -> str:
    return "<" + "".join({"u32": "I", "i32": "i", "f32": "f"}[kind] for _, kind in STRUCTS[name])


def pack(name: str, values: Mapping[str, float]) -> bytes:
    """`values` ({member: number}, every member and nothing else) as the bytes of one of STRUCTS."""
    members = [member for member, _ in STRUCTS[name]]
    assert set(values) == set(members), set(values) ^ set(members)
    return struct.pack(_format(name), *(values[member] for member in members))


def unpack(name: str, data: bytes | bytearray | memoryview) -> dict[str, int | float]:
    """The bytes of one of STRUCTS as {member: number}."""
    return dict(
        zip((member for member, _ in STRUCTS[name]), struct.unpack(_format(name), bytes(data)))
    )
