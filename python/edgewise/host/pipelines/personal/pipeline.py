"""PersonalPipeline: a pipeline with labels of its user."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....compiler.heads.examples import Examples
from ....errors import InputError
from ....logic.native import Seed
from ....logic.personal.adapters import LoraOptions, LoraReport, lora_options
from ....logic.personal.examples import OTHER
from ....logic.personal.measures import Measures, measured
from ....logic.personal.options import (
    SHARE,
    HeadFields,
    check_labels,
    check_teaching,
    checked_seed,
    is_lora,
)
from ....logic.personal.results import (
    CallOptions,
    by_label,
    call_options,
    check_known,
    label_of,
    results,
)
from ...heads.fit import Head, fit
from ..base import Pipeline
from .backbone import Backbone
from .files import Saved, read_head, write_head
from .lora import Adapters, LoraTraining, adapt
from .scorers import Linear, Nearest

_ABSENT = ""  # as transformers' default of top_k of texts
_CALLS: dict[str, dict[str, Any]] = {
    "image-classification": {"top_k": 5, "function_to_apply": None},
    "audio-classification": {"top_k": 5, "function_to_apply": None},
    "text-classification": {"top_k": _ABSENT, "function_to_apply": None},
    "speaker-verification": {"threshold": 0.5, "name": None},
}


class PersonalPipeline(Pipeline):
    """A pipeline that `personalize` made; see there.

    Its call is that of its task's pipeline, with softmax of the head's logits as scores.
    `function_to_apply` is "softmax", "sigmoid" or "none"; with the method "knn" it has no effect
    and is refused. As speaker-verification the scores are probabilities, and the default of
    `threshold` is 0.5.

    Attributes:
        task: of the pipeline.
        heads: names of the heads; `use` switches between them.
        name: of the head in use.
        labels: of the head in use.
        losses: of its training.
        lora: of the head in use, where adapters were to be trained with it: {"kept": whether it has
            them, "before" and "after": measures on held-out examples without and with them,
            "losses": of the steps, "held_out_losses": before the first step and at each
            measurement}. None for other heads, and for those that were loaded.
        validation: of the head in use: measures on held-out examples (`validation_split`); see
            `evaluate`. None without, and after its examples have changed.
    """

    task = ""

    def __init__(
        self,
        backbone: Backbone,
        fields: HeadFields,
        on_step: Callable[[int, float], None] | None = None,
    ) -> None:
        pipe = backbone.pipe
        self.start_lock()
        self.closed, self.batch_size = False, 1
        self.backbone, self.engine, self.config = backbone, pipe.engine, pipe.config
        self.sessions, self.files, self.session_options = {}, None, None
        self.processor, self.tokenizer = pipe.processor, pipe.tokenizer
        self.task = backbone.task  # type: ignore[misc]  # of the class elsewhere
        self.CALL = _CALLS[self.task]  # type: ignore[misc]
        self.defaults = dict(self.CALL)
        self.fields = fields
        self.on_step = on_step
        self._validations: dict[str, Measures] = {}
        self._reports: dict[str, LoraReport] = {}
        self._saved: dict[str, Saved] = {}
        self._name = ""
        self._scorer: Linear | Nearest | None = None

    # Heads

    @property
    def name(self) -> str:
        """The name of the head in use."""
        return self._name

    @property
    def heads(self) -> list[str]:
        """Names of the heads."""
        return list(self._saved)

    @property
    def labels(self) -> list[str]:
        """The labels of the head in use."""
        return list(self._head.examples.labels)

    @property
    def method(self) -> str:
        """How the head in use classifies: "logistic" or "knn"."""
        return self.fields.method

    @property
    def neighbors(self) -> int:
        """How many examples "knn" compares with."""
        return self.fields.neighbors

    @property
    def losses(self) -> list[float]:
        """The loss of each step of the training of the head in use."""
        head = self._head.head
        return list(head.losses) if head is not None else []

    @property
    def validation(self) -> Measures | None:
        """See the class."""
        return self._validations.get(self._name)

    @property
    def lora(self) -> LoraReport | None:
        """See the class."""
        return self._reports.get(self._name)

    @property
    def _head(self) -> Saved:
        if not self._name:
            raise InputError("there is no head", "personalize", "Give examples.")
        return self._saved[self._name]

    def use(self, name: str) -> None:
        """Switches to another head. Raises InputError: there is none of this name."""
        if name not in self._saved:
            raise InputError(
                f"there is no head {name!r}", "use", f"There are: {', '.join(self._saved)}."
            )
        with self.lock:
            self._name = name
            self.fields = self._saved[name].fields  # it is trained again as it was
            self._forget()

    def teach(
        self,
        examples: Mapping[str, Sequence[Any]],
        other: Sequence[Any] = (),
        name: str = "default",
        validation_split: float = 0.0,
        seed: int = 0,
        lora: bool | Mapping[str, Any] = False,
    ) -> None:
        """Makes a head, which replaces one of the same name, and uses it.

        Args:
            examples, other, name, validation_split, seed, lora: see `personalize`.

        Raises:
            InputError: an example cannot be used, or there are too few.
        """
        check_teaching(name, validation_split)
        of_split = checked_seed(seed)
        options = lora_options(lora) if is_lora(lora, self.fields.method) else None
        if not examples:
            raise InputError("there are no examples", "personalize", "Give {label: [inputs]}.")
        taught = {str(label): self._inputs(label, e) for label, e in examples.items()}
        if other:
            taught.setdefault(OTHER, []).extend(self._inputs(OTHER, other))
        if not self._saved:  # of further heads, and after `remove`, the weights may be of others
            check_labels(self.fields, list(taught))
        with self.lock:
            found: Examples | None = None
            feeds: list[dict[str, Any]] = []
            seen = feeds.append if options is not None else None
            for label, inputs in taught.items():
                rows = [self.backbone.of(x, None, seen) for x in inputs]
                found = found or Examples(len(rows[0]) // 4)
                found.add(label, rows)
            assert found is not None
            if options is not None:
                split = found.split(validation_split or SHARE, of_split)
                self._adapt(name, found, feeds, split, options, of_split)
                return
            held = None
            if validation_split:
                scores = self._held_scores(found, *found.split(validation_split, of_split))
                held = measured(found.labels, *scores)
            self._fit(name, found)
            if held is not None:
                self._validations[name] = held

    def add(self, label: str, examples: Sequence[Any] | Any) -> None:
        """Adds examples of a label, which may be new, and trains the head again.

        Args:
            label: of the examples.
            examples: an input, or a list of them.

        Raises:
            InputError: an example cannot be used.
        """
        with self.lock:
            saved = self._head
            adapters = saved.adapters
            rows = [self.backbone.of(x, adapters) for x in self._inputs(label, examples)]
            changed = saved.examples.chosen(range(len(saved.examples)))
            changed.add(str(label), rows)
            self._fit(self._name, changed, adapters)

    def remove(self, label: str) -> None:
        """Removes a label and trains the head again. Raises InputError: there is none."""
        with self.lock:
            saved = self._head
            changed = saved.examples.chosen(range(len(saved.examples)))
            changed.remove(label)
            self._fit(self._name, changed, saved.adapters)

    def evaluate(self, examples: Mapping[str, Sequence[Any]]) -> Measures:
        """Measures the head in use on examples that it was not trained with.

        Args:
            examples: {label: [inputs]}; a label that the head does not know stands for OTHER where
                it knows that, else none of its answers is right.

        Returns:
            {"accuracy", "count", "confusion", "equal_error_rates"}, see measures.measured

        Raises:
            InputError: an example cannot be used.
        """
        with self.lock:
            labels = self.labels
            truth, scores = [], []
            for label, inputs in examples.items():
                name = label_of(label, labels)
                for one in self._inputs(label, inputs):
                    truth.append(name)
                    row = self._values(self.backbone.of(one, self._head.adapters))
                    scores.append(by_label(labels, row, self._head.head is not None))
            return measured(labels, truth, scores)

    def save(self, target: Any, name: str | None = None) -> bytes | None:
        """Writes a head with the features of its examples, so that it can be trained further.

        Args:
            target: a path of a .safetensors file, an object with `write`, or None: returns bytes.
            name: of the head. Default: the one in use.

        Raises:
            InputError: there is no such head.
        """
        if name is not None and name not in self._saved:
            raise InputError(
                f"there is no head {name!r}", "save", f"There are: {', '.join(self._saved)}."
            )
        return write_head(self._saved[name] if name is not None else self._head, target)

    def load(self, source: str | os.PathLike[str] | bytes, name: str | None = None) -> str:
        """Reads a head and uses it.

        Args:
            source: what `save` wrote.
            name: of the head. Default: the name that it was saved with.

        Returns:
            its name

        Raises:
            ModelError: the file is damaged. InputError: it was made with another model, or its
                adapters do not fit the model.
        """
        check_teaching(name or "default", 0)
        saved = read_head(source)
        if saved.model != self.backbone.digest or saved.task != self.task:
            raise InputError(
                f"the head '{saved.name}' was made with another model or task",
                "load",
                "Load it with the model that it was made with, or teach it again.",
            )
        saved.name = name or saved.name or "default"
        with self.lock:
            if saved.adapters is not None:
                self.backbone.prepare(saved.adapters)
            self._saved[saved.name] = saved
            self._validations.pop(saved.name, None)
            self._reports.pop(saved.name, None)
            self.use(saved.name)
        return saved.name

    def export(self, target: str | os.PathLike[str]) -> None:
        """Writes the model with the head in its graph.

        Args:
            target: a path. "x.onnx": the graph alone, with the output `logits` and its labels in
                metadata_props; "x.edge": a package for pages; else a folder as transformers.js and
                optimum have it, which `pipeline(task, folder)` opens.

        Raises:
            InputError: the head is of "knn", or the pipeline was made from sessions.
        """
        from .export import export

        export(self, os.fsdecode(target))

    # Calls

    def is_list(self, inputs: Any) -> bool:
        return self.backbone.pipe.is_list(inputs)

    def check(self, options: Mapping[str, Any]) -> None:
        self._asked(options)

    def _asked(self, options: Mapping[str, Any]) -> CallOptions:
        own = {n: v for n, v in options.items() if n != "top_k" or v != _ABSENT}
        return call_options(own, self.task, self.fields.method)

    def __call__(self, inputs: Any, *, batch_size: int | None = None, **options: Any) -> Any:
        """See the class and Pipeline.__call__."""
        result = super().__call__(inputs, batch_size=batch_size, **options)
        text = self.task == "text-classification"
        return [result] if text and isinstance(inputs, str) and "top_k" not in options else result

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        values = self._values(self.backbone.of(given, self._head.adapters))
        trained = self._head.head is not None
        found: Any = results(self._asked(options), self.task, self.labels, values, trained)
        return found[0] if options.get("top_k") == _ABSENT else found

    def close(self) -> None:
        """Frees the memory of the heads. The pipeline that it was made of stays open."""
        with self.lock:
            self.closed = True
            self._forget()
            self.backbone.close()

    # Helpers

    def _inputs(self, label: Any, examples: Any) -> list[Any]:
        """The inputs of a label. Raises InputError: there are none."""
        pipe = self.backbone.pipe
        inputs = list(examples) if pipe.is_list(examples) else [examples]
        if not inputs:
            raise InputError(f"'{label}' has no examples", "personalize", "Give one or more.")
        return inputs

    def _adapt(
        self,
        name: str,
        examples: Examples,
        feeds: list[dict[str, Any]],
        split: tuple[list[int], list[int]],
        options: LoraOptions,
        seed: Seed,
    ) -> None:
        """Trains a head and adapters, and uses what is better on the held-out examples."""
        known, held = split

        def train(some: Examples) -> Head:
            return fit(some, self.fields, self.engine)

        def score(given: Examples) -> tuple[list[str], list[Mapping[str, float]]]:
            return self._held_scores(given, known, held)

        training = LoraTraining(self.backbone, options)
        try:
            weight = self.fields.class_weight
            found = adapt(
                training, examples, feeds, split, weight, seed, train, score, self.on_step
            )
        finally:
            training.close()
        self._fit(name, found.examples, found.adapters)
        self._validations[name] = found.report["after"] or found.report["before"]
        self._reports[name] = found.report

    def _fit(self, name: str, examples: Examples, adapters: Adapters | None = None) -> None:
        """Trains a head on examples and uses it. adapters: that their features were made with."""
        head = self._trained(examples, self.on_step)
        self._saved[name] = Saved(
            name, self.task, self.backbone.digest, self.fields, examples, head, adapters
        )
        self._validations.pop(name, None)
        self._reports.pop(name, None)
        self.use(name)

    def _trained(
        self, examples: Examples, on_step: Callable[[int, float], None] | None = None
    ) -> Head | None:
        if self.fields.method == "knn":
            if not len(examples):
                raise InputError("there are no examples", "personalize", "Add some.")
            return None
        return fit(examples, self.fields, self.engine, on_step)

    def _held_scores(
        self, examples: Examples, known: list[int], held: list[int]
    ) -> tuple[list[str], list[Mapping[str, float]]]:
        """(labels of the held-out examples, scores of a head that does not know them)"""
        some = examples.chosen(known)
        scorer = self._scorer_of(some, self._trained(some))
        try:
            labels = examples.labels
            truth = [labels[examples.classes[i]] for i in held]
            linear = isinstance(scorer, Linear)
            scores = [by_label(labels, scorer(examples.row(i)), linear) for i in held]
            return truth, scores
        finally:
            scorer.close()

    def _scorer_of(self, examples: Examples, head: Head | None) -> Linear | Nearest:
        if head is not None:
            return Linear(head, self.engine)
        check_known(examples.labels, False, self.fields.method)  # a page may have one label
        return Nearest(examples, self.fields.neighbors, self.engine)

    def _values(self, features: bytes) -> list[float]:
        """The logits or, of "knn", the scores of features."""
        if self._scorer is None:
            saved = self._head
            self._scorer = self._scorer_of(saved.examples, saved.head)
        return self._scorer(features)

    def _forget(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None
