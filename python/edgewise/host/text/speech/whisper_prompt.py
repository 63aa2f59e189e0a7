"""The first tokens of Whisper's decoder: language, task, with or without times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....errors import InputError
from ....logic.speech.languages import CODES, LANGUAGES

if TYPE_CHECKING:
    from ...session.seq2seq import EncodedSource, Seq2SeqModel
    from .whisper import WhisperOptions

TASKS = ("transcribe", "translate")


def no_timestamps_id(model: Seq2SeqModel, times: bool) -> int:
    """The id of <|notimestamps|>; beyond the vocabulary where the model does not say.

    Raises:
        InputError: `times` are asked for, and the model does not say.
    """
    found = model.generation_config.get("no_timestamps_token_id")
    if found is None and times:
        raise InputError(
            "generation_config.json has no no_timestamps_token_id, which times need",
            "return_timestamps",
            "Take generation_config.json from the model's newest revision.",
        )
    return model.vocab_size if found is None else int(found)


def first_tokens(
    model: Seq2SeqModel, source: EncodedSource, options: WhisperOptions
) -> tuple[list[int], int | None]:
    """The first tokens of a window.

    Args:
        model: the model.
        source: the first window, in which the language is detected if it is not given.
        options: language, task, times.

    Returns:
        (<|startoftranscript|> and what follows, id of the language)

    Raises:
        InputError: the language or the task is unknown, or the model is for English only.
    """
    config = model.generation_config
    language_ids, task_ids = config.get("lang_to_id"), config.get("task_to_id") or {}
    if config.get("is_multilingual") is False or not language_ids:
        if options.language is not None or options.task is not None:
            raise InputError(
                "the model is for English only, so there is no language and no task to choose",
                "language" if options.language is not None else "task",
                "Leave it out, or take a multilingual model.",
            )
        return _ended(config, [model.start_ids()[0]], options.times), None
    language_name = options.language or config.get("language")
    task = options.task or config.get("task")
    if task is not None and task not in TASKS:
        raise InputError(f"there is no task {task!r}", "task", f"There are: {', '.join(TASKS)}.")
    forced = _forced(model) if language_name is None and task is None else {}
    language = language_id(language_name, language_ids) if language_name else forced.get(1)
    if language is None:
        language = detect_language(model, source, list(language_ids.values()))
    # transformers leaves the task out where neither is given; models then go astray.
    task_id = forced.get(2) if task is None else None
    if task_id is None:
        task_id = task_ids.get(task or "transcribe")
    ids = [model.start_ids()[0], language]
    if task_id is not None:
        ids.append(task_id)
    return _ended(config, ids, options.times), language


def _ended(config: dict[str, Any], ids: list[int], times: bool) -> list[int]:
    """With <|notimestamps|> unless there are times."""
    end = config.get("no_timestamps_token_id")
    return ids if times or end is None else [*ids, int(end)]


def _forced(model: Seq2SeqModel) -> dict[int, int | None]:
    """{position: id} of forced_decoder_ids, which older models have; None: to be detected."""
    pairs = model.generation_config.get("forced_decoder_ids")
    pairs = model.config.get("forced_decoder_ids") if pairs is None else pairs
    return {int(position): token for position, token in pairs or []}


def language_id(language: str, ids: dict[str, int]) -> int:
    """The id of a language.

    Args:
        language: its name ("french"), code ("fr") or token ("<|fr|>").
        ids: {token: id}.

    Raises:
        InputError: the model does not know it.
    """
    name = language.lower()
    code = name.strip("<|>") if name in ids else CODES.get(name, name)
    found = ids.get(f"<|{code}|>")
    if found is None:
        known = sorted(LANGUAGES.get(t.strip("<|>"), t) for t in ids)
        raise InputError(
            f"the language {language!r} is unknown to the model",
            "language",
            f"There are: {', '.join(known)}.",
        )
    return int(found)


def detect_language(model: Seq2SeqModel, source: EncodedSource, ids: list[int]) -> int:
    """The id of the likeliest language, from the logits behind <|startoftranscript|>."""
    sequence = source.open()
    try:
        with model.lock:
            logits = model.logits(source.forward(sequence, [model.start_ids()[0]]))
    finally:
        source.close(sequence)
    return max(ids, key=lambda i: (logits[i], -i))
