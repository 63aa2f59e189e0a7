"""What is measured: a runtime that has loaded a model and runs it repeatedly."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...host.profile import Profile

if TYPE_CHECKING:
    from ...host.engine.browser import BrowserEngine
    from ...host.engine.native import NativeEngine
    from ...host.session import InferenceSession
    from ...host.training.adapters import CausalLM

    Engine = NativeEngine | BrowserEngine

SLICE = 0.1  # seconds that a round measures each contender at least

State = TypeVar("State")


@dataclass
class LoadedModel:
    """A loaded model: `run` runs it once; `session` is that of Edgewise."""

    run: Callable[[], Sequence[Any]]
    session: InferenceSession | None = None


@dataclass
class Decoding:
    """A loaded language model.

    Attributes:
        prefill: computes the prompt.
        decode: computes one more token.
        ids: the tokens that are decoded.
        length: tokens of the prompt.
        model: that of Edgewise.
    """

    prefill: Callable[[], object]
    decode: Callable[[int], object]
    ids: Sequence[int]
    length: int
    model: CausalLM | None = None


class Contender(Generic[State]):
    """A runtime with a loaded model.

    Args:
        name: "edgewise" or "onnxruntime".
        title: name and version, for the report.
        load: loads the model and computes the first results. Its time and memory are measured.

    Attributes:
        state: what `load` returned first.
        result: the first results.
        ready: seconds that `load` took.
        grown: bytes by which the resident memory grew, or None if the system does not tell.
    """

    def __init__(
        self, name: str, title: str, load: Callable[[], tuple[State, Sequence[Any]]]
    ) -> None:
        gc.collect()
        self.name, self.title = name, title
        before, at = _resident_bytes(), perf_counter()
        self.state, self.result = load()
        self.ready, after = perf_counter() - at, _resident_bytes()
        self.grown = None if before is None or after is None else max(0, after - before)

    def measure(self) -> list[float]:
        """The figures of one round, in the order of `Comparison.measured`."""
        raise NotImplementedError

    def profile(self) -> Profile:
        """A profile of one run; of Edgewise only."""
        raise NotImplementedError


@dataclass
class Comparison:
    """What is to be measured.

    Attributes:
        contenders: Edgewise, and onnxruntime if it can be measured.
        task: of the model.
        measured: (name, unit, "higher" or "lower" is better) of each figure of `measure`.
        notes: sentences for the report.
        difference: largest difference between the results, relative to the largest value.
    """

    contenders: list[Contender[Any]]
    task: str
    measured: list[tuple[str, str, str]]
    notes: list[str]
    difference: float | None = None


def repeat(run: Callable[[], object]) -> float:
    """Median seconds of a run, over at least one run and SLICE seconds."""
    times: list[float] = []
    end = perf_counter() + SLICE
    while not times or perf_counter() < end:
        at = perf_counter()
        run()
        times.append(perf_counter() - at)
    return median(times)


def _resident_bytes() -> int | None:
    """Resident memory of this process; None if the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
