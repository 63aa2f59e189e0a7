"""GenerationConfig: transformers' fields and defaults, none of them silently ignored.

fields.py says for each field whether it is used, accepted because it cannot change the tokens here,
or refused.
"""

from __future__ import annotations

import copy
import difflib
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import EdgewiseError, EngineError, InputError, UnsupportedField
from .fields import ERRORS, FLOATS, GENERATION_FIELDS, INTEGERS, NOT_NONE, OFF_VALUES, STRUCTS

__all__ = ["GenerationConfig"]


class GenerationConfig:
    """How to generate: `GenerationConfig(max_new_tokens=32, do_sample=True, top_p=0.9)`.

    Every field of transformers' GenerationConfig is an attribute with its default, and there are
    `presence_penalty`, `frequency_penalty`, `logit_bias` and `seed` (fields.py lists all). Mirrors
    transformers/generation/configuration_utils.py, with one difference: fields that were set are
    remembered (`set_fields`), so a value that equals the default still overrides the model's
    generation_config.json.

    Args:
        fields: of transformers' GenerationConfig.

    Raises:
        UnsupportedField: a field is unknown, or refused and not at its default.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A field."""

    def __init__(self, **fields: Any):
        for name, (default, _, _) in GENERATION_FIELDS.items():
            object.__setattr__(self, name, copy.deepcopy(default))
        self.set_fields: set[str] = set()
        self.update(fields)

    @classmethod
    def from_dict(cls, fields: Any, where: str = "generation_config.json") -> GenerationConfig:
        """A configuration from the contents of generation_config.json. where: for messages."""
        if not isinstance(fields, dict):
            raise InputError(f"expected an object of fields, found {type(fields).__name__}", where)
        config = cls()
        # An explicit null in a file means "not set", as in files that write all fields out.
        config.update({name: value for name, value in fields.items() if value is not None}, where)
        return config

    def update(self, fields: Mapping[str, Any], where: str = "GenerationConfig") -> None:
        """Sets fields, {name: value}.

        Raises:
            UnsupportedField: as the constructor; nothing has changed then.
        """
        for name, value in fields.items():
            _check_supported(name, value, where)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None and name in NOT_NONE:
            value = GENERATION_FIELDS[name][0]
        if name != "set_fields":
            _check_supported(name, value, "GenerationConfig")
            self.set_fields.add(name)
        object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were set, {name: value}."""
        return {
            name: copy.deepcopy(getattr(self, name))
            for name in GENERATION_FIELDS
            if name in self.set_fields
        }

    def merged(self, over: GenerationConfig) -> GenerationConfig:
        """A copy, overridden by the fields that were set in `over`."""
        config = copy.deepcopy(self)
        config.update({name: getattr(over, name) for name in over.set_fields})
        return config

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in self.to_dict().items()]
        return f"GenerationConfig({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenerationConfig) and all(
            getattr(self, name) == getattr(other, name) for name in GENERATION_FIELDS
        )

    __hash__ = None  # type: ignore[assignment]  # as Python does for classes with __eq__

    @property
    def eos_token_ids(self) -> list[int]:
        """eos_token_id as a list; empty if it is None."""
        return _ids(self.eos_token_id, "eos_token_id")

    def validate(self) -> None:
        """Raises InputError for values that are out of range, alone or together (as transformers'
        `validate` and the constructors of its processors).
        """
        for name, smallest in INTEGERS.items():
            value = getattr(self, name)
            if value is not None and (
                not isinstance(value, int)
                or isinstance(value, bool)
                or not smallest <= value < 2**31
            ):
                raise _wrong(name, value, f"an integer of at least {smallest}")
        for name in FLOATS:
            value = getattr(self, name)
            if value is not None and not _is_float32(value):
                raise _wrong(name, value, "a finite number")
        if self.early_stopping not in (True, False, "never"):
            raise _wrong("early_stopping", self.early_stopping, 'True, False or "never"')
        if self.max_time is not None and self.max_time <= 0:
            raise _wrong("max_time", self.max_time, "a positive number of seconds")
        if self.seed is not None and (
            not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**64
        ):
            raise _wrong("seed", self.seed, "an integer of 64 bits")
        if self.num_return_sequences != 1:
            if self.num_beams == 1 and not self.do_sample:
                raise InputError(
                    f"num_return_sequences is {_shown(self.num_return_sequences)}, but greedy"
                    " generation has one result",
                    "GenerationConfig",
                    "Set do_sample=True or num_beams.",
                )
            if 1 < self.num_beams < self.num_return_sequences:
                raise InputError(
                    f"num_return_sequences ({_shown(self.num_return_sequences)}) is above num_beams"
                    f" ({self.num_beams})",
                    "GenerationConfig",
                    "Raise num_beams.",
                )

    def pack(
        self,
        vocab_size: int,
        prompt_length: int,
        max_length: int,
        encoder_ids: Iterable[int] | None = None,
    ) -> tuple[dict[str, float], list[int]]:
        """The configuration for one prompt, as the engine reads it.

        Args:
            vocab_size: token ids are smaller.
            prompt_length: in tokens.
            max_length: of prompt and new tokens together, from arguments.length_limit.
            encoder_ids: token ids of the encoder's input, which encoder_* fields need; None: there
                is no encoder, or its input is no text.

        Returns:
            (members of ew_sampling, its lists as int32)

        Raises:
            InputError: a value or a token id is out of range; names the field.
        """
        lists, spans = self._lists(vocab_size, encoder_ids)
        if self.forced_bos_token_id is not None:
            _check_ids([self.forced_bos_token_id], vocab_size, "forced_bos_token_id")
        decay = self.exponential_decay_length_penalty
        if decay is not None and (
            not isinstance(decay, (list, tuple))
            or len(decay) != 2
            or not all(map(_is_float32, decay))
            or not 0 <= decay[0] < 2**31
        ):
            raise _wrong(
                "exponential_decay_length_penalty", decay, "(tokens before it sets in, factor)"
            )
        # As in transformers, begin_suppress_tokens do not apply to a forced first token.
        forced_first = prompt_length == 1 and self.forced_bos_token_id is not None
        members = {
            "vocab_size": vocab_size,
            "prompt_length": prompt_length,
            "max_length": max_length,
            "lists_length": len(lists),
            # as in transformers, min_new_tokens overrides min_length
            "min_length": 0 if self.min_new_tokens is not None else self.min_length or 0,
            "min_new_tokens": self.min_new_tokens or 0,
            "no_repeat_ngram_size": self.no_repeat_ngram_size or 0,
            "encoder_no_repeat_ngram_size": self.encoder_no_repeat_ngram_size or 0,
            "timestamp_begin": self._timestamp_begin(vocab_size),
            "max_initial_timestamp": _or(self.max_initial_timestamp_index, -1),
            "forced_bos_token_id": _or(self.forced_bos_token_id, -1),
            "exponential_decay_start": -1 if decay is None else int(decay[0]),
            "exponential_decay_factor": 1 if decay is None else float(decay[1]),
            "begin_index": prompt_length + forced_first,
            "top_k": self.top_k or 0,
            "min_p": self.min_p or 0,
            "epsilon_cutoff": self.epsilon_cutoff or 0,
            "eta_cutoff": self.eta_cutoff or 0,
            "num_beams": self.num_beams,
            "early_stopping": 2 if self.early_stopping == "never" else int(self.early_stopping),
            **{name: int(bool(getattr(self, name))) for name in _FLAGS},
            **{name: _or(getattr(self, name), off) for name, off in _NEUTRAL.items()},
            **spans,
        }
        return members, lists

    def _timestamp_begin(self, vocab_size: int) -> int:
        """The id of Whisper's first time; 0: times are not generated."""
        if not self.return_timestamps:
            return 0
        if self.no_timestamps_token_id is None or not self.eos_token_ids:
            raise InputError(
                "return_timestamps needs no_timestamps_token_id and eos_token_id",
                "GenerationConfig",
                "Put Whisper's generation_config.json beside the model.",
            )
        _check_ids([self.no_timestamps_token_id + 1], vocab_size, "no_timestamps_token_id")
        return int(self.no_timestamps_token_id) + 1

    def _lists(
        self, vocab_size: int, encoder_ids: Iterable[int] | None
    ) -> tuple[list[int], dict[str, int]]:
        """The lists of ew_sampling, and the members that say where each begins and how long it
        is.
        """
        lists: list[int] = []
        spans: dict[str, int] = {}

        def put(name: str, numbers: list[int]) -> None:
            spans[name + "_at"], spans[name + "_n"] = len(lists), len(numbers)
            lists.extend(numbers)

        for name, field in (
            ("eos", "eos_token_id"),
            ("forced_eos", "forced_eos_token_id"),
            ("suppress", "suppress_tokens"),
            ("begin_suppress", "begin_suppress_tokens"),
        ):
            ids = _ids(getattr(self, field), field)
            _check_ids(ids, vocab_size, field)
            put(name, ids)
        if not isinstance(self.bad_words_ids, (list, tuple, type(None))):
            raise _wrong("bad_words_ids", self.bad_words_ids, "a list of lists of token ids")
        bad_words = []
        for words in self.bad_words_ids or []:
            ids = _sequence(words, vocab_size, "bad_words_ids")
            bad_words += [len(ids), *ids]
        put("bad_words", bad_words)
        biases = []
        for words, value in self._biases():
            ids = _sequence(words, vocab_size, "sequence_bias or logit_bias")
            biases += [len(ids), *ids, struct.unpack("<i", struct.pack("<f", value))[0]]
        put("bias", biases)
        needs = {"encoder_repetition_penalty": (None, 1), "encoder_no_repeat_ngram_size": (None, 0)}
        needed = [n for n, off in needs.items() if getattr(self, n) not in off]
        if needed and encoder_ids is None:
            raise UnsupportedField(
                f"the generation field {needed[0]!r} is about the text that an encoder reads",
                "GenerationConfig",
                "The model has no encoder of text; remove the field.",
            )
        put("encoder", list(encoder_ids or []) if needed else [])
        return lists, spans

    def _biases(self) -> Iterator[tuple[list[Any], float]]:
        """(ids, bias) of logit_bias and sequence_bias; the latter is {ids: bias} or
        [[ids, bias], ...], as in transformers.
        """
        try:
            for token, value in (self.logit_bias or {}).items():
                yield [int(token)], _bias(value)  # JSON has only string keys
            pairs = self.sequence_bias or []
            for words, value in pairs.items() if isinstance(pairs, dict) else pairs:
                yield list(words), _bias(value)
        except (AttributeError, TypeError, ValueError):
            raise InputError(
                "a bias has the wrong form",
                "GenerationConfig",
                "Write logit_bias as {token id: bias} and sequence_bias as [[[ids], bias], ...].",
            ) from None


