"""Training of adapters on the backbone of a personal pipeline. Mirrors
web/src/worker/pipelines/adapters/lora.ts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import FLOAT, FLOAT16, pack, unpack
from ....compiler.heads.examples import Examples, floats, is_positive
from ....compiler.heads.lora import (
    ALPHA,
    CLASSES_OF_STEP,
    PROGRAMS,
    RANK,
    LoraLayout,
    check_lora,
    fitting_length,
)
from ....compiler.heads.step import ABSENT
from ....compiler.task_package import compile_task
from ....errors import InputError
from ....logic.personal.lora_training import training as steps_of
from ....logic.personal.measures import cross_entropy
from ....logic.post.speakers import unit
from ....seeds import RunSeeds
from ...heads.fit import Head, normalization
from ...session.open import folder_files, name_in
from ...session.packaged import ProgramSession

if TYPE_CHECKING:
    from .backbone import Backbone

SHARE = 0.25
"""Of the examples that are held out, where `validation_split` does not say."""
Feeds = dict[str, Any]
Scores = Callable[[Examples], "tuple[list[str], list[dict[str, float]]]"]


@dataclass(frozen=True)
class LoraOptions:
    """How adapters are trained.

    Attributes:
        rank, alpha: as r and lora_alpha of LoraConfig.
        steps: of Adam, at most.
        learning_rate: of the first step; it falls to 0 along a cosine.
        batch_size: examples of a step.
        evaluate_every: steps between two measurements of the held-out examples.
        patience: measurements without a lower loss after which the training ends.
    """

    rank: int = RANK
    alpha: float = ALPHA
    steps: int = 40
    learning_rate: float = 1e-3
    batch_size: int = 4
    evaluate_every: int = 5
    patience: int = 3

    def __post_init__(self) -> None:
        check_lora(self.rank, self.alpha)
        for name in ("steps", "batch_size", "evaluate_every", "patience"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 100_000:
                raise InputError(
                    f"{value!r} is not a positive integer", f"lora.{name}", "Give 1 to 100000."
                )
        rate = self.learning_rate
        if not is_positive(rate):
            raise InputError(f"{str(rate)[:40]} is not a positive number", "lora.learning_rate")


def lora_options(given: Any) -> LoraOptions | None:
    """The option `lora` of `personalize`: False, True, or {name of an option: value}.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(given, bool) or given is None:
        return LoraOptions() if given else None
    known = [f.name for f in fields(LoraOptions)]
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise InputError(
            f"it is {str(given)[:80]}", "lora", f"Give True or a dict of {', '.join(known)}."
        )
    return LoraOptions(**given)


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
        losses: of the steps: the mean cross entropy of their examples.
        held_out_losses: mean cross entropy of the held-out examples: of the head alone, and of each
            measurement.
    """

    adapters: Adapters | None
    examples: Examples
    losses: list[float] = field(default_factory=list)
    held_out_losses: list[float] = field(default_factory=list)


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
        self.layout = LoraLayout.from_dict(self.described["lora"], "lora")
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
    class_weight: str | dict[str, float] | None,
    seed: int,
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
        class_weight: see Examples.weights.
        seed: of the first values, and of the order of examples.
        train: trains a head.
        score: (labels of the held-out examples, their scores) for examples, by a head that does not
            know them.
        on_step: called with (step, loss) after each step.

    Raises:
        InputError: there are no held-out examples, or too many labels.
    """
    known, held = split
    if not held:
        raise InputError(
            "no label has two examples", "lora", "Give more: some are held out to compare."
        )
    if len(examples.labels) > CLASSES_OF_STEP:
        raise InputError(
            f"there are {len(examples.labels)} labels", "lora", f"Give up to {CLASSES_OF_STEP}."
        )
    some = examples.chosen(known)
    run = _Run(training, examples, feeds, some, train(some), class_weight, training.first(seed))
    best = _trained(run, known, held, seed, on_step)
    alone = Adaptation(None, examples, run.steps, run.losses)
    if best is None:
        return alone
    changed = Examples(examples.size)
    changed.labels, changed.classes = list(examples.labels), list(examples.classes)
    changed.data = bytearray(b"".join(training.features(x, best) for x in feeds))
    if _quality(*score(changed)) <= _quality(*score(examples)):
        return alone
    return Adaptation(Adapters(training.layout, best), changed, run.steps, run.losses)


