"""Measures how fast a model runs on this machine, compared with onnxruntime if that is installed.

    report = edgewise.extras.bench.bench("model.onnx", dims={"batch": 1})
    print(report)  # the output of `edgewise bench model.onnx --dims batch=1`

Both runtimes alternate in one process, with the same weights and inputs; their results are compared
first. Every figure is the median over rounds, with its quartiles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from ...compiler.compile import CACHE_NAME, pick_model_file
from ...compiler.ir import Graph
from ...compiler.onnx import FileSource, read_model
from ...errors import InputError, NoSuchFile
from ...host.engine import open_engine
from ...host.session.open import folder_files, open_package
from .contender import Comparison
from .decoding import compare_decoding
from .report import BenchReport, figure
from .run import compare_runs

if TYPE_CHECKING:
    from .contender import Engine

__all__ = ["BenchReport", "bench"]

MAX_ROUNDS, MIN_ROUNDS = 50, 3


def bench(
    model: str | os.PathLike[str],
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    *,
    dtype: str | None = None,
    prompt: int | None = None,
    tokens: int = 16,
    threads: int | None = None,
    seconds: float = 10.0,
    profile: bool = False,
    against: bool = True,
) -> BenchReport:
    """Measures a model.

    A decoder-only language model is measured as it generates, unless dims, shapes or values are
    given; every other model as one run.

    Args:
        model: path of an .onnx file, a model folder, or an .edge package of a language model.
        dims: sizes of the inputs' symbolic dimensions, by name.
        shapes: shapes of inputs, instead of dims.
        values: flat numbers of inputs, instead of generated ones.
        dtype: which .onnx file of a folder.
        prompt: length of a language model's prompt in tokens; default 256, or half of the model's
            capacity if that is less.
        tokens: tokens that are decoded after the prompt.
        threads: default: the number of cores.
        seconds: duration of the rounds; there are at least three.
        profile: whether to profile single steps as well.
        against: whether to measure onnxruntime if it is installed.

    Raises:
        InputError: an argument is missing or out of range.
        ModelError, UnsupportedOp, PackageError: as InferenceSession and CausalLM.
    """
    for name, x in (("prompt", prompt), ("tokens", tokens), ("threads", threads)):
        if x is not None and (type(x) is not int or x < 1):
            raise InputError(f"{x!r} is not a positive integer", name, "Pass an integer.")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < inf:
        raise InputError(
            f"{seconds!r} is not a duration", "seconds", "Pass a non-negative number of seconds."
        )
    path = os.fspath(model)
    engine = open_engine(threads)
    if path.endswith(".edge"):
        comparison = _compare_package(path, engine, prompt, tokens)
    else:
        file, graph = _read_model_file(path, dtype)
        if not (dims or shapes or values) and _is_language_model(graph):
            comparison = compare_decoding(file, graph, engine, prompt, tokens, against)
        else:
            comparison = compare_runs(
                file, graph, engine, dims or {}, shapes or {}, values or {}, against
            )
    return _measure(path, comparison, engine, seconds, profile)


def _compare_package(path: str, engine: Engine, prompt: int | None, tokens: int) -> Comparison:
    package = open_package(path)
    if "decoder" not in package.manifest:
        raise InputError(
            "it is a package for pages", path, "Give the .onnx file that it was built from."
        )
    comparison = compare_decoding(package, None, engine, prompt, tokens, against=False)
    comparison.notes.append(
        "onnxruntime does not read packages: give the model's folder or .onnx file to compare with"
        " it."
    )
    return comparison


def _read_model_file(path: str, dtype: str | None) -> tuple[str, Graph]:
    """Path and graph of an .onnx file, or of that of a model folder."""
    if not os.path.exists(path):
        raise NoSuchFile(
            "there is no such file or folder",
            path,
            "Give an .onnx file, a model folder or an .edge package.",
        )
    files, root = folder_files(path)
    file = path if os.path.isfile(path) else os.path.join(root, pick_model_file(files, dtype))
    return file, read_model(FileSource(file))


def _is_language_model(graph: Graph) -> bool:
    """Whether a model takes token ids and caches and computes logits."""
    names = {i.name for i in graph.input_names()}
    return (
        "input_ids" in names
        and any(o.name == "logits" for o in graph.outputs)
        and any(CACHE_NAME.search(name) for name in names)
    )


def _measure(
    path: str, comparison: Comparison, engine: Engine, seconds: float, profile: bool
) -> BenchReport:
    """Runs rounds in which all contenders take turns, in alternating order."""
    contenders = comparison.contenders
    ours, peer = contenders[0], contenders[1] if len(contenders) > 1 else None
    times: dict[str, list[list[float]]] = {c.name: [] for c in contenders}
    rounds, end = 0, perf_counter() + seconds
    while rounds < MIN_ROUNDS or rounds < MAX_ROUNDS and perf_counter() < end:
        for c in contenders if rounds % 2 else contenders[::-1]:
            times[c.name].append(c.measure())
        rounds += 1
    figures = [
        figure(
            name,
            unit,
            better,
            [t[i] for t in times[ours.name]],
            [t[i] for t in times[peer.name]] if peer else None,
        )
        for i, (name, unit, better) in enumerate(comparison.measured)
    ]
    ready = [[1000 * c.ready] for c in contenders]
    memory = [None if c.grown is None else [c.grown / 1e6] for c in contenders]
    figures += [
        figure("from the file to the first result", "ms", "lower", *(ready + [None])[:2]),
        figure("resident memory it added", "MB", "lower", *(memory + [None])[:2]),
    ]
    return BenchReport(
        model=path,
        task=comparison.task,
        threads=engine.threads,
        flavour=engine.flavour,
        rounds=rounds,
        figures=figures,
        difference=comparison.difference,
        peer=peer.title if peer else None,
        notes=comparison.notes,
        profile=ours.profile() if profile else None,
    )