# Members of ew_sampling that are 0 or 1.
_FLAGS = ("remove_invalid_values", "renormalize_logits", "do_sample")

# Members whose field may be None, with the value that has no effect.
_NEUTRAL = {
    "repetition_penalty": 1,
    "encoder_repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "temperature": 1,
    "top_p": 1,
    "typical_p": 1,
    "length_penalty": 1,
}


def _check_supported(name: str, value: object, where: str) -> None:
    entry = GENERATION_FIELDS.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, [n for n in GENERATION_FIELDS if n[0] != "_"], 1)
        raise UnsupportedField(
            f"there is no generation field {name!r}",
            where,
            (
                f"Did you mean {near[0]!r}?"
                if near
                else "Remove it; edgewise.host.text.fields lists those there are."
            ),
        )
    default, how, remedy = entry
    if how == "refused" and value != default and value not in OFF_VALUES.get(name, []):
        raise UnsupportedField(
            f"the generation field {name!r} (set to {_shown(value)}) is not supported",
            where,
            remedy,
        )


def _is_float32(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -3.4e38 <= value <= 3.4e38
    )


def _or(value: Any, default: float) -> Any:
    return default if value is None else value


def _shown(value: object) -> str:
    """repr, of bounded length. Python refuses to write integers of thousands of digits."""
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too large to write"


