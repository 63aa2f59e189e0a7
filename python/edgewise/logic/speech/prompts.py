"""The first tokens of Whisper's decoder: language, task, with or without times."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ..native import option
from .languages import CODES, LANGUAGES
from .requests import Logits, Request

TASKS = ("transcribe", "translate")


@dataclass(frozen=True)
class WhisperModel:
    """What transcription knows of a model.

    Attributes:
        generation_config, config: contents of generation_config.json and config.json.
        vocab_size, max_length: of the decoder.
        start: id of <|startoftranscript|>.
        frames: of a window.
        positions: of the encoder's output for a window.
    """

    generation_config: dict[str, Any]
    config: dict[str, Any]
    vocab_size: int
    max_length: int
    start: int
    frames: int
    positions: int


@dataclass
class WhisperOptions:
    """How to transcribe; names and defaults are transformers'.

    Attributes:
        times: whether tokens of times are generated.
        word_times: whether each token gets a time.
        language, task: of the prompt.
        prompt_ids: tokens before the first window's, or with prompt_condition_type "all-segments"
            before each.
        condition_on_prev_tokens: whether the text so far is a prompt of the next window.
        temperature: to try in turn; None: greedy or beams.
        compression_ratio_threshold, logprob_threshold, no_speech_threshold: when another
            temperature is tried, and when a window is skipped; None: never.
        fields: of GenerationConfig.
    """

    times: bool = False
    word_times: bool = False
    language: str | None = None
    task: str | None = None
    prompt_ids: Sequence[int] = ()
    prompt_condition_type: str = "first-segment"
    condition_on_prev_tokens: bool = False
    temperature: Sequence[float | None] = (None,)
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)


def id_of(config: dict[str, Any], name: str) -> int | None:
    """An id of a configuration; the first one of several; None: there is none."""
    value = config.get(name)
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, int) else None


def no_timestamps_id(model: WhisperModel, options: WhisperOptions) -> int:
    """The id of <|notimestamps|>; beyond the vocabulary where the model does not say.

    Raises:
        InputError: times are asked for, and the model does not say.
    """
    found = id_of(model.generation_config, "no_timestamps_token_id")
    if found is None and options.times:
        raise InputError(
            "generation_config.json has no no_timestamps_token_id, which times need",
            option("return_timestamps"),
            "Take generation_config.json from the model's newest revision.",
        )
    return model.vocab_size if found is None else found


def first_tokens(
    model: WhisperModel, options: WhisperOptions
) -> Generator[Request, Any, tuple[list[int], int | None]]:
    """The first tokens of a window.

    Args:
        model: the model. The language is detected in the present window if it is not given.
        options: language, task, times.

    Returns:
        (<|startoftranscript|> and what follows, id of the language)

    Raises:
        InputError: the language or the task is unknown, or the model is for English only.
    """
    config = model.generation_config
    language_ids = _ids(config, "lang_to_id")
    if config.get("is_multilingual") is False or not language_ids:
        if options.language is not None or options.task is not None:
            raise InputError(
                "the model is for English only, so there is no language and no task to choose",
                option("language" if options.language is not None else "task"),
                "Leave it out, or take a multilingual model.",
            )
        return _ended(config, [model.start], options.times), None
    name: str | None = options.language or config.get("language")
    task: str | None = options.task or config.get("task")
    if task is not None and task not in TASKS:
        known = ", ".join(TASKS)
        raise InputError(f"there is no task {task!r}", option("task"), f"There are: {known}.")
    forced = _forced(model) if name is None and task is None else {}
    language = language_id(name, language_ids) if name else forced.get(1)
    if language is None:
        language = yield from detect_language(model, list(language_ids.values()))
    # transformers leaves the task out where neither is given; models then go astray.
    task_id = forced.get(2)
    if task_id is None:
        task_id = _ids(config, "task_to_id").get(task or "transcribe")
    ids = [model.start, language]
    if task_id is not None:
        ids.append(task_id)
    return _ended(config, ids, options.times), language


def _ids(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Ids by token, of a configuration."""
    found: dict[str, Any] | None = config.get(name)
    return {} if found is None else found


def _ended(config: dict[str, Any], ids: list[int], times: bool) -> list[int]:
    """With <|notimestamps|> unless there are times."""
    end = id_of(config, "no_timestamps_token_id")
    return ids if times or end is None else [*ids, end]


def _forced(model: WhisperModel) -> dict[int, int | None]:
    """{position: id} of forced_decoder_ids, which older models have; None: to be detected."""
    pairs: list[tuple[int, int | None]] | None = model.generation_config.get("forced_decoder_ids")
    if pairs is None:
        pairs = model.config.get("forced_decoder_ids")
    return {} if pairs is None else {pair[0]: pair[1] for pair in pairs}


def language_id(language: str, ids: dict[str, Any]) -> int:
    """The id of a language.

    Args:
        language: its name ("french"), code ("fr") or token ("<|fr|>").
        ids: {token: id}.

    Raises:
        InputError: the model does not know it.
    """
    name = language.lower()
    code = name.strip("<|>") if name in ids else CODES.get(name, name)
    found: int | None = ids.get(f"<|{code}|>")
    if found is None:
        known = sorted(LANGUAGES.get(t.strip("<|>"), t) for t in ids)
        raise InputError(
            f"the language {language!r} is unknown to the model",
            option("language"),
            f"There are: {', '.join(known)}.",
        )
    return found


def language_name(config: dict[str, Any], token: int | None) -> str | None:
    """The name of the language of a token; None: not known. config: generation_config.json."""
    for name, i in _ids(config, "lang_to_id").items():
        if i == token:
            return LANGUAGES.get(name.strip("<|>"))
    return None


def detect_language(model: WhisperModel, ids: list[int]) -> Generator[Request, Any, int]:
    """The id of the likeliest language, from the logits after <|startoftranscript|>."""
    logits: Sequence[float] = yield Logits([model.start])
    best = ids[0]
    for i in ids:
        if logits[i] > logits[best] or (logits[i] == logits[best] and i < best):
            best = i
    return best
