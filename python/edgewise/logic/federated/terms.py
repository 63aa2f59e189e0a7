"""What a client demands of tasks, and how it reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import part, written
from .layout import CODECS

SETTINGS = ("proximal-mu", "part", "audit", "keep-optimizer")
"""Settings of a task that change what is trained."""
LONGEST = 1e9  # seconds of a task or stage


@dataclass(frozen=True)
class Terms:
    """What a client demands; it declines tasks that do not meet it.

    Attributes:
        minimum_cohort: fewest clients of a round; with secure aggregation, fewest members of a
            group whose keys and consents it has seen.
        required: only rounds whose server sees sums.
        authority: Ed25519 public key of who certifies members. Without it members are taken on the
            hub's word.
        max_epsilon: only rounds with differential privacy that spend at most this.
        trusts_server: whether its word for epsilon is taken; else the noise must be the clients'.
        max_bytes: of updates that leave within 24 hours.
        max_seconds: of a task, whatever its deadline.
    """

    minimum_cohort: int
    required: bool
    authority: bytes | None
    max_epsilon: float | None
    trusts_server: bool
    max_bytes: float
    max_seconds: float


def is_number(x: object) -> bool:
    """Whether a value of JSON is a number."""
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _is_text(x: object) -> bool:
    return isinstance(x, str)


def _is_count(x: object) -> bool:
    return type(x) is int and x >= 0


def _is_whole(x: object) -> bool:
    return type(x) is int


def _is_time(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0 <= x < LONGEST


def _is_object(x: object) -> bool:
    return isinstance(x, dict)


def _is_codec(x: object) -> bool:
    return isinstance(x, str) and x in CODECS


def _is_plan(x: object) -> bool:
    return x is None or (isinstance(x, dict) and _is_time(x.get("stage")))


def _is_some_object(x: object) -> bool:
    return x is None or isinstance(x, dict)


def _is_some_text(x: object) -> bool:
    return x is None or isinstance(x, str)


def _is_audit(x: object) -> bool:
    """An empty one would lift the terms, and train as if there were none."""
    if x is None:
        return True
    audit: dict[str, Any] = x if isinstance(x, dict) else {}
    return isinstance(audit.get("texts"), list)


Check = Callable[[object], bool]
NAMES: list[tuple[str, Check]] = [("run", _is_text), ("round", _is_count), ("base", _is_text)]
"""Fields of `task` and `weights`."""
FIELDS: list[tuple[str, Check]] = [
    ("codec", _is_codec),
    ("config", _is_object),
    ("seed", _is_whole),
    ("cohort", _is_whole),
    ("deadline", _is_time),
    ("secure", _is_plan),
    ("privacy", _is_some_object),
    ("part", _is_some_text),
    ("audit", _is_audit),
]
"""Fields of `task` alone."""


def check_fields(message: Mapping[str, Any], whole: bool) -> None:
    """Checks a message of a server.

    Args:
        message: `task` or `weights`.
        whole: whether it is a task.

    Raises:
        InputError: a field is missing or wrong.
    """
    for name, is_right in [*NAMES, *(FIELDS if whole else [])]:
        if not is_right(message.get(name)):
            raise InputError(f"its field '{name}' is missing or wrong", "task")


def names_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Run and round of a task, if they are right."""
    return {n: message[n] for n, is_right in NAMES[:2] if is_right(message.get(n))}


def is_result(message: Mapping[str, Any]) -> bool:
    """Whether a message `result` says something."""
    return type(message.get("round")) is int and isinstance(message.get("counted"), bool)


def epsilon_told(task: Mapping[str, Any]) -> float | None:
    """Epsilon after a round, as the server says; None: there is no such number."""
    found: Any = task.get("privacy")
    privacy: dict[str, Any] = found if isinstance(found, dict) else {}
    told: Any = privacy.get("epsilon")
    return told if is_number(told) else None


