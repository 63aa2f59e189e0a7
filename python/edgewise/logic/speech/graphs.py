"""What logic that runs several graphs asks its host for. Large values stay with the host, in slots
that have names; logic reads the numbers that it decides by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

FREE = -1
"""A dimension that the graph does not fix."""
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float16", "float64", "bfloat16")


@dataclass(frozen=True)
class Port:
    """An input or output of a graph.

    Attributes:
        name: in the graph.
        dtype: "float32", ...
        shape: dimensions, FREE where they are not fixed; none if the graph does not say.
        most: of the last dimension, of a package; 0: any.
    """

    name: str
    dtype: str
    shape: list[int]
    most: int = 0


def within(port: Port, whole: int, unit: int = 1) -> int:
    """The largest length up to `whole` that a port takes, a multiple of `unit`."""
    if port.most == 0 or port.most >= whole:
        return whole
    return max(1, port.most // unit) * unit


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a graph."""

    inputs: list[Port]
    outputs: list[Port]


@dataclass(frozen=True)
class Numbers:
    """A tensor that logic makes, or one that it reads. data: none of one that stays in a slot; of
    one that is made, none stands for zeros.
    """

    dims: list[int]
    data: Sequence[float]
    dtype: str = "float32"
    kind: Literal["numbers"] = "numbers"


@dataclass(frozen=True)
class Slot:
    """A tensor that the host keeps.

    Attributes:
        name: of the slot.
        dims: to which it is reshaped; none: its own.
    """

    name: str
    dims: list[int] = field(default_factory=list)
    kind: Literal["slot"] = "slot"


@dataclass(frozen=True)
class Part:
    """A part of a tensor that the host keeps, of its last axis. Beyond its ends are zeros.

    Attributes:
        name: of the slot.
        start, count: of the last axis.
        dims: to which the part is reshaped; none: its own.
    """

    name: str
    start: int
    count: int
    dims: list[int] = field(default_factory=list)
    kind: Literal["part"] = "part"


Feed = Numbers | Slot | Part


@dataclass(frozen=True)
class Run:
    """Run a graph. Feeds get the element type of its inputs.

    Answer: the outputs of `keep` and `read` by name; those of `keep` with their dimensions alone.

    Attributes:
        graph: its name.
        feeds: by the names of its inputs.
        keep: the slots that outputs are kept in.
        read: names of outputs whose numbers are wanted.
    """

    graph: str
    feeds: dict[str, Feed]
    keep: dict[str, str]
    read: list[str]
    kind: Literal["run"] = "run"


@dataclass(frozen=True)
class Append:
    """Add a part of a slot to the end of a result. Answer: None.

    Attributes:
        to: name of the result.
        part: of the slot.
        axis: along which it is added: the last one, or the first one.
    """

    to: str
    part: Part
    axis: Literal["last", "first"] = "last"
    kind: Literal["append"] = "append"


@dataclass(frozen=True)
class Give:
    """Add numbers to the end of a result, of one dimension. Answer: None."""

    to: str
    numbers: Numbers
    kind: Literal["give"] = "give"


Request = Run | Append | Give
Answers = dict[str, Numbers]


def ports_of(ports: Sequence[Port], dtypes: Sequence[str]) -> list[Port]:
    """The inputs or outputs of some types, in the order of the numbers at the end of names."""
    found = [p for p in ports if p.dtype in dtypes]
    numbered = [(number_at_end(p.name), i) for i, p in enumerate(found)]
    return [found[i] for _, i in sorted(numbered)]


def number_at_end(name: str) -> int:
    """The number that a name ends with, as `audio_codes.2`; 0 if there is none."""
    at = len(name)
    while at > 0 and "0" <= name[at - 1] <= "9":
        at -= 1
    return int(name[at:]) if at < len(name) else 0


def named(ports: Sequence[Port], names: Sequence[str]) -> Port | None:
    """The first port that has one of these names, or one that ends with it."""
    for name in names:
        for p in ports:
            if p.name == name:
                return p
    return None
