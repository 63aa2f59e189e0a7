"""A language model, measured as it generates: a prompt, then tokens one by one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...compiler.ir import Graph
from ...compiler.package import Package
from ...errors import InputError
from ...host.profile import Profile
from ...host.session.decoder import open_package
from ...host.training.adapters import CausalLM
from .contender import Comparison, Contender, Decoding, repeat

if TYPE_CHECKING:
    from .contender import Engine

DEFAULT_PROMPT = 256


class DecodingContender(Contender[Decoding]):
    """A runtime that computes the same prompt and tokens repeatedly."""

    def measure(self) -> list[float]:
        """[tokens per second of the prompt, tokens per second of decoding]."""
        state = self.state
        prompt = repeat(state.prefill)
        times = []
        for token in state.ids:
            at = perf_counter()
            state.decode(token)
            times.append(perf_counter() - at)
        return [state.length / prompt, 1 / median(times)]

    def profile(self) -> Profile:
        assert self.state.model is not None
        with self.state.model.profile() as profile:
            self.state.prefill()
            for token in self.state.ids:
                self.state.decode(token)
        return profile


def compare_decoding(
    model: Package | str,
    graph: Graph | None,
    engine: Engine,
    prompt: int | None,
    tokens: int,
    against: bool,
) -> Comparison:
    """Prepares the measurement of prompt and decoding.

    Args:
        model: a package, or the path of an .onnx file.
        graph: the model of an .onnx file.
        engine: for Edgewise; onnxruntime gets as many threads.
        prompt: length of the prompt in tokens; default DEFAULT_PROMPT, at most half of the
            model's capacity.
        tokens: tokens that are decoded.
        against: whether to add onnxruntime; needs `graph`.
    """
    ours = DecodingContender("edgewise", "Edgewise", lambda: _load(model, engine, prompt, tokens))
    lm, length = ours.state.model, ours.state.length
    assert lm is not None
    comparison = Comparison(
        [ours],
        task=f"language model of up to {lm.max_length} tokens",
        measured=[
            (f"prompt of {length}", "tokens/s", "higher"),
            (f"decoding at {length}", "tokens/s", "higher"),
        ],
        notes=[
            f"A prompt of {length} tokens, then {tokens} more one by one. The tokens are fixed, so"
            " that all runtimes do the same work; sampling is not measured. Edgewise computes the"
            " logits of the last position of the prompt only, which is all that generation needs."
        ],
    )
    if against and graph is not None:
        from .peer import add_peer, load_decoding, open_session

        ids = _make_ids(length + tokens, lm.vocab_size)
        add_peer(
            comparison,
            lambda onnxruntime, title, exact: DecodingContender(
                "onnxruntime",
                title,
                lambda: load_decoding(
                    onnxruntime,
                    open_session(onnxruntime, str(model), engine.threads, exact),
                    graph,
                    ids,
                    length,
                ),
            ),
        )
        if comparison.difference is not None:
            comparison.notes.append(
                "onnxruntime computes the logits that the graph outputs. Its cache stays in its"
                " own memory between runs (run_with_ort_values), in a new allocation for each"
                " token. Edgewise updates its cache in place."
            )
    return comparison


def _load(
    model: Package | str, engine: Engine, prompt: int | None, tokens: int
) -> tuple[Decoding, Sequence[Any]]:
    """Loads a model in Edgewise; returns it, and the logits after the prompt and one more token."""
    package = model if isinstance(model, Package) else open_package(model)
    lm = CausalLM(package, engine=engine)
    length = prompt or max(1, min(DEFAULT_PROMPT, lm.max_length // 2))
    if length + tokens > lm.max_length:
        raise InputError(
            f"{length} + {tokens} tokens exceed the maximum length, {lm.max_length}",
            "prompt",
            "Use a shorter one (--prompt, --tokens).",
        )
    ids = _make_ids(length + tokens, lm.vocab_size)
    sequence = lm.open()

    def prefill() -> Any:
        lm.truncate(sequence, 0)
        return lm.forward(sequence, ids[:length])

    def decode(token: int) -> Any:
        return lm.forward(sequence, [token])

    first = [lm.logits(prefill())]
    lm.truncate(sequence, length)
    first.append(lm.logits(decode(ids[length])))
    return Decoding(prefill, decode, ids[length:], length, lm), first


def _make_ids(count: int, vocabulary: int) -> list[int]:
    return [(i * 7919 + 11) % min(vocabulary, 40000) for i in range(count)]