def noise_of(task: Mapping[str, Any]) -> float:
    """Noise of the clients, in units of the clip; 0: none."""
    found: Any = task.get("secure")
    secure: dict[str, Any] = found if isinstance(found, dict) else {}
    noise: Any = secure.get("noise")
    return noise if is_number(noise) else 0.0


def objection(terms: Terms, task: Mapping[str, Any], sent: float, size: int) -> str:
    """Why a task does not meet the terms; "": it does, as far as can be known before its group has
    members. What a server says proves nothing: group.take_part checks who takes part.

    Args:
        terms: of the client.
        task: checked by check_fields.
        sent: bytes of updates that left within 24 hours.
        size: of the update, if it is known.
    """
    cohort: int = task["cohort"]
    if cohort < terms.minimum_cohort:
        return f"the task is for {cohort} clients, the terms say {terms.minimum_cohort}"
    if sent + size > terms.max_bytes:
        return f"the terms allow {written(terms.max_bytes)} bytes a day"
    secure: Any = task.get("secure")
    if task.get("audit") is not None and secure is None:
        return ""  # nothing of this client's data is sent
    if terms.required and secure is None:
        return "the terms require secure aggregation, which the task does not have"
    most = terms.max_epsilon
    if most is None:
        return ""
    if not terms.trusts_server:
        if noise_of(task) > 0:
            return ""
        return "the terms require noise of the clients, which the task does not have"
    told = epsilon_told(task)
    if told is not None and 0 <= told <= most:
        return ""
    text = "none" if told is None else written(told)
    return f"the task spends epsilon {text}, the terms allow {written(most)}"


def config_of(task: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The settings of a task, with its part and audit, which a config must not stand for.

    Args:
        task: checked by check_fields.
        known: of SETTINGS those that the trainer applies.

    Raises:
        InputError: there are others.
    """
    given: dict[str, Any] = task["config"]
    config: dict[str, Any] = {**given, "part": task.get("part"), "audit": task.get("audit")}
    for name in SETTINGS:
        if config.get(name) and name not in known:
            raise InputError("this client does not train with it", f"config '{name}'")
    return config


def texts_of(audit: object) -> list[str] | None:
    """The public texts of an audit; None: there is no audit.

    Raises:
        InputError: it has none.
    """
    if audit is None:
        return None
    given: dict[str, Any] = audit if isinstance(audit, dict) else {}
    found: Any = given.get("texts")
    texts: list[Any] = found if isinstance(found, list) else []
    if len(texts) == 0 or not all(isinstance(text, str) for text in texts):
        raise InputError("it has no texts", "task 'audit'")
    return texts


def number_of(config: Mapping[str, Any], name: str, otherwise: float) -> float:
    """A number of the server's settings.

    Raises:
        InputError: it is none, negative or infinite.
    """
    found: Any = config.get(name)
    value: Any = otherwise if found is None else found
    if is_number(value) and 0 <= value < math.inf:
        number: float = value
        return number
    raise InputError(
        f"it is {part(written(value), 0, 40)}", f"config '{name}'", "Give a positive number."
    )


def steps_of(config: Mapping[str, Any], otherwise: int) -> int:
    """Updates of a training.

    Raises:
        InputError: it is no number of at least 1.
    """
    steps = number_of(config, "local-steps", otherwise)
    if steps < 1:
        raise InputError(f"it is {written(steps)}", "config 'local-steps'", "Give at least 1.")
    return int(steps)


def check_audit(audit: Mapping[str, Any], batch: int, sequence: int) -> None:
    """Checks that an audit is for the batches of a client.

    Args:
        audit: of the task.
        batch, sequence: rows and tokens of the client's batches.

    Raises:
        InputError: it is for others.
    """
    asked, tokens = audit.get("batch"), audit.get("sequence")
    if asked != batch or tokens != sequence:
        raise InputError(
            f"it is for batches of {part(written(asked), 0, 9)} x {part(written(tokens), 0, 9)}"
            f" tokens, this client trains {batch} x {sequence}",
            "task 'audit'",
            "Compile the package with the server's batch size and sequence length.",
        )