def _quality(truth: Sequence[str], scores: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """What is compared: the number of right answers, then the mean likelihood."""
    right = sum(max(row, key=lambda name: row[name]) == t for t, row in zip(truth, scores))
    return right, -cross_entropy(truth, scores)


def _trained(
    run: _Run,
    known: list[int],
    held: list[int],
    seed: int,
    on_step: Callable[[int, float], None] | None,
) -> bytes | None:
    """The adapters with the lowest loss of the held-out examples; None: the first ones have it."""
    options, best, loss = run.training.options, None, 0.0
    todo = steps_of(
        known, options.steps, options.batch_size, options.evaluate_every, options.patience, seed
    )
    request = next(todo, None)
    while request is not None:
        if request.kind == "step":
            run.steps.append(run.step(len(run.steps), request.batch))
            if on_step is not None:
                on_step(len(run.steps), run.steps[-1])
        elif request.kind == "measure":
            loss = run.measure(held)
            run.losses.append(loss)
        else:
            best = run.adapters
        try:
            request = todo.send(loss)
        except StopIteration:
            break
    return best


class _Run:
    """The state of a training."""

    def __init__(
        self,
        training: LoraTraining,
        examples: Examples,
        feeds: Sequence[Feeds],
        some: Examples,
        head: Head,
        class_weight: str | dict[str, float] | None,
        adapters: bytes,
    ) -> None:
        self.training, self.examples, self.feeds = training, examples, feeds
        self.steps: list[float] = []
        self.losses: list[float] = []
        self.mean, self.scale = normalization(some, training.sessions["lora"].engine)
        n, weights = len(examples.labels), some.weights(class_weight)
        total = math.fsum(weights)
        by_class = dict(zip(some.classes, weights))
        self.weights = [by_class.get(c, 1.0) * len(weights) / total for c in range(n)]
        w, b = _head_of_step(head, self.mean, self.scale)
        count = len(adapters) // 4 + len(w) + len(b)
        self.vectors: dict[str, Any] = {
            "parameters": _vector(adapters + w.tobytes() + b.tobytes()),
            "means": _vector(bytes(4 * count)),
            "squares": _vector(bytes(4 * count)),
        }
        mask = array("f", [0.0] * n + [ABSENT] * (CLASSES_OF_STEP - n))
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

    def step(self, step: int, batch: Sequence[int]) -> float:
        """Trains on a batch. Returns its mean loss."""
        options, sums, total = self.training.options, self.zeros, 0.0
        for i in batch:
            c = self.examples.classes[i]
            targets = array("f", bytes(4 * CLASSES_OF_STEP))
            targets[c] = self.weights[c] / len(batch)
            more = {
                **self.fixed,
                "parameters": self.vectors["parameters"],
                "gradients": sums,
                "targets": Array((1, CLASSES_OF_STEP), "float32", targets.tobytes()),
            }
            loss, sums = self.training.gradient(self.feeds[i], more)
            total += loss
        rate = options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / options.steps))
        given = {
            **self.vectors,
            "gradients": sums,
            "rate": Array((), "float32", array("f", [rate]).tobytes()),
            "step": Array((), "int64", array("q", [step + 1]).tobytes()),
        }
        self.vectors = self.training.update(given)
        if not math.isfinite(total):
            raise InputError("the loss is not finite", "lora", "Give a lower learning_rate.")
        return total

    def measure(self, held: Sequence[int]) -> float:
        """The mean cross entropy of held-out examples, with the head as it is trained."""
        numbers, n = self.training.layout.numbers, len(self.examples.labels)
        tail = floats(_bytes(self.vectors["parameters"])[4 * numbers :])
        bias, losses = tail[-CLASSES_OF_STEP:], []
        for i in held:
            x = floats(self.training.features(self.feeds[i], self.adapters))
            given = [(v - m) * self.scale for v, m in zip(x, self.mean)]
            logits = [
                math.fsum(v * w for v, w in zip(given, tail[c::CLASSES_OF_STEP])) + bias[c]
                for c in range(n)
            ]
            top = max(logits)
            total = math.fsum(math.exp(v - top) for v in logits)
            losses.append(top + math.log(total) - logits[self.examples.classes[i]])
        return math.fsum(losses) / len(losses)


def _head_of_step(
    head: Head, mean: Sequence[float], scale: float
) -> tuple[array[float], array[float]]:
    """(weight [size, CLASSES_OF_STEP], bias) of a head on centred and scaled features."""
    n, size = len(head.labels), len(mean)
    weight, bias = floats(head.weight), floats(head.bias)
    w = array("f", bytes(4 * size * CLASSES_OF_STEP))
    b = array("f", bytes(4 * CLASSES_OF_STEP))
    for c in range(n):
        column = weight[c::n]
        w[c::CLASSES_OF_STEP] = array("f", [v / scale for v in column])
        b[c] = bias[c] + math.fsum(v * m for v, m in zip(column, mean))
    return w, b
