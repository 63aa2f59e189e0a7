"""What core/generate/logic prints computes what Python computes, and what it cannot print is named
with its line.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys

import pytest

from . import forms

SAMPLE = forms.ROOT / "tests" / "logic" / "sample"
CHECKER = forms.ROOT / ".build" / "venv-check" / "bin" / "python"
TEXTS = [
    "",
    "a",
    " Hello  World ",
    "aXbX",
    "\u00e9t\u00e9",
    "\U0001f600a\U0001f600",
    "tab\tnew\nline",
    "123",
    "it's",
    "x",
]


def printer(*arguments):
    """Runs the printer."""
    command = [CHECKER, forms.ROOT / "core" / "generate" / "logic", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def features():
    """(the module as Python has it, as it is printed)"""
    folder = forms.ROOT / ".build" / "logic-sample"
    made = printer(SAMPLE, folder)
    assert made.returncode == 0, made.stderr
    name = "edgewise.logic.features"
    spec = importlib.util.spec_from_file_location(name, SAMPLE / "features.py")
    python = importlib.util.module_from_spec(spec)
    sys.modules[name] = python
    spec.loader.exec_module(python)
    yield python, forms.printed(python, "features", folder)
    del sys.modules[name]


NUMBERS = [(7, 3), (-7, 3), (7, -3), (0, 5), (-6, -4), (1000003, 17)]
FLOATS = [0.0, -0.5, 0.5, 1.5, 2.5, -2.5, 2.675, 1e-7, 123456.789, 1e16, 1e22, -3.0, 0.1, 1 / 3]
CALLS = [
    *[("arithmetic", x) for x in NUMBERS],
    *[("divided", x) for x in NUMBERS],
    *[("bits", x) for x in [(5, 3), (0xFFFFFFFF, 0x80000001), (0, 7), (1 << 30, 3)]],
    *[("rounding", (x,)) for x in FLOATS],
    *[("cut", x) for x in [(3, 0.7), (-5, 0.3), (4, 2.5), (7, -1.2)]],
    *[("comparisons", x) for x in [(1, 2, 3), (2, 2, 2), (0, 9, 1), (3, 2, 1)]],
    ("truths", ("", [], {}, None, 0.0)),
    ("truths", ("a", [0], {"a": 0}, "point", -1.5)),
    ("chosen", (None, None)),
    ("chosen", ("", [])),
    ("chosen", ("t", [3, 4])),
    *[("pieces", (text,)) for text in ("", "a,b;c", ";;")],
    *[("texts", (a, b)) for a in TEXTS for b in ("X", "", "a", "\U0001f600")],
    *[("of_texts", (a, b)) for a in TEXTS for b in ("X", "", "a", "\U0001f600")],
    *[("formats", (x, n, t)) for x, n, t in zip(FLOATS, [0, 5, -7, 12345, 255] * 3, TEXTS)],
    *[("accents", (text, [1, 2])) for text in TEXTS],
    ("lists", ([1, 2, 3], 2)),
    ("lists", ([], 3)),
    ("comprehensions", ([1, 2, 3, 4], [[1, 0], [2, 3]])),
    ("comprehensions", ([], [])),
    ("dicts", (["a", "b", "a", "10", "2"],)),
    ("dicts", ([],)),
    ("objects", ({"a": 1, "size": 3, "list": [1], "x": "y"}, {"x": "1", "y": "2"})),
    ("objects", ({"b": None, "d": [1.5], "size": True, "__proto__": 3}, {})),
    ("plain_objects", ({},)),
    ("plain_objects", ({"z": {"k": {"d": -4}}, "s": {"q": {"r": -5}}},)),
    ("own_names", ([3, 1],)),
    ("described", ({},)),
    ("described", ({"name": "n", "size": 3},)),
    ("records", (1.5,)),
    *[("loops", (n,)) for n in (0, 1, 4, 7)],
    ("nested", (3,)),
    ("caught", ([1, 3], "12")),
    ("caught", ([], "1x")),
    ("counted", (4,)),
    ("sequences", ([1.5, -2.0, 3.0], b"ab")),
    ("sequences", ([0.0], b"")),
    ("sequences", ([0.1] * 10, b"\x00\xff\x10")),
]


@pytest.mark.parametrize(
    "name, args", CALLS, ids=lambda x: x if isinstance(x, str) else repr(x)[:40]
)
def test_both_forms_agree(features, name, args):
    python, page = features
    if name == "truths":
        args = [python.Point(1.0) if x == "point" else x for x in args]
    assert plain(getattr(page, name)(*args)) == plain(getattr(python, name)(*args))


def plain(value):
    """Tuples and lists are alike in pages."""
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def test_functions_are_passed(features):
    for form in features:
        assert form.called(lambda n, text: f"{n}{text};", 3) == "3x;4y;"


def test_generators_ask_and_are_answered(features):
    python, page = features
    assert list(page.squares(5)) == list(python.squares(5))
    ends = []
    for form in features:
        talk, asked = form.conversation(3), []
        request = next(talk)
        try:
            while True:
                asked.append((request.value, request.kind))
                request = talk.send(request.value + 10)
        except StopIteration as e:
            ends.append((asked, e.value))
    assert ends[0] == ends[1] and ends[0][1] == "33 86"


LOOP = """def f(xs: list[int]) -> int:
    for x in xs:
        pass
    else:
        return 1
    return 2"""
UNKNOWN = """from typing import Any


