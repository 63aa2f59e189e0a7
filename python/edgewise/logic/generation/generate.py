"""`generate`: a model computes logits, core/sampling chooses the next token, and the loops around
them are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..native import seed_words
from .arguments import check_assistant, check_streamer, checked_prompt, length_limit, warnings_of
from .beams import BeamSearch
from .config import Configuration, of_file
from .requests import Host, Loop, Steps
from .run import Output, Rescoring, Run, Task
from .sampling import Sampling
from .stop_strings import StopStrings, stop_strings_of

__all__ = ["Job", "generate", "log_probability_of", "prepared", "resolved"]


@dataclass
class Job:
    """The arguments of a call, checked and resolved.

    Attributes:
        config: of the call.
        prompts: token ids.
        limits: of each prompt, the maximum tokens of a sequence.
        stop: the criterion of stop_strings, or None.
        warnings: about arguments that have no effect, or less.
    """

    config: Configuration
    prompts: list[list[int]]
    limits: list[int]
    stop: StopStrings | None
    warnings: list[str]


def resolved(
    defaults: Mapping[str, Any], given: Configuration | None, fields: Mapping[str, Any]
) -> Configuration:
    """The configuration of a call: `fields` override `given`, which overrides the model's
    generation_config.json, which overrides transformers' defaults.

    Raises:
        UnsupportedField, InputError: a field cannot be used.
    """
    config = of_file(defaults)
    if given is not None:
        config.update(given.values)
    config.update(fields, "generate")
    config.validate()
    return config


def prepared(
    host: Host,
    defaults: Mapping[str, Any],
    given: Configuration | None,
    fields: Mapping[str, Any],
    inputs: Sequence[Sequence[Any]],
    decode: Callable[[list[int]], str] | None,
) -> Job:
    """The arguments of a call, checked and resolved.

    Args:
        host: the model and the caller.
        defaults: of the model.
        given: the configuration of the call, or None.
        fields: of the call itself.
        inputs: the ids of prompts.
        decode: the text of token ids, for stop_strings; or None.

    Raises:
        UnsupportedField, InputError: an argument cannot be used.
    """
    check_assistant(host)
    config = resolved(defaults, given, fields)
    warnings = warnings_of(config, fields)
    bos: int | None = config.get("bos_token_id")
    prompts = [checked_prompt(ids, bos, host.vocab_size) for ids in inputs]
    if host.streams:
        check_streamer(config, len(prompts))
    stop = stop_strings_of(decode, config.get("stop_strings"))
    limits: list[int] = []
    for prompt in prompts:
        limit, warning = length_limit(config, fields, len(prompt), host.max_length)
        limits.append(limit)
        if warning:
            warnings.append(warning)
    return Job(config, prompts, limits, stop, warnings)


def generate(host: Host, job: Job) -> Steps[Output]:
    """The sequences of all prompts. Closing the generator early frees everything.

    Raises:
        InputError: a value or a token id is out of range.
        Aborted: by the caller. Its `sequences` hold the ids so far.
    """
    config, output = job.config, Output([], [])
    seed = seed_words(config.get("seed"))
    time: float | None = config.get("max_time")
    deadline = None if time is None else host.now() + time
    count: int = config.get("num_return_sequences")
    beams: bool = config.get("num_beams") > 1
    for i, prompt in enumerate(job.prompts):
        task = Task(config, prompt, job.limits[i], job.stop, deadline, seed, i * count)
        if beams:
            search = BeamSearch(host, task, output)
            yield from _whole(search, search.steps())
        else:
            sampling = Sampling(host, task, output)
            yield from _whole(sampling, sampling.steps())
    return output


def _whole(run: Run, steps: Loop) -> Loop:
    """A run to its end. A streamer always ends, since a reader may wait for it."""
    over = False
    try:
        yield from steps
        over = True
    finally:
        try:
            if not over and run.host.streams:
                run.host.end()
        finally:
            run.free()


def log_probability_of(
    host: Host, config: Configuration, prompt: list[int], tokens: Sequence[int]
) -> Steps[float]:
    """The sum of the logarithms of the probabilities of tokens after a prompt.

    Args:
        host: computes logits.
        config: with which the tokens were chosen, resolved.
        prompt: ids before the tokens.
        tokens: those after the prompt.
    """
    limit = len(prompt) + len(tokens)
    whole: int | None = config.get("max_length")
    if whole is not None and config.get("max_new_tokens") is None:
        limit = max(limit, whole)
    run = Rescoring(host, Task(config, prompt, limit), Output([], []))
    try:
        return (yield from run.total(tokens))
    finally:
        run.free()
