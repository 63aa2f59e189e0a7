"""What the printer prints, a function for each thing: test_printer.py calls both forms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypedDict

from .native import f32

LIMITS = {"low": 1, "high": 9}
NAMES = ("a", "b", "c")
WEIGHTS: Mapping[str, float] = {"light": 1, "heavy": 2}


class Pair(NamedTuple):
    """Two things."""

    first: int
    second: str


class Options(TypedDict, total=False):
    """Options of `described`."""

    size: int
    name: str


@dataclass
class Point:
    """A record.

    Attributes:
        x, y: numbers.
        tags: texts.
    """

    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass
class Table:
    """A record with an object."""

    names: Mapping[str, str]
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    """A request."""

    value: int
    kind: Literal["ask"] = "ask"


class Counter:
    """A class with methods and state.

    Args:
        start: the first number.
        step: by keyword alone.
    """

    unit = "x"

    def __init__(self, start: int, *, step: int = 1) -> None:
        self.at, self.step = start, step
        self.seen: dict[int, list[str]] = {}

    def next(self, label: str = "") -> int:
        """Counts."""
        self.at += self.step
        self.seen.setdefault(self.at, []).append(label)
        return self.at

    @property
    def doubled(self) -> int:
        """Twice."""
        return 2 * self.at

    @staticmethod
    def of(text: str) -> int:
        """A number of a text."""
        return int(text)


def arithmetic(a: int, b: int) -> list[float]:
    """Operators of numbers."""
    return [a + b, a - b, a * b, a / b, a // b, a % b, -a, a**2, (a + b) * (a - b), a - (b - 1)]


def bits(a: int, b: int) -> list[int]:
    """Operators of bits, of 32 bits."""
    return [a & b, a | b, a ^ b, a << 3, a >> 1]


def rounding(x: float) -> list[float]:
    """Ways of rounding."""
    return [round(x), math.floor(x), math.ceil(x), int(x), round(x, 2), f32(x), abs(x)]


def cut(a: int, x: float) -> list[int]:
    """Parts of numbers, of products with parentheses at their ends."""
    return [int(a * (a - x)), int((x - a) * a), int(a / (a + 1)), int((a + a) * (a - a))]


def divided(a: int, b: int) -> tuple[int, int]:
    """Quotient and rest."""
    return divmod(a, b)


def comparisons(a: int, b: int, c: int) -> list[bool]:
    """Chains and membership."""
    return [a < b <= c, a == b, a != c, a in (1, 2, 3), not a, a is not None, b not in NAMES_OF]


NAMES_OF = {1: "one", 2: "two"}


def truths(
    text: str, numbers: list[int], table: dict[str, int], one: Point | None, x: float
) -> list[bool]:
    """Which values are true."""
    return [
        bool(text),
        bool(numbers),
        bool(table),
        bool(one),
        bool(x),
        not numbers,
        not text and not table,
        bool(numbers or table),
    ]


def chosen(text: str | None, numbers: list[int] | None) -> tuple[str, list[int]]:
    """`or` and conditional expressions."""
    got = numbers or [0]
    return text or "none", got if got[0] else [-1]


MARKS = re.compile(r"([,;])")


def pieces(text: str) -> list[str]:
    """What a pattern splits, and what it finds."""
    found: list[str] = MARKS.split("," + text)
    return [*found, *[match[0] for match in MARKS.finditer(text + ";")]]


def texts(text: str, part: str) -> list[str]:
    """Methods of texts that give texts."""
    return [
        text.strip(),
        text.lower(),
        text.upper(),
        text.replace(part, "<>"),
        text.removeprefix(part),
        text.removesuffix(part),
        text.partition(part or " ")[2],
        text.rpartition(part or " ")[0],
        text.lstrip(part or None),
        text * 2,
        text[1:],
        text[:-1],
        text[-2:],
        text[1:3],
        "-".join(text.split()),
        "|".join(text.split(part or " ", 1)),
        "|".join(text.splitlines()),
        repr(text),
    ]


def of_texts(text: str, part: str) -> list[int]:
    """Methods of texts that give numbers."""
    return [
        len(text),
        text.find(part),
        text.rfind(part),
        text.count(part),
        int(text.startswith(part)),
        int(text.endswith((part, "x"))),
        int(text.isspace()),
        int(part in text),
        int(text < part),
        int(text.isdecimal()),
    ]


def formats(x: float, n: int, text: str) -> list[str]:
    """Texts of values."""
    return [
        f"{x} {n} {text}",
        f"{x!r} {text!r} {n!r}",
        f"{x:.3f}|{x:g}|{x:.2e}|{n:05d}|{n:,}|{n:x}",
        f"{text:>6}|{text:<6}|{text:^6}|{x:8.2f}",
        str(x) + str(n) + str(text),
        f"{{{n}}} `${n}`",
        str([n, text]),
        str(None) + str(n > 0),
    ]


def accents(text: str, xs: list[int]) -> list[Any]:
    """Values after letters beyond ASCII, on the same line."""
    made = [
        "é" + text.strip(),
        "é",
        f"😀é{text[:1]}",
        text[1:],
        len(xs),
        "ț" if xs else "",
        xs + xs,
    ]
    return made  # é


def lists(xs: list[int], n: int) -> list[Any]:
    """Lists."""
    made = [*xs, n]
    made.append(n + 1)
    made.extend([7, 8])
    made += [9]
    made.insert(0, -1)
    last = made.pop()
    first = made.pop(0)
    made[-1] = 5
    made[0] += 2
    made[1:2] = [4, 4]
    del made[0:1]
    swapped = list(made)
    swapped[0], swapped[-1] = swapped[-1], swapped[0]
    return [
        made,
        last,
        first,
        swapped,
        made[::-1],
        made[::2],
        made[-2:],
        [0] * n,
        made.index(7),
        made.count(4),
        xs + made == [*xs, *made],
        sum(made),
        max(made),
        min(made, default=0),
        sorted(made, key=lambda x: (-x, 0)),
        list(reversed(made)),
        len(made),
    ]


def comprehensions(xs: list[int], rows: list[list[int]]) -> list[Any]:
    """Comprehensions."""
    return [
        [x * 2 for x in xs if x > 1],
        [(i, x) for i, x in enumerate(xs)],
        [x for row in rows for x in row if x],
        {x: str(x) for x in xs},
        sorted({x % 3 for x in xs}),
        any(x > 2 for x in xs),
        all(x > 0 for x in xs),
        sum(a * b for a, b in zip(xs, xs[1:])),
        [i for i in range(len(xs)) if i != 1],
        max(range(len(xs)), key=lambda i: xs[i], default=-1),
        next((x for x in xs if x > 2), None),
        [y for x in xs if (y := x * x) > 4],
        list(map(str, xs)),
        [[*row] for row in zip(*rows)],
    ]


def dicts(names: list[str]) -> list[Any]:
    """Dicts and sets."""
    table: dict[str, int] = {}
    for i, name in enumerate(names):
        table[name] = table.get(name, 0) + i
        table.setdefault(name + "!", 100)
    both = table | {"z": 1}
    gone = both.pop("z", 0)
    seen = set(names)
    seen.add("q")
    seen.discard("a")
    return [
        table,
        list(table),
        [*table.values()],
        [(k, v) for k, v in table.items() if v],
        "a" in table,
        len(both),
        gone,
        sorted(seen | {"w"}),
        sorted(seen & set(names)),
        sorted(seen - set(names)),
        seen == set(names),
        LIMITS["low"],
        {**table, "more": 3},
    ]


def objects(config: Mapping[str, Any], names: Mapping[str, str]) -> list[Any]:
    """Objects of JSON."""
    kept: dict[str, Any] = {k: v for k, v in config.items() if k in ("a", "b")}
    kept["c"] = config.get("d", "no")
    size = config.get("size")
    return [
        kept,
        isinstance(size, int) and not isinstance(size, bool),
        isinstance(config.get("list"), list),
        "a" in config,
        names.get("x"),
        [f"{k}={v}" for k, v in names.items()],
        {**kept, "e": None},
    ]


def plain_objects(config: dict[str, Any], *, sizes: Mapping[str, float] | None = None) -> list[Any]:
    """Displays where an object is wanted, which are read as one."""
    config["x"] = {"a": 1, "b": [{"c": 2}], "d": {"e": 3} if config else {}}
    found: dict[str, Any] = config.get("z", {"k": {"d": 4}})
    kept: dict[str, Any] = config.setdefault("s", {"q": {"r": 5}})
    table = Table({"a": "x"}, weights={"w": 6})
    rows: list[Mapping[str, float]] = []
    rows.append({"v": 7})
    more = [] if sizes is not None else plain_objects({}, sizes={"n": 8})
    return [
        [config["x"]["a"], config["x"]["b"][0]["c"], config["x"]["d"]],
        [found["k"]["d"], kept["q"]["r"], table.names["a"], table.weights["w"], rows[0]["v"]],
        [WEIGHTS["light"] + WEIGHTS["heavy"], "light" in WEIGHTS, len(WEIGHTS)],
        [sizes["n"] if sizes is not None else 0, *more],
    ]


def own_names(xs: list[int]) -> list[int]:
    """Variables with names that the printer would give to its own."""
    i_end, i_of = 10, [20]
    found = []
    for i in range(len(xs) + 1):
        found.append(i + i_end)
    for i, x in enumerate(sorted(xs)):
        found.append(i + x + i_of[0])
    return found


def described(options: Options) -> str:
    """A TypedDict."""
    return f"{options.get('name', '?')} {options.get('size', 0)} {'size' in options}"


def records(x: float) -> list[Any]:
    """Dataclasses."""
    one = Point(x, tags=["t"])
    two = replace(one, y=2.0)
    pair = Pair(1, "s")
    return [
        one.x + two.y,
        one.tags == two.tags,
        pair.first,
        pair.second,
        one == Point(x, 0.0, ["t"]),
    ]


def loops(n: int) -> list[int]:
    """Loops, and variables that outlive them."""
    found, i = [], 0
    while True:
        i += 1
        if i % 2:
            continue
        if i > n:
            break
        found.append(i)
    last = -1
    for k in range(n, 0, -2):
        last = k
    for _, x in zip(range(2), found):
        last += x
    for i in range(3):
        last += i
    if n > 3:
        inner = n
    else:
        inner = -n
    found += [i, last, inner]
    return found


def nested(n: int) -> list[int]:
    """Functions inside functions."""
    total = 0

    def add(x: int, times: int = 1) -> int:
        nonlocal total
        total += x * times
        return total

    return [add(n), add(n, times=3), total]


def caught(xs: list[int], text: str) -> list[str]:
    """Errors."""
    out = []
    try:
        out.append(str(xs.index(3)))
    except ValueError:
        out.append("no 3")
    finally:
        out.append("end")
    try:
        out.append(str(int(text)))
    except (ValueError, TypeError):
        out.append("no number")
    return out


def called(f: Callable[[int, str], str], n: int) -> str:
    """A function that was passed."""
    return f(n, "x") + f(n + 1, "y")


def counted(n: int) -> list[Any]:
    """A class."""
    c = Counter(n, step=2)
    c.next("a")
    c.next()
    return [c.at, c.doubled, c.seen, Counter.of("12"), Counter.unit]


def squares(n: int) -> Iterator[int]:
    """A generator."""
    for i in range(n):
        yield i * i


def conversation(n: int) -> Generator[Ask, int, str]:
    """A generator that asks."""
    total = 0
    for i in range(n):
        total += yield Ask(i)
    other = yield from _more(total)
    return f"{total} {other}"


def _more(total: int) -> Generator[Ask, int, int]:
    answer = yield Ask(total)
    return answer * 2


def sequences(xs: Sequence[float], data: bytes) -> list[Any]:
    """Sequences of numbers, and bytes."""
    return [
        sum(xs),
        [x * 2 for x in xs],
        list(xs[1:]),
        len(data),
        data[0] if data else None,
        list(data[1:3]),
        data == b"ab",
        data.hex(),
        math.fsum(xs),
        math.sqrt(abs(xs[0])) if len(xs) else 0.0,
    ]
