"""The options of `personalize`, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import Seed, check_seed, given, setting, written

METHODS = ("logistic", "knn")
MAX_STEPS = 100_000
MAX_NEIGHBORS = 1 << 31
MAX_FLOAT = 1.7976931348623157e308
SHARE = 0.25
"""Of the examples that are held out for adapters, where `validation_split` does not say."""


@dataclass(frozen=True)
class HeadFields:
    """How heads classify and are trained.

    Attributes:
        method: "logistic" or "knn".
        neighbors: of "knn".
        c: inverse strength of the L2 penalty, as C of scikit-learn's LogisticRegression, for
            features whose mean square is 1.
        class_weight: see Labels.weights.
        steps: of Adam, each on all examples.
        learning_rate: of the first step; it falls to 0 along a cosine.
    """

    method: str = "logistic"
    neighbors: int = 5
    c: float = 1.0
    class_weight: Mapping[str, float] | str | None = "balanced"
    steps: int = 300
    learning_rate: float = 0.05


DEFAULTS: dict[str, Any] = {
    "method": "logistic",
    "neighbors": 5,
    "c": 1.0,
    "class_weight": "balanced",
    "steps": 300,
    "learning_rate": 0.05,
}
"""{option that makes HeadFields: its default}."""


def head_fields(options: Mapping[str, Any], where: str = "") -> HeadFields:
    """How heads are to be trained.

    Args:
        options: {name: value}; others than those of DEFAULTS are ignored.
        where: prefix of the names of options, for errors.

    Raises:
        InputError: a value is not valid.
    """
    values: dict[str, Any] = {**DEFAULTS}
    for name, value in given(options):
        if name in DEFAULTS:
            values[name] = value
    method = values["method"]
    if method not in METHODS:
        raise refused(values, "method", where, 'Give "logistic" or "knn".')
    neighbors = values["neighbors"]
    if not is_count(neighbors, MAX_NEIGHBORS):
        raise refused(values, "neighbors", where, "Give a positive integer.")
    steps = values["steps"]
    if not is_count(steps, MAX_STEPS):
        raise refused(values, "steps", where, f"Give 1 to {MAX_STEPS}.")
    for name in ("c", "learning_rate"):
        if not is_positive(values[name]):
            raise refused(values, name, where, "Give a positive number.")
    weight = values["class_weight"]
    fine: bool = weight is None or weight == "balanced"
    if isinstance(weight, Mapping):
        fine = all(isinstance(k, str) and is_positive(w) for k, w in weight.items())
    if not fine:
        remedy = 'Give "balanced", {label: a positive number} or ' + f"{written(None)}."
        raise refused(values, "class_weight", where, remedy)
    rate = values["learning_rate"]
    return HeadFields(method, neighbors, float(values["c"]), weight, steps, float(rate))


def refused(values: Mapping[str, Any], name: str, where: str, remedy: str) -> InputError:
    """The error of an option whose value is not valid."""
    return InputError(f"it is {written(values[name])}", where + name, remedy)


def is_positive(value: Any) -> bool:
    """Whether a value is a number above 0 that a float can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value <= MAX_FLOAT


def is_count(value: Any, most: int) -> bool:
    """Whether a value is an integer from 1 on."""
    return type(value) is int and 1 <= value <= most


def check_labels(fields: HeadFields, labels: Sequence[str]) -> None:
    """Raises InputError if a weight is of no label."""
    weight = fields.class_weight
    if not isinstance(weight, Mapping):
        return
    for label in list(weight):
        if label not in labels:
            raise InputError(
                f"there is no label {label!r}", "class_weight", f"There are: {', '.join(labels)}."
            )


def checked_seed(seed: object, where: str = "") -> Seed:
    """The option `seed`. Raises InputError: it is none."""
    found = check_seed(seed, where + "seed")
    if found is None:
        raise InputError(f"{written(seed)} is not a seed", where + "seed", "Give an integer.")
    return found


def check_teaching(name: object, validation_split: Any, where: str = "") -> None:
    """Raises InputError unless these are a name of a head and a share below 1."""
    if not isinstance(name, str) or not name:
        raise InputError(f"{written(name)} is not a name", where + "name", "Give a text.")
    number = isinstance(validation_split, (int, float)) and not isinstance(validation_split, bool)
    if not number or not 0 <= validation_split < 1:
        raise InputError(
            f"{written(validation_split)} is not a share",
            where + "validation_split",
            "Give a number from 0 to 1, such as 0.25.",
        )


def is_lora(asked: object, method: str) -> bool:
    """Whether adapters are wanted by the option `lora`. Raises InputError: the method has none."""
    if asked is None or asked is False:
        return False
    if method == "knn":
        raise InputError('the method "knn" has no head', "lora", "Leave it out.")
    return True


def other_examples() -> str:
    """What to do where examples of a second label are missing."""
    return f"Add examples of something else, or use {setting('method', 'knn')}."