def _wrong(name: str, value: object, expected: str) -> InputError:
    return InputError(f"{name} has to be {expected}, but is {_shown(value)}", "GenerationConfig")


def _bias(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or value != value
        or not -math.inf <= value < 3e38
    ):
        raise ValueError(value)
    return float(max(value, -3e38)) if value != -math.inf else value


def _ids(value: object, field: str) -> list[int]:
    if value is None:
        return []
    found = (
        [value]
        if isinstance(value, int)
        else list(value)
        if isinstance(value, (list, tuple, set))
        else None
    )
    if found is None or not all(isinstance(i, int) and not isinstance(i, bool) for i in found):
        raise _wrong(field, value, "a token id or a list of token ids")
    return found


def _sequence(value: object, vocab_size: int, field: str) -> list[int]:
    ids = _ids(value, field)
    if not ids:
        raise InputError(f"{field} contains an empty sequence", "GenerationConfig", "Remove it.")
    _check_ids(ids, vocab_size, field)
    return ids


def _check_ids(ids: Iterable[int], vocab_size: int, field: str) -> None:
    for i in ids:
        if not 0 <= i < vocab_size:
            raise InputError(
                f"{field} contains the token id {_shown(i)}, and the vocabulary has {vocab_size}",
                "GenerationConfig",
            )


def error_for(code: int) -> EdgewiseError:
    """The exception for an error code (below 0) of core/sampling."""
    if code <= ERRORS["BAD_FIELD"]:
        name = STRUCTS["ew_sampling"][ERRORS["BAD_FIELD"] - code][0]
        return InputError(
            f"{name} is out of its range",
            "GenerationConfig",
            "For greedy generation set do_sample=False." if name == "temperature" else "",
        )
    return {
        ERRORS["BAD_TOKEN"]: InputError(
            "a token id is outside the model's vocabulary",
            "generate",
            "The tokenizer and the model do not belong together, or a list of ids names a wrong"
            " one.",
        ),
        ERRORS["NOT_FINITE"]: EngineError(
            "the model's logits contain NaN or infinity",
            "generate",
            "The weights or the inputs are broken; remove_invalid_values=True replaces such"
            " values.",
        ),
        ERRORS["NO_TOKEN"]: InputError(
            "every token is suppressed, none can be chosen",
            "generate",
            "Loosen suppress_tokens, bad_words_ids, no_repeat_ngram_size, min_length or your own"
            " processor.",
        ),
        ERRORS["BAD_LIST"]: EngineError(
            "the packed lists are inconsistent", "generate", "This is a bug in Edgewise."
        ),
    }.get(
        code,
        EngineError(f"the sampling code returned {code}", "generate", "This is a bug in Edgewise."),
    )
