"""Runs the training of adapters for logic/personal/adapters.py, which has its steps."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import FLOAT, FLOAT16, pack, unpack
from ....compiler.heads.examples import Examples, floats
from ....compiler.heads.lora import PROGRAMS, fitting_length
from ....compiler.task_package import compile_task
from ....errors import InputError
from ....logic.native import Seed
from ....logic.personal.adapters import (
    LoraOptions,
    LoraReport,
    Request,
    Step,
    adapting,
    loss_of,
    shares_of,
    targets_of,
)
from ....logic.personal.layout import LoraLayout, layout_of
from ....logic.personal.training import CLASSES, mask_of
from ....logic.post.speakers import unit
from ....seeds import RunSeeds
from ...drive import drive
from ...heads.fit import Head, normalization
from ...session.open import folder_files, name_in
from ...session.packaged import ProgramSession

if TYPE_CHECKING:
    from .backbone import Backbone

Feeds = dict[str, Any]
Scores = Callable[[Examples], "tuple[list[str], list[Mapping[str, float]]]"]


@dataclass(frozen=True)
class Adapters:
    """Trained adapters. data: float32 [layout.numbers]."""

    layout: LoraLayout
    data: bytes


@dataclass
class Adaptation:
    """What a training of adapters gave.

    Attributes:
        adapters: the best ones; None: the head alone is better on the held-out examples.
        examples: with the features that the model with these adapters gives.
        report: of the training.
    """

    adapters: Adapters | None
    examples: Examples
    report: LoraReport


class LoraTraining:
    """The programs that train adapters of a backbone.

    Args:
        backbone: of the personal pipeline.
        options: LoraOptions.

    Raises:
        InputError: the model cannot be trained.
    """

    def __init__(self, backbone: Backbone, options: LoraOptions) -> None:
        pipe, self.options = backbone.pipe, options
        if pipe.files is None:
            raise InputError(
                "the pipeline was made from sessions", "lora", "Make it from a folder or a file."
            )
        path = pipe.files.graphs[backbone.stem]
        files, root = folder_files(pipe.files.root)
        package = compile_task(
            files,
            pipe.task,
            model_file=name_in(root, path),
            compare=False,
            personalize={"lora": {"rank": options.rank, "alpha": options.alpha}},
        )
        self.unit = pipe.task == "speaker-verification"
        self.described = package.manifest["processor"]["features"]
        if self.described["model"] != backbone.digest:
            raise InputError(
                "its features are pooled in another way", "pooling", "Leave `pooling` out."
            )
        self.layout = layout_of(self.described["lora"], "lora")
        self.sessions: dict[str, ProgramSession] = {}
        try:
            for name in PROGRAMS:
                self.sessions[name] = ProgramSession(package, name, pipe.engine)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frees the engine's memory."""
        for session in self.sessions.values():
            session.free()

    def first(self, seed: int) -> bytes:
        """First values of the adapters, float32 [layout.numbers]."""
        (a,) = self.sessions["lora_begin"].run(["a"], {}, seeds=RunSeeds(seed))
        return _bytes(a) + bytes(4 * (self.layout.numbers - self.layout.first))

    def features(self, feeds: Feeds, adapters: bytes) -> bytes:
        """The features of an input, float32 [size], of the model with adapters."""
        found = self._pooled(feeds, adapters)
        return pack(FLOAT, unit(floats(found))) if self.unit else found

    def _pooled(self, feeds: Feeds, adapters: bytes) -> bytes:
        session, name = self.sessions["lora"], self.described["output"]
        given = {**self._fitted(session, feeds), "parameters": _vector(adapters)}
        (value,) = session.run([name], given)
        code, shape, data = as_input(value, name)
        raw = bytes(memoryview(data).cast("B"))
        if code == FLOAT16:
            raw = array("f", unpack(code, raw, math.prod(shape))).tobytes()
        size = self.described["size"]
        if len(shape) == 2 or len(shape) == 3 and self.described["pooling"] == "first":
            return raw[: 4 * size]
        x = floats(raw)
        if len(shape) == 3:
            rows = [x[i::size] for i in range(size)]
        else:
            area = shape[2] * shape[3]
            rows = [x[i * area : (i + 1) * area] for i in range(size)]
        return array("f", [math.fsum(row) / len(row) for row in rows]).tobytes()

    def gradient(self, feeds: Feeds, more: Mapping[str, Any]) -> tuple[float, Any]:
        """(loss of an example, gradients with those of the example added)"""
        session = self.sessions["lora_step"]
        loss, sums = session.run(
            ["loss", "new_gradients"], {**self._fitted(session, feeds), **more}
        )
        return float(loss), sums

    def update(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A step of Adam: the new vectors by their names."""
        names = ("parameters", "means", "squares")
        session = self.sessions["lora_update"]
        return dict(zip(names, session.run([f"new_{name}" for name in names], given)))

    def _fitted(self, session: ProgramSession, feeds: Feeds) -> Feeds:
        """Inputs of a length that a plan takes: tokens are followed by zeros, which their mask has
        too, sounds by themselves, so that nothing is trained on silence; what is longer is cut.
        """
        found = {}
        sound = any(as_input(x, n)[0] in (FLOAT, FLOAT16) for n, x in feeds.items())
        for name, value in feeds.items():
            code, shape, data = as_input(value, name)
            raw = bytes(memoryview(data).cast("B"))
            if len(shape) == 2:
                n = fitting_length([p.described for p in session.plans], name, shape[1])
                size = n * (len(raw) // shape[1])
                raw = raw * -(-size // len(raw)) if sound else raw.ljust(size, b"\0")
                raw, shape = raw[:size], [1, n]
            found[name] = as_output(code, list(shape), raw)
        return found


def _vector(data: bytes) -> Array:
    return Array((len(data) // 4,), "float32", data)


def _bytes(value: Any) -> bytes:
    return bytes(memoryview(as_input(value, "")[2]).cast("B"))


def adapt(
    training: LoraTraining,
    examples: Examples,
    feeds: Sequence[Feeds],
    split: tuple[list[int], list[int]],
    class_weight: Mapping[str, float] | str | None,
    seed: Seed,
    train: Callable[[Examples], Head],
    score: Scores,
    on_step: Callable[[int, float], None] | None = None,
) -> Adaptation:
    """Trains adapters, and keeps them if held-out examples are told apart better with them.

    Args:
        training: the programs.
        examples: with the features of the model as it is.
        feeds: the model's inputs for each example.
        split: indices of (examples to train on, held-out examples).
        class_weight: see Labels.weights.
        seed: of the first values, and of the order of examples.
        train: trains a head.
        score: (labels of the held-out examples, their scores) for examples, by a head that does not
            know them.
        on_step: called with (step, loss) after each step.

    Raises:
        InputError: there are no held-out examples, or too many labels.
    """
    known, held = split
    run: _Run | None = None
    best, changed = b"", examples

    def answer(request: Request) -> Any:
        nonlocal run, best, changed
        if request.kind == "begin":
            some = examples.chosen(known)
            first = training.first(seed)
            run = _Run(training, examples, feeds, some, train(some), class_weight, first)
            return None
        assert run is not None
        if request.kind == "step":
            loss = run.step(request)
            if on_step is not None:
                on_step(request.number, loss)
            return loss
        if request.kind == "measure":
            return run.measure(held)
        if request.kind == "keep":
            best = run.adapters
            return None
        if request.adapted:
            changed = examples.instead([training.features(x, best) for x in feeds])
        return score(changed)

    report = drive(adapting(examples, known, held, len(feeds), training.options, seed), answer)
    if report["kept"]:
        return Adaptation(Adapters(training.layout, best), changed, report)
    return Adaptation(None, examples, report)


class _Run:
    """The state of a training."""

    def __init__(
        self,
        training: LoraTraining,
        examples: Examples,
        feeds: Sequence[Feeds],
        some: Examples,
        head: Head,
        class_weight: Mapping[str, float] | str | None,
        adapters: bytes,
    ) -> None:
        self.training, self.examples, self.feeds = training, examples, feeds
        self.mean, self.scale = normalization(some, training.sessions["lora"].engine)
        self.shares = shares_of(examples, some, class_weight)
        w, b = _head_of_step(head, self.mean, self.scale)
        count = len(adapters) // 4 + len(w) + len(b)
        self.vectors: dict[str, Any] = {
            "parameters": _vector(adapters + w.tobytes() + b.tobytes()),
            "means": _vector(bytes(4 * count)),
            "squares": _vector(bytes(4 * count)),
        }
        mask = mask_of(len(examples.labels), CLASSES)
        self.fixed = {
            "mean": _vector(self.mean.tobytes()),
            "scale": Array((), "float32", array("f", [self.scale]).tobytes()),
            "mask": _vector(mask.tobytes()),
        }
        self.zeros = _vector(bytes(4 * count))

    @property
    def adapters(self) -> bytes:
        """The adapters alone."""
        return _bytes(self.vectors["parameters"])[: 4 * self.training.layout.numbers]

    def step(self, step: Step) -> float:
        """Trains on a batch. Returns its mean loss."""
        sums, total = self.zeros, 0.0
        for i in step.batch:
            c = self.examples.classes[i]
            targets = targets_of(c, self.shares[c], len(step.batch))
            more = {
                **self.fixed,
                "parameters": self.vectors["parameters"],
                "gradients": sums,
                "targets": Array((1, CLASSES), "float32", targets.tobytes()),
            }
            loss, sums = self.training.gradient(self.feeds[i], more)
            total += loss
        given = {
            **self.vectors,
            "gradients": sums,
            "rate": Array((), "float32", array("f", [step.rate]).tobytes()),
            "step": Array((), "int64", array("q", [step.number]).tobytes()),
        }
        self.vectors = self.training.update(given)
        return total

    def measure(self, held: Sequence[int]) -> float:
        """The mean cross entropy of held-out examples, with the head as it is trained."""
        numbers, n = self.training.layout.numbers, len(self.examples.labels)
        tail = floats(_bytes(self.vectors["parameters"])[4 * numbers :])
        bias, losses = tail[-CLASSES:], []
        for i in held:
            x = floats(self.training.features(self.feeds[i], self.adapters))
            given = [(v - m) * self.scale for v, m in zip(x, self.mean)]
            logits = [
                math.fsum(v * w for v, w in zip(given, tail[c::CLASSES])) + bias[c]
                for c in range(n)
            ]
            losses.append(loss_of(logits, self.examples.classes[i]))
        return math.fsum(losses) / len(losses)


def _head_of_step(
    head: Head, mean: Sequence[float], scale: float
) -> tuple[array[float], array[float]]:
    """(weight [size, CLASSES], bias) of a head on centred and scaled features."""
    n, size = len(head.labels), len(mean)
    weight, bias = floats(head.weight), floats(head.bias)
    w = array("f", bytes(4 * size * CLASSES))
    b = array("f", bytes(4 * CLASSES))
    for c in range(n):
        column = weight[c::n]
        w[c::CLASSES] = array("f", [v / scale for v in column])
        b[c] = bias[c] + math.fsum(v * m for v, m in zip(column, mean))
    return w, b
