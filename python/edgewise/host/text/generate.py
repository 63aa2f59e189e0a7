"""`generate`: logic/generation with a decoder of Python. web/src/worker/generation/generate.ts is
the same for pages.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...errors import InputError, memory_in_words, wrong_type
from ...logic.generation import generate as rules
from ...logic.generation.config import Configuration
from .arguments import listed, model_defaults, prompts_of
from .config import GenerationConfig
from .formats import format_of
from .results import GenerateOutput, Tokens
from .run import Decoder, GenerationHost, finished

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
    config: Configuration | dict[str, Any] | None = None,
    streamer: Any = None,
    stopping_criteria: Functions = None,
    logits_processor: Functions = None,
    signal: Any = None,
    tokenizer: Decodes | None = None,
    cache: bool = False,
    response_format: Any = None,
    assistant_model: Decoder | None = None,
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
        tokenizer: for stop_strings: decode(ids, skip_special_tokens=False) -> str; for
            response_format: edgewise.text.Tokenizer.
        response_format: what the new text has to be: a JSON schema, `{"type": "json_schema",
            "json_schema": {"schema": ...}}`, `{"type": "json_object"}`, `{"type": "regex",
            "regex": ...}`, `{"type": "grammar", "grammar": ..., "syntax": "gbnf" or "lark"}` or
            `{"type": "choices", "choices": [...]}`. JSON has no white space unless
            `"whitespace"` is `"flexible"`.
        cache: continue from the states of an earlier generation that begins with the same tokens,
            and keep these states for later ones, where the decoder can (CausalLM). The results are
            those without. Default: False; pipelines: True.
        assistant_model: a smaller decoder with the same tokenizer, which guesses tokens that the
            decoder then reads at once, where that saves time by what was measured. Texts and the
            samples of a seed are those without, but for rounding.
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
        cache,
        response_format,
        assistant_model,
        **fields,
    )
    return finished(running)


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
    config: Configuration | dict[str, Any] | None = None,
    streamer: Any = None,
    stopping_criteria: Functions = None,
    logits_processor: Functions = None,
    signal: Any = None,
    tokenizer: Decodes | None = None,
    cache: bool = False,
    response_format: Any = None,
    assistant_model: Decoder | None = None,
    **fields: Any,
) -> Generator[int | None, None, list[list[int]] | GenerateOutput]:
    """`generate` as a generator, for hosts that do other work between tokens.

    Yields each token (with beams: None per step) and returns what `generate` returns. Closing it
    early frees everything.
    """
    if streamer is not None and not all(hasattr(streamer, n) for n in ("put", "end")):
        raise InputError(
            f"a {type(streamer).__name__} is no streamer", "generate", "Give a TextStreamer."
        )
    for name, model in (("decoder", decoder), ("assistant_model", assistant_model)):
        if not hasattr(model, "forward") and (model is not None or name == "decoder"):
            raise wrong_type(model, name, "a CausalLM")
    if tokenizer is not None and not hasattr(tokenizer, "decode"):
        raise wrong_type(tokenizer, "tokenizer", "a Tokenizer")
    if config is not None and not isinstance(config, dict) and not hasattr(config, "values"):
        raise wrong_type(config, "config", "a GenerationConfig or a dict")
    given = GenerationConfig(**config) if isinstance(config, dict) else config
    decode = None if tokenizer is None else partial(tokenizer.decode, skip_special_tokens=False)
    host = GenerationHost(
        decoder,
        streamer,
        signal,
        listed(stopping_criteria, "stopping_criteria"),
        listed(logits_processor, "logits_processor"),
        cache,
        format_of(decoder, tokenizer, response_format),
        assistant_model,
    )
    inputs = prompts_of(input_ids)
    job = rules.prepared(host, model_defaults(decoder), given, fields, inputs, decode)
    for text in job.warnings:
        warnings.warn(text, stacklevel=4)
    output = yield from host.answer(rules.generate(host, job))
    if not job.config.get("return_dict_in_generate"):
        return output.sequences
    return GenerateOutput({n: v for n, v in vars(output).items() if v is not None})
