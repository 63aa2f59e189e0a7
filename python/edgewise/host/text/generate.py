"""`generate`: a decoder computes logits, core/sampling chooses the next token, and this package has
the loops around them. web/src has the same in TypeScript.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...errors import InputError, memory_in_words
from ...logic.generation.arguments import check_streamer
from ...logic.generation.stop_strings import stop_strings_of
from .arguments import length_limit, listed, model_defaults, prompts_of, resolve
from .beam_search import BeamSearch
from .config import GenerationConfig
from .results import GenerateOutput, Tokens
from .run import Decoder, GenerateCall
from .sample import Sampling

__all__ = ["GenerateOutput", "Tokens", "generate", "generate_async", "model_defaults", "steps"]

Functions = Callable[..., Any] | Sequence[Callable[..., Any]] | None


class Decodes(Protocol):
    """A tokenizer, as stop strings need it."""

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        ...


@memory_in_words
def generate(
    decoder: Decoder,
    input_ids: Iterable[Any],
    config: GenerationConfig | dict[str, Any] | None = None,
    streamer: Any = None,
    stopping_criteria: Functions = None,
    logits_processor: Functions = None,
    signal: Any = None,
    tokenizer: Decodes | None = None,
    **fields: Any,
) -> list[list[int]] | GenerateOutput:
    """Continues token ids, as transformers' `GenerationMixin.generate`.

    Args:
        decoder: edgewise.CausalLM, or another text.run.Decoder.
        input_ids: the prompt's ids, or a list of prompts, each of which is continued by itself.
        config: GenerationConfig or dict. Fields that it does not set come from
            decoder.generation_config.
        streamer: has put(ids) and end(); gets the prompt, then each token. For one sequence without
            beams.
        stopping_criteria: f(ids, scores) -> bool, or a list of them; true ends the sequence.
            `scores` is the last array of scores, or None.
        logits_processor: f(ids, scores) -> None or the new scores, or a list of them; `scores` is
            an array('f') [vocab_size]. Called where transformers calls it: after its own
            processors, before temperature and the filters.
        signal: stops the work if signal.aborted, signal.is_set() or signal() is true. A function is
            called between tokens; the others are also read from another thread while the model
            computes.
        tokenizer: for stop_strings: decode(ids, skip_special_tokens=False) -> str.
        **fields: fields of GenerationConfig, which override `config`.

    Returns:
        A list of sequences (lists of ids), or a GenerateOutput with return_dict_in_generate.

    Raises:
        UnsupportedField, InputError: an argument cannot be used.
        EngineError: the model cannot be run.
        Aborted: by the signal. Its `sequences` hold the ids so far.
    """
    running = steps(
        decoder,
        input_ids,
        config,
        streamer,
        stopping_criteria,
        logits_processor,
        signal,
        tokenizer,
        **fields,
    )
    while True:
        try:
            next(running)
        except StopIteration as over:
            return over.value


async def generate_async(*args: Any, **kwargs: Any) -> list[list[int]] | GenerateOutput:
    """As `generate`, but yields to the event loop (of Pyodide's page or worker) about every 20 ms,
    between tokens.
    """
    running = steps(*args, **kwargs)
    last = time.monotonic()
    try:
        while True:
            try:
                next(running)
            except StopIteration as over:
                return over.value
            if time.monotonic() - last > 0.02:
                await asyncio.sleep(0)
                last = time.monotonic()
    finally:
        running.close()


def steps(
    decoder: Decoder,
    input_ids: Iterable[Any],
    config: GenerationConfig | dict[str, Any] | None = None,
    streamer: Any = None,
    stopping_criteria: Functions = None,
    logits_processor: Functions = None,
    signal: Any = None,
    tokenizer: Decodes | None = None,
    **fields: Any,
) -> Generator[int | None, None, list[list[int]] | GenerateOutput]:
    """`generate` as a generator, for hosts that do other work between tokens.

    Yields each token (with beams: None per step) and returns what `generate` returns. Closing it
    early frees everything.
    """
    config = resolve(decoder, config, fields)
    prompts = prompts_of(input_ids, config, decoder.vocab_size)
    if streamer is not None and not all(hasattr(streamer, n) for n in ("put", "end")):
        raise InputError(
            f"a {type(streamer).__name__} is no streamer", "generate", "Give a TextStreamer."
        )
    if streamer is not None:
        check_streamer(config, len(prompts))
    decode = None if tokenizer is None else partial(tokenizer.decode, skip_special_tokens=False)
    host = GenerateCall(
        streamer,
        signal,
        stop_strings_of(decode, config.stop_strings),
        None if config.max_time is None else time.monotonic() + config.max_time,
        listed(stopping_criteria),
        listed(logits_processor),
    )
    result = GenerateOutput(sequences=[], finish_reasons=[])
    seed = int.from_bytes(os.urandom(8), "little") if config.seed is None else config.seed % 2**64
    kind = BeamSearch if config.num_beams > 1 else Sampling
    for number, prompt in enumerate(prompts):
        limit = length_limit(config, fields, len(prompt), decoder.max_length)
        stream = number * config.num_return_sequences
        run = kind(decoder, prompt, config, limit, host, seed, stream, result)
        try:
            run.allocate()
            yield from run.loop()
        except BaseException:
            if streamer is not None:
                streamer.end()  # a thread may wait for a TextIteratorStreamer
            raise
        finally:
            run.free()
    return result if config.return_dict_in_generate else result["sequences"]