def f(x: dict[str, Any]) -> str:
    return x["a"].strip()"""
SPREAD = """from typing import Any


def f(x: dict[str, int]) -> dict[str, Any]:
    return {**x, "a": ""}"""
TWO_KINDS = """from collections.abc import Mapping


def f(x: Mapping[str, int]) -> int:
    return 1


def g(x: dict[str, int]) -> int:
    return f(x)"""
MAP_IN_JSON = """from typing import Any


def f(x: dict[str, int]) -> dict[str, Any]:
    return {"a": [x]}"""
NUMBER_AS_KEY = """from typing import Any


def f(x: dict[str, Any]) -> None:
    x["a"] = {1: 2}"""
SHADOWED_DEFAULT = """from dataclasses import dataclass

size = 3


@dataclass
class A:
    size: int = size


def f(size: int) -> int:
    return A().size + size"""
WRONG = {
    "import json": "the module json",
    "def f(x: int) -> int:\n    with open(str(x)):\n        return 1": "With",
    "def f(**options: int) -> int:\n    return 1": "name the parameters",
    LOOP: "else of a loop",
    "def f(x: int) -> int:\n    return ~x": "write mask - x",
    "def f() -> int:\n    return 1 << 60 | 2": "53 bits",
    UNKNOWN: "annotate a variable",
    TWO_KINDS: "Annotate both",
    MAP_IN_JSON: "annotate it as dict[str, Any]",
    NUMBER_AS_KEY: "use str(key)",
    SHADOWED_DEFAULT: "also the default of a field",
    "def f(max: int) -> str:\n    return f'{max}'": "max has another meaning",
    "def f(new: int, new_: int) -> int:\n    return new - new_": "new is new_ in TypeScript",
    "def f(x: list[str]) -> list[str]:\n    return list(dict.fromkeys(x))": "dict.fromkeys",
    SPREAD: "annotate it as dict[str, Any]",
    "import re\n\nA = re.compile(r'\\d+')": "other characters",
    "import re\n\nA = re.compile(r'\u00e9+')": "beyond ASCII",
    "from .native import f32 as g\n\n\nX = g(0.5)": "by another name",
    "def f(x: int) -> str:\n    return x": "Incompatible return value",
    "def f(x):\n    return x": "missing a type annotation",
    "class A:\n    def __len__(self) -> int:\n        return 1": "a method with a name",
}


def test_what_cannot_be_printed_is_named_with_its_line(tmp_path):
    head = '"""Wrong."""\n\nfrom __future__ import annotations\n\n'
    types = [x for x in WRONG if "Incompatible" in WRONG[x] or "missing" in WRONG[x]]
    for sources in (types, [x for x in WRONG if x not in types]):
        folder = tmp_path / str(len(sources))
        folder.mkdir()
        for i, source in enumerate(sources):
            (folder / f"wrong{i}.py").write_text(f"{head}{source}\n", encoding="utf-8")
        made = printer(folder, folder / "out")
        assert made.returncode == 1
        for i, source in enumerate(sources):
            lines = [x for x in made.stderr.split("\n") if f"wrong{i}.py:" in x]
            assert any(WRONG[source] in x for x in lines), (source, made.stderr)
            assert int(lines[0].split(":")[1]) > 4


def test_each_helper_that_the_printer_names_exists():
    """Else what is printed would not compile, and no line of Python would be named."""
    helpers = {
        name
        for path in (forms.ROOT / "web/src/shared/python").glob("*.ts")
        for name in re.findall(
            r"^export (?:function|const|class|interface|type) (\w+)", path.read_text(), re.M
        )
    }
    sources = [p.read_text() for p in (forms.ROOT / "core/generate/logic").glob("*.py")]
    named = {name for text in sources for name in re.findall(r"\bpy\.(\w+)", text)}
    (methods,) = (
        found for text in sources for found in re.findall(r'^TEXT = """([^"]+)"""', text, re.M)
    )
    assert named | set(methods.split()) <= helpers | {"ts"}


def test_random_texts_and_numbers(features):
    python, page = features
    r = random.Random(0)
    letters = "ab X\t\n\u00a0\u2003\u00e9\u0130\U0001f600'\"\\-0\x1c\x85"
    for _ in range(300):
        text = "".join(r.choice(letters) for _ in range(r.randrange(8)))
        part = r.choice(["", "a", "b", " ", "\U0001f600", "X\t", "-"])
        assert page.texts(text, part) == python.texts(text, part), (text, part)
        assert page.of_texts(text, part) == python.of_texts(text, part), (text, part)
        x = r.choice(
            [r.uniform(-10, 10), r.gauss(0, 1) * 10 ** r.randrange(-20, 20), r.randrange(100) / 8]
        )
        n = r.randrange(-1000, 10**6)
        assert page.formats(x, n, text) == python.formats(x, n, text), (x, n, text)
        assert page.rounding(x) == python.rounding(x), x
        assert page.arithmetic(n, r.choice([3, -7, 1024])) is not None
