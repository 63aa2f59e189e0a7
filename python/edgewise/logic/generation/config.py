"""GenerationConfig: transformers' fields and defaults, none of them silently ignored.

fields.py says for each field whether it is used, accepted because it cannot change the tokens here,
or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import EdgewiseError, EngineError, InputError, UnsupportedField
from ..native import float_bits, given, listed, meant, seed_fault, setting, written
from .fields import ERRORS, FLOATS, GENERATION_FIELDS, INTEGERS, NOT_NONE, OFF_VALUES
from .records import members_of

WHERE = "GenerationConfig"
MAX_BIAS = 3e38

# Members of ew_sampling that take a field's value, with the value that has no effect.
_NEUTRAL: dict[str, float] = {
    "min_new_tokens": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "forced_bos_token_id": -1,
    "temperature": 1,
    "top_k": 0,
    "top_p": 1,
    "min_p": 0,
    "typical_p": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "num_beams": 1,
    "length_penalty": 1,
}
# Members of ew_sampling that are 0 or 1.
_FLAGS = ("remove_invalid_values", "renormalize_logits", "do_sample")
# Lists of token ids, and their fields.
_LISTS = (
    ("eos", "eos_token_id"),
    ("forced_eos", "forced_eos_token_id"),
    ("suppress", "suppress_tokens"),
    ("begin_suppress", "begin_suppress_tokens"),
)


class Configuration:
    """The fields that were set. They take precedence over the model's generation_config.json, even
    where they equal the defaults; defaults do not.

    Args:
        fields: {name: value}.
        where: source of the fields, for errors.

    Raises:
        UnsupportedField: a field is unknown, or refused and not at its default.
    """

    values: dict[str, Any]

    def __init__(self, fields: Mapping[str, Any] | None = None, where: str = WHERE) -> None:
        self.values = {}
        if fields is not None:
            self.update(fields, where)

    def update(self, fields: Mapping[str, Any], where: str = WHERE) -> None:
        """Sets fields, {name: value}.

        Raises:
            UnsupportedField: as the constructor; nothing has changed then.
        """
        found = given(fields)
        for name, value in found:
            _check_supported(name, value, where)
        for name, value in found:
            usual = value is None and name in NOT_NONE
            self.values[name] = GENERATION_FIELDS[name][0] if usual else value

    def get(self, name: str) -> Any:
        """The value of a field that was set, or its default."""
        return self.values[name] if name in self.values else GENERATION_FIELDS[name][0]

    def merged(self, over: Configuration) -> Configuration:
        """A copy, overridden by the fields that were set in `over`."""
        made = Configuration(self.values)
        made.update(over.values)
        return made

    @property
    def eos_token_ids(self) -> list[int]:
        """eos_token_id as a list; empty if it is None."""
        return _ids(self.get("eos_token_id"), "eos_token_id")

    def validate(self) -> None:
        """Raises InputError for values that are out of range, alone or together (as transformers'
        `validate` and the constructors of its processors).
        """
        for name, smallest in INTEGERS.items():
            value = self.get(name)
            if value is not None and not (_is_int(value) and smallest <= value < 2**31):
                raise _wrong(name, value, f"an integer of at least {smallest}")
        for name in FLOATS:
            value = self.get(name)
            if value is not None and not _is_float32(value):
                raise _wrong(name, value, "a finite number")
        early = self.get("early_stopping")
        if early not in (True, False, "never"):
            forms = f'{written(True)}, {written(False)} or "never"'
            raise _wrong("early_stopping", early, forms)
        time = self.get("max_time")
        if time is not None and time <= 0:
            raise _wrong("max_time", time, "a positive number of seconds")
        seed = self.get("seed")
        fault = seed_fault(seed) if seed is not None else ""
        if fault:
            raise _wrong("seed", seed, fault)
        self._check_count()

    def _check_count(self) -> None:
        count: int = self.get("num_return_sequences")
        beams: int = self.get("num_beams")
        if count != 1 and beams == 1 and not self.get("do_sample"):
            raise InputError(
                f"num_return_sequences is {count}, but greedy generation has one result",
                WHERE,
                f"Set {setting('do_sample', True)} or num_beams.",
            )
        if 1 < beams < count:
            raise InputError(
                f"num_return_sequences ({count}) is above num_beams ({beams})",
                WHERE,
                "Raise num_beams.",
            )

    def pack(
        self,
        vocab_size: int,
        prompt_length: int,
        max_length: int,
        encoder_ids: Sequence[int] | None = None,
    ) -> tuple[dict[str, Any], list[int]]:
        """The configuration for one prompt, as the engine reads it.

        Args:
            vocab_size: token ids are smaller.
            prompt_length: in tokens.
            max_length: of prompt and new tokens together, from length_limit.
            encoder_ids: token ids of the encoder's input, which encoder_* fields need; None: there
                is no encoder, or its input is no text.

        Returns:
            (members of ew_sampling, its lists as int32)

        Raises:
            InputError: a value or a token id is out of range; names the field.
        """
        members: dict[str, Any] = {}
        lists = self._lists(members, vocab_size, encoder_ids)
        bos: int | None = self.get("forced_bos_token_id")
        if bos is not None:
            _check_ids([bos], vocab_size, "forced_bos_token_id")
        start, factor = self._length_decay()
        for name, neutral in _NEUTRAL.items():
            value = self.get(name)
            members[name] = neutral if value is None else value
        for name in _FLAGS:
            members[name] = 1 if self.get(name) else 0
        early = self.get("early_stopping")
        first_time: int | None = self.get("max_initial_timestamp_index")
        least: int | None = self.get("min_length")
        # as in transformers, min_new_tokens overrides min_length
        replaced = least is None or self.get("min_new_tokens") is not None
        members["vocab_size"] = vocab_size
        members["prompt_length"] = prompt_length
        members["max_length"] = max_length
        members["lists_length"] = len(lists)
        members["min_length"] = 0 if replaced else least
        members["timestamp_begin"] = self._timestamp_begin(vocab_size)
        members["max_initial_timestamp"] = -1 if first_time is None else first_time
        members["exponential_decay_start"] = start
        members["exponential_decay_factor"] = factor
        # as in transformers, begin_suppress_tokens do not apply to a forced first token
        forced_first = prompt_length == 1 and bos is not None
        members["begin_index"] = prompt_length + (1 if forced_first else 0)
        members["early_stopping"] = 2 if early == "never" else 1 if early else 0
        return members, lists

    def _length_decay(self) -> tuple[int, float]:
        decay = self.get("exponential_decay_length_penalty")
        if decay is None:
            return -1, 1.0
        found = listed(decay)
        if found is None or not _is_decay(found):
            form = "[tokens before it sets in, factor]"
            raise _wrong("exponential_decay_length_penalty", decay, form)
        start: float = found[0]
        return int(start), found[1]

    def _timestamp_begin(self, vocab_size: int) -> int:
        """The id of Whisper's first time; 0: times are not generated."""
        if not self.get("return_timestamps"):
            return 0
        before: int | None = self.get("no_timestamps_token_id")
        if before is None or not self.eos_token_ids:
            raise InputError(
                "return_timestamps needs no_timestamps_token_id and eos_token_id",
                WHERE,
                "Put Whisper's generation_config.json beside the model.",
            )
        _check_ids([before + 1], vocab_size, "no_timestamps_token_id")
        return before + 1

    def _lists(
        self, members: dict[str, Any], vocab_size: int, encoder_ids: Sequence[int] | None
    ) -> list[int]:
        """The lists of ew_sampling. Sets the members that say where each begins and how long it
        is.
        """
        lists: list[int] = []

        def put(name: str, numbers: Sequence[int]) -> None:
            members[name + "_at"] = len(lists)
            members[name + "_n"] = len(numbers)
            lists.extend(numbers)

        for name, field in _LISTS:
            put(name, _check_ids(_ids(self.get(field), field), vocab_size, field))
        bad_words = self.get("bad_words_ids")
        sequences = [] if bad_words is None else listed(bad_words)
        if sequences is None:
            raise _wrong("bad_words_ids", bad_words, "a list of lists of token ids")
        bad: list[int] = []
        for words in sequences:
            ids = _sequence(words, vocab_size, "bad_words_ids")
            bad.append(len(ids))
            bad.extend(ids)
        put("bad_words", bad)
        biases: list[int] = []
        for biased, value in self._biases():
            ids = _sequence(biased, vocab_size, "sequence_bias or logit_bias")
            biases.append(len(ids))
            biases.extend(ids)
            biases.append(float_bits(value))
        put("bias", biases)
        put("encoder", self._encoder_ids(encoder_ids))
        return lists

    def _encoder_ids(self, encoder_ids: Sequence[int] | None) -> Sequence[int]:
        for name in ("encoder_repetition_penalty", "encoder_no_repeat_ngram_size"):
            value = self.get(name)
            if value is None or value == _NEUTRAL[name]:
                continue
            if encoder_ids is None:
                raise UnsupportedField(
                    f"the generation field {name!r} is about the text that an encoder reads",
                    WHERE,
                    "The model has no encoder of text; remove the field.",
                )
            return encoder_ids
        return []

    def _biases(self) -> list[tuple[list[Any], float]]:
        """(ids, bias) of logit_bias and sequence_bias; the latter is {ids: bias} or
        [[ids, bias], ...], as in transformers.
        """
        made: list[tuple[list[Any], float]] = []
        single = self.get("logit_bias")
        if single is not None:
            if not isinstance(single, dict):
                raise _wrong_bias()
            tokens: dict[str, Any] = single
            for token, value in tokens.items():
                made.append(([_token(token)], _bias(value)))
        several = self.get("sequence_bias")
        if isinstance(several, dict):
            table: dict[str, Any] = several
            several = [[words, value] for words, value in table.items()]
        pairs = [] if several is None else listed(several)
        if pairs is None:
            raise _wrong_bias()
        for item in pairs:
            pair = listed(item)
            if pair is None or len(pair) != 2:
                raise _wrong_bias()
            ids = listed(pair[0])
            if ids is None:
                raise _wrong_bias()
            made.append((ids, _bias(pair[1])))
        return made


