"""Models from sound to sound: what a graph takes and gives is found by its types and shapes, and
states are paired with the outputs that replace them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, ModelError
from ..native import option
from .graphs import (
    FLOATS,
    FREE,
    INTEGERS,
    Answers,
    Append,
    Feed,
    Numbers,
    Part,
    Port,
    Request,
    Run,
    Signature,
    Slot,
    within,
)

TASK = "audio-to-audio"
GRAPH = "model"
SAMPLES = "samples"
SOUND = "sound"
MAX_RATE = 1 << 20  # Hz
WHOLE = 30.0  # seconds that a graph without states gets at once
CONTEXT = 2.0  # seconds that a part gets of the sound on either side of it


@dataclass(frozen=True)
class Model:
    """What a graph does.

    Attributes:
        sound: the input of samples.
        output: the output of samples.
        states: (input, output) of each state.
        rate: the input that says the sampling rate, of models that have one.
        size: samples that a run takes; 0: any number.
    """

    sound: Port
    output: Port
    states: list[tuple[Port, Port]]
    rate: Port | None
    size: int


def rate_of(given: object, processor: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Hz of the sound that a model takes.

    Args:
        given: by the caller; None: as in preprocessor_config.json or config.json.

    Raises:
        InputError: it is not known, or no rate.
    """
    rate: object = given
    for fields in (processor, config):
        if rate is None:
            rate = fields.get("sampling_rate")
    if not isinstance(rate, int) or isinstance(rate, bool) or not 0 < rate <= MAX_RATE:
        raise InputError("its sampling rate is not known", option("sampling_rate"), "Give its Hz.")
    return rate


def is_sound(port: Port) -> bool:
    """Whether a port may be samples: numbers of floats in one row."""
    if port.dtype not in FLOATS or not 1 <= len(port.shape) <= 3:
        return False
    return all(d in (1, FREE) for d in port.shape[:-1])


def model_of(signature: Signature) -> Model:
    """Finds the samples and the states of a graph. Raises ModelError: it has an input that nobody
    knows, or no sound.
    """
    left = list(signature.outputs)
    pairs: list[tuple[Port, Port]] = []
    sounds: list[Port] = []
    rate: Port | None = None
    for port in signature.inputs:
        twin = _twin(port, left)
        if twin is not None:
            pairs.append((port, twin))
            left = [p for p in left if p.name != twin.name]
        elif port.dtype in INTEGERS and math.prod([abs(d) for d in port.shape]) == 1:
            rate = port
        else:
            sounds.append(port)
    outputs = [p for p in left if is_sound(p)]
    if len(sounds) != 1 or not is_sound(sounds[0]) or not outputs:
        names = [f"{p.name} {p.shape}" for p in signature.inputs]
        raise ModelError(
            f"its inputs are {', '.join(names)}",
            TASK,
            "It has to take samples, and states that outputs replace, and to give samples.",
        )
    size = max(0, sounds[0].shape[-1])
    return Model(sounds[0], outputs[0], pairs, rate, size)


def _twin(port: Port, outputs: list[Port]) -> Port | None:
    """The output that replaces a state: of its type and shape, with its name and a little more."""
    same = [p for p in outputs if p.dtype == port.dtype and _fits(p.shape, port.shape)]
    base = plain_name(port.name)
    for p in same:
        if base and plain_name(p.name) == base:  # not of "input" and "output"
            return p
    return None


def _fits(a: list[int], b: list[int]) -> bool:
    return len(a) == len(b) and all(x == y or FREE in (x, y) for x, y in zip(a, b))


def plain_name(name: str) -> str:
    """A name without what marks an input or an output."""
    text = name.lower()
    parts: list[str] = []
    word = ""
    for c in list(text):
        if c in "_./-":
            parts.append(word)
            word = ""
        else:
            word += c
    parts.append(word)
    marks = ("in", "out", "input", "output", "new", "next", "prev", "past", "present", "n")
    kept = [p for p in parts if p not in marks]
    joined = "_".join(kept)
    return joined[:-1] if joined.endswith("n") and joined[:-1] in ("state", "h", "c") else joined


def enhanced(model: Model, count: int, rate: int, first: bool) -> Generator[Request, Answers, None]:
    """Makes the result "sound" of samples in the slot "samples", [1, count].

    Args:
        model: the graph.
        count: samples.
        rate: Hz.
        first: whether states begin as zeros; else they are those of the call before.

    Raises:
        InputError: there are no samples.
        ModelError: the model gives another number of samples than it takes.
    """
    if count == 0:
        raise InputError("there are no samples", TASK, "Give a recording that is not empty.")
    stepwise = bool(model.states) and model.size > 0
    if stepwise:
        for at in range(0, count, model.size):
            yield from _run(model, at, model.size, rate, first and at == 0)
            yield Append(SOUND, Part(SOUND, 0, min(model.size, count - at)))
        return
    whole = model.size if model.size > 0 else within(model.sound, int(WHOLE * rate))
    context = min(int(CONTEXT * rate), whole // 4)
    step = whole - 2 * context
    at = 0
    while at < count:
        single = count <= whole
        start = 0 if single else max(0, at - context)
        size = whole if model.size > 0 else min(count, count if single else start + whole) - start
        if model.size == 0 and not single:
            size = min(whole, count - start)
        last = count if single or at + step + context >= count else at + step
        made = yield from _run(model, start, size, rate, True)
        if abs(made - size) > rate // 10 + 1:
            raise ModelError(
                f"it gives {made} samples for {size}", TASK, "Its sound has another rate."
            )
        last = min(last, start + size)
        yield Append(SOUND, Part(SOUND, at - start, last - at))
        at = last


def _run(
    model: Model, start: int, size: int, rate: int, first: bool
) -> Generator[Request, Answers, int]:
    """Runs the graph on a part; gives the number of its samples."""
    rank = len(model.sound.shape)
    dims = [*[1 for i in range(rank - 1)], size]
    feeds: dict[str, Feed] = {model.sound.name: Part(SAMPLES, start, size, dims)}
    keep = {model.output.name: SOUND}
    for port, output in model.states:
        if first:
            shape = [d if d > 0 else 1 for d in port.shape]
            zeros = [0.0 for i in range(math.prod(shape))]
            feeds[port.name] = Numbers(shape, zeros, port.dtype)
        else:
            feeds[port.name] = Slot(port.name)
        keep[output.name] = port.name
    if model.rate is not None:
        feeds[model.rate.name] = Numbers([1 for d in model.rate.shape], [rate], model.rate.dtype)
    made = yield Run(GRAPH, feeds, keep, [])
    return made[model.output.name].dims[-1]
