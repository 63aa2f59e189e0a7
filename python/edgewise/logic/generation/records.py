"""Records that core/sampling and the logic of generation share.

`STRUCTS` are the structs of core/sampling/sampling.h: core/generate/sampling.py writes them as C
into core/gen/sampling_fields.h. All members take four bytes, so nothing needs padding and the
layout is the same natively and in wasm; nothing in them is an address, lists lie in an int32 array
beside `ew_sampling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..native import packed, unpacked

STRUCTS: dict[str, list[tuple[str, str]]] = {
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


_MEMBERS = {name: [member for member, _ in members] for name, members in STRUCTS.items()}
_KINDS = {name: "".join([kind[0] for _, kind in of]) for name, of in STRUCTS.items()}


def members_of(name: str) -> list[str]:
    """The names of the members of one of STRUCTS."""
    return _MEMBERS[name]


def offset(name: str, member: str) -> int:
    """The byte offset of a member of one of STRUCTS."""
    return 4 * _MEMBERS[name].index(member)


def size(name: str) -> int:
    """Bytes of one of STRUCTS."""
    return 4 * len(_MEMBERS[name])


def pack(name: str, values: Mapping[str, Any]) -> bytes:
    """`values` ({member: number}, every member) as the bytes of one of STRUCTS."""
    return packed(_KINDS[name], [values[member] for member in _MEMBERS[name]])


def unpack(name: str, data: bytes) -> list[Mapping[str, Any]]:
    """The bytes of structs, one after the other, as {member: number} of each."""
    names, kinds, step = _MEMBERS[name], _KINDS[name], size(name)
    return [unpacked(names, kinds, data[at : at + step]) for at in range(0, len(data), step)]