def of_file(fields: Mapping[str, Any], where: str = "generation_config.json") -> Configuration:
    """The configuration of a file, in which null means "not set"."""
    return Configuration(without_nulls(fields), where)


def without_nulls(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a file that has all of them, null where they are not set."""
    return {name: value for name, value in given(fields) if value is not None}


def _check_supported(name: str, value: Any, where: str) -> None:
    if name not in GENERATION_FIELDS:
        known = [n for n in GENERATION_FIELDS if not n.startswith("_")]
        raise UnsupportedField(
            f"there is no generation field {name!r}",
            where,
            meant(name[:100], known, "Remove it, or check its spelling."),
        )
    default, use, remedy = GENERATION_FIELDS[name]
    if use != "refused" or value is None or value == default:
        return
    if value not in OFF_VALUES.get(name, []):
        raise UnsupportedField(
            f"the generation field {name!r} (set to {written(value)}) is not supported",
            where,
            remedy,
        )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float32(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and -3.4e38 <= value <= 3.4e38


def _is_decay(value: list[Any]) -> bool:
    return len(value) == 2 and all(_is_float32(x) for x in value) and 0 <= value[0] < 2**31


def _wrong(name: str, value: object, expected: str) -> InputError:
    return InputError(f"{name} has to be {expected}, but is {written(value)}", WHERE)


def _wrong_bias() -> InputError:
    return InputError(
        "a bias has the wrong form",
        WHERE,
        "Write logit_bias as {token id: bias} and sequence_bias as [[[ids], bias], ...].",
    )


def _token(name: object) -> int:
    try:
        return int(str(name))  # JSON has only string keys
    except ValueError:
        raise _wrong_bias() from None


def _bias(value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value < MAX_BIAS:  # NaN is not below it either
        raise _wrong_bias()
    bias: float = value
    return bias if bias >= -MAX_BIAS or bias == float("-inf") else -MAX_BIAS


def _ids(value: Any, field: str) -> list[int]:
    if value is None:
        return []
    found = listed(value)
    ids = [value] if found is None else found
    if not all(_is_int(i) for i in ids):
        raise _wrong(field, value, "a token id or a list of token ids")
    return ids


def _sequence(value: Any, vocab_size: int, field: str) -> list[int]:
    ids = _ids(value, field)
    if not ids:
        raise InputError(f"{field} contains an empty sequence", WHERE, "Remove it.")
    return _check_ids(ids, vocab_size, field)


def _check_ids(ids: list[int], vocab_size: int, field: str) -> list[int]:
    for i in ids:
        if not 0 <= i < vocab_size:
            raise InputError(
                f"{field} contains the token id {written(i)}, and the vocabulary has {vocab_size}",
                WHERE,
            )
    return ids


def error_for(code: int) -> EdgewiseError:
    """The error for a code (below 0) of core/sampling."""
    if code <= ERRORS["BAD_FIELD"]:
        name = members_of("ew_sampling")[ERRORS["BAD_FIELD"] - code]
        greedy = f"For greedy generation set {setting('do_sample', False)}."
        remedy = greedy if name == "temperature" else ""
        return InputError(f"{name} is out of its range", WHERE, remedy)
    if code == ERRORS["BAD_TOKEN"]:
        return InputError(
            "a token id is outside the model's vocabulary",
            "generate",
            "The tokenizer and the model do not belong together, or a list of ids names a wrong"
            " one.",
        )
    if code == ERRORS["NOT_FINITE"]:
        return EngineError(
            "the model's logits contain NaN or infinity",
            "generate",
            f"The weights or the inputs are broken; {setting('remove_invalid_values', True)}"
            " replaces such values.",
        )
    if code == ERRORS["NO_TOKEN"]:
        return InputError(
            "every token is suppressed, none can be chosen",
            "generate",
            "Loosen suppress_tokens, bad_words_ids, no_repeat_ngram_size, min_length or your own"
            " processor.",
        )
    if code == ERRORS["STUCK"]:
        return InputError(
            "no token of the vocabulary continues the text as its format demands",
            "response_format",
            "The format has characters that the tokenizer cannot write.",
        )
    if code == ERRORS["AMBIGUOUS"]:
        return InputError(
            "the text can be read in too many ways by the grammar",
            "response_format",
            "Write it so that alternatives differ early, and repetitions are not nested.",
        )
    lists = "the packed lists are inconsistent"
    what = lists if code == ERRORS["BAD_LIST"] else f"the sampling code returned {code}"
    return EngineError(what, "generate", "This is a bug in Edgewise.")
