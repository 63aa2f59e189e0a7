"""The two forms of a module of edgewise.logic: the Python one, and the one that pages run, in Node.

    form = Form("page")
    form.words_of(tokens, decode, eos=3)

Both are called alike. Arguments and results are converted by the annotations, as the printer does
(docs/architecture/logic.md): a dict becomes a Map, a Mapping and JSON a plain object, a dataclass
without methods an object and back. Objects of classes with methods stay in Node, and are called
there.
"""

from __future__ import annotations

import array
import base64
import builtins
import collections.abc
import dataclasses
import importlib
import inspect
import json
import math
import os
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest
from edgewise import errors
from edgewise.logic.native import Seed

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "web" / "src" / "logic"
_functions: list = []  # what was passed to Node, by number

both = pytest.mark.parametrize("form", ["python", "page"])


def module(form: str, name: str):
    """A module of edgewise.logic, in one of its two forms.

    Args:
        form: "python" or "page".
        name: as "speech.words".
    """
    found = importlib.import_module(f"edgewise.logic.{name}")
    return found if form == "python" else _Module(found, name, _host)


def printed(python, name: str, folder: Path):
    """A module that was printed to another folder, for tests of the printer."""
    return _Module(python, name, _Host(folder))


class _Host:
    """A Node process with all modules of a folder."""

    def __init__(self, folder: Path):
        self.folder, self.process = folder, None

    def ask(self, message: dict):
        """Sends a message, answers calls of functions that were passed, returns the result."""
        self.process = self.process or self._start()
        failure = None
        self._send(message)
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the host of printed modules ended")
            answer = json.loads(line)
            if "ask" not in answer:
                break
            try:
                value = _functions[answer["ask"]](*[_decoded(self, x) for x in answer["args"]])
                self._send({"value": _encoded(value, typing.Any)})
            except Exception as e:
                failure = e
                self._send({"failed": True})
        if failure is not None:
            raise failure
        if "error" in answer:
            raise _error(answer["error"])
        return answer["value"]

    def _send(self, message: dict) -> None:
        self.process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
        self.process.stdin.flush()

    def _start(self):
        files = sorted(self.folder.rglob("*.ts"))
        if not files:
            raise RuntimeError(f"{self.folder} is empty. Run `make web`.")
        names = [p.relative_to(self.folder).with_suffix("").as_posix() for p in files]
        lines = [f'import {{ serve }} from "{ROOT}/tests/logic/host.ts";']
        lines += [f'import * as m{i} from "{p}";' for i, p in enumerate(files)]
        table = ", ".join(f'"{n.replace("/", ".")}": m{i}' for i, n in enumerate(names))
        lines.append(f"serve({{ {table} }});")
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        out = ROOT / ".build" / f"logic-{self.folder.name}-{worker}.mjs"
        options = ["--bundle", "--format=esm", "--platform=node", "--sourcemap=inline"]
        subprocess.run(
            [ROOT / "web/node_modules/.bin/esbuild", *options, f"--outfile={out}"],
            input="\n".join(lines).encode(),
            cwd=ROOT / "web",
            check=True,
            stderr=subprocess.DEVNULL,
        )
        command = ["node", "--enable-source-maps", out]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


_host = _Host(PRINTED)


class SameError(Exception):
    """A generator has not handled the error that was thrown in it."""


def _error(e: dict) -> Exception:
    if "same" in e:
        return SameError()
    found = getattr(errors, e["name"], None)
    if found is not None:
        return found(e["what"], e["where"], e["remedy"])
    own = [getattr(m, e["name"], None) for n, m in sys.modules.items() if "edgewise.logic" in n]
    own += [getattr(builtins, e["name"], None)]
    kind = next((x for x in own if isinstance(x, type) and issubclass(x, Exception)), None)
    if kind is None or e["name"] in ("TypeError", "Error", "RangeError", "ReferenceError"):
        return AssertionError(f"in the printed form: {e['stack']}")
    return kind(e["what"])


class _Module:
    """A printed module."""

    def __init__(self, python, name: str, host: _Host):
        self._python, self._name, self._host = python, name, host

    def __getattr__(self, name: str):
        found = getattr(self._python, name)
        if isinstance(found, type):
            ours = found.__module__.startswith("edgewise.logic")
            if not ours or is_record(found) or issubclass(found, Exception):
                return found
            return _Class(found, self._name, self._host)
        if isinstance(found, types.FunctionType):
            message = {"kind": "call", "module": self._name, "name": name}
            return _Function(found, message, self._host)
        return found


class _Function:
    def __init__(self, python, message: dict, host: _Host, skip: int = 0):
        self.python, self.message, self.host, self.skip = python, message, host, skip

    def __call__(self, *args, **keywords):
        hints = hints_of(self.python)
        sent = arguments(self.python, args, keywords, hints, self.skip)
        value = self.host.ask({**self.message, "args": sent})
        return _decoded(self.host, value, hints.get("return", typing.Any))


class _Class:
    def __init__(self, python, module: str, host: _Host):
        self.python, self.module, self.host = python, module, host

    def __call__(self, *args, **keywords):
        hints = hints_of(
            self.python if dataclasses.is_dataclass(self.python) else self.python.__init__
        )
        if dataclasses.is_dataclass(self.python):
            skip, target = 0, self.python
        else:
            skip, target = 1, self.python.__init__
        sent = arguments(target, args, keywords, hints, skip)
        name = self.python.__name__
        made = self.host.ask({"kind": "new", "module": self.module, "name": name, "args": sent})
        return _Object(self.host, self.python, made["$object"])

    def __getattr__(self, name: str):
        return getattr(self.python, name)


class _Object:
    """An object in Node."""

    def __init__(self, host: _Host, python, number: int):
        object.__setattr__(self, "_host", host)
        object.__setattr__(self, "_python", python)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str):
        message = {"object": self._number, "name": name}
        value = self._host.ask({**message, "kind": "get"})
        if value == "$method":
            target = getattr(self._python, name)
            return _Function(target, {**message, "kind": "method"}, self._host, 1)
        hints = hints_of(self._python) if self._python else {}
        own = getattr(self._python, name, None)
        if isinstance(own, property):
            hints = {name: hints_of(own.fget).get("return", typing.Any)}
        return _decoded(self._host, value, hints.get(name, typing.Any))

    def __setattr__(self, name: str, value):
        message = {"kind": "set", "object": self._number, "name": name}
        self._host.ask({**message, "args": [_encoded(value, typing.Any)]})


class _Generator:
    """A generator in Node."""

    def __init__(self, host: _Host, number: int, hint):
        self.host, self.number = host, number
        parts = typing.get_args(hint)
        self.hints = parts if len(parts) == 3 else (typing.Any,) * 3

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """As of a generator."""
        args = [] if value is None else [_encoded(value, self.hints[1])]
        return self._step({"kind": "next", "args": args})

    def throw(self, error: BaseException):
        """As of a generator."""
        texts = [getattr(error, n, "") for n in ("what", "where", "remedy")]
        fields = {"name": type(error).__name__, "what": texts[0] or str(error)}
        fields |= {"where": texts[1], "remedy": texts[2]}
        try:
            return self._step({"kind": "throw", "error": fields})
        except SameError:
            raise error from None

    def close(self) -> None:
        """As of a generator."""
        self.host.ask({"kind": "return", "object": self.number})

    def _step(self, message: dict):
        made = dict(self.host.ask({**message, "object": self.number})["$plain"])
        if made["done"]:
            raise StopIteration(_decoded(self.host, made["value"], self.hints[2]))
        return _decoded(self.host, made["value"], self.hints[0])


def arguments(target, args, keywords, hints, skip: int) -> list:
    """The arguments as the printed form takes them."""
    parameters = list(inspect.signature(target).parameters.values())[skip:]
    sent, options, given = [], [], list(args)
    for p in parameters:
        hint = hints.get(p.name, typing.Any)
        if p.kind is p.VAR_POSITIONAL:
            sent += [_encoded(x, hint) for x in given]
            given = []
        elif p.kind is p.KEYWORD_ONLY:
            if p.name in keywords:
                options.append([p.name, _encoded(keywords.pop(p.name), hint)])
        elif given:
            sent.append(_encoded(given.pop(0), hint))
        else:
            value = keywords.pop(p.name, p.empty)
            sent.append({"$missing": 1} if value is p.empty else _encoded(value, hint))
    if given or keywords:
        raise TypeError(f"{target} takes no {given or keywords}")
    return [*sent, {"$plain": options}] if options else sent


# Values


def hints_of(target) -> dict:
    """typing.get_type_hints; array.array has no parameters before Python 3.12."""
    return typing.get_type_hints(target, localns={"array": list})


def is_record(kind) -> bool:
    """Whether the printer makes an interface of a class."""
    if hasattr(kind, "_fields") or typing.is_typeddict(kind):
        return True
    own = {n: x for n, x in vars(kind).items() if not n.startswith("__") or n == "__post_init__"}
    methods = (types.FunctionType, property, classmethod, staticmethod)
    return dataclasses.is_dataclass(kind) and not any(isinstance(x, methods) for x in own.values())


def _options_of(hint) -> list:
    """The members of a union."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [x for one in typing.get_args(hint) for x in _options_of(one)]
    return [hint]


def _among(value, hint):
    """The member of a union that a value is of."""
    options = [x for x in _options_of(hint) if x is not type(None)]
    for x in options:
        origin = typing.get_origin(x) or x
        if (
            isinstance(origin, type)
            and x is not typing.Any
            and not typing.is_typeddict(origin)
            and not getattr(origin, "_is_protocol", False)
            and isinstance(value, origin)
        ):
            return x
    return options[0] if options else typing.Any


def _encoded(value, hint):
    if hint is Seed:
        return {"$bigint": str(value)}
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value) and not (value == 0 and math.copysign(1, value) < 0):
            return value
        return {"$number": str(value).replace("inf", "Infinity").replace("nan", "NaN")}
    if isinstance(value, _Object):
        return {"$object": value._number}
    if callable(value):
        _functions.append(value)
        return {"$function": len(_functions) - 1}
    if isinstance(value, (bytes, bytearray, memoryview, array.array)) or hasattr(value, "tobytes"):
        return _encoded_array(value)
    hint = _among(value, hint)
    if isinstance(value, (set, frozenset)):
        return {"$set": [_encoded(x, typing.Any) for x in value]}
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        hints = hints_of(type(value))
        names = getattr(value, "_fields", None) or [f.name for f in dataclasses.fields(value)]
        return {"$plain": [[n, _encoded(getattr(value, n), hints.get(n))] for n in names]}
    if isinstance(value, collections.abc.Mapping):
        return _encoded_mapping(value, hint)
    items = typing.get_args(hint)
    if len(items) == len(value) and typing.get_origin(hint) is tuple and Ellipsis not in items:
        return [_encoded(x, h) for x, h in zip(value, items)]
    return [_encoded(x, items[0] if items else typing.Any) for x in value]


def _encoded_array(value):
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    if hasattr(value, "dtype"):
        code = {"float32": "f", "float64": "d", "int32": "i", "uint8": "B"}.get(str(value.dtype))
        flat = value.tolist()
        if code is None or value.ndim != 1:
            return _encoded(flat, typing.Any)
    else:
        code = (
            getattr(value, "typecode", "B") if not isinstance(value, memoryview) else value.format
        )
        flat = list(value)
    return {"$array": code, "values": [_encoded(x, float) for x in flat]}


def _encoded_mapping(value, hint):
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    pairs = [[k, _encoded(v, args[1] if args else typing.Any)] for k, v in value.items()]
    json_like = not args or args[1] in (typing.Any, object)
    if origin is dict and not json_like:
        return {"$map": pairs}
    return {"$plain": pairs}


def _decoded(host: _Host, value, hint=typing.Any):
    if isinstance(value, list):
        return _decoded_list(host, value, hint)
    if not isinstance(value, dict):
        large = type(value) is int and abs(value) > 1 << 53
        return float(value) if large else value
    if "$missing" in value:
        return None
    if "$number" in value:
        return float(value["$number"].replace("Infinity", "inf"))
    if "$bigint" in value:
        return int(value["$bigint"])
    if "$map" in value:
        inner = (*typing.get_args(hint), typing.Any, typing.Any)[1]
        return {k: _decoded(host, v, inner) for k, v in value["$map"]}
    if "$set" in value:
        return {_decoded(host, x) for x in value["$set"]}
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$array" in value:
        values = [_decoded(host, x) for x in value["values"]]
        return array.array(value["$array"], values)
    if "$object" in value:
        if "Generator" in str(hint) or "Iterator" in str(hint):
            return _Generator(host, value["$object"], hint)
        python = next((x for x in _options_of(hint) if isinstance(x, type)), None)
        return _Object(host, python, value["$object"])
    fields = dict(value["$plain"])
    records = [x for x in _options_of(hint) if isinstance(x, type) and is_record(x)]
    own = [x for x in records if getattr(x, "kind", None) == fields.get("kind")]
    kind = next(iter(own or records), None)
    if kind is None or typing.is_typeddict(kind):
        return {k: _decoded(host, v) for k, v in fields.items()}
    hints = hints_of(kind)
    return kind(**{k: _decoded(host, v, hints.get(k, typing.Any)) for k, v in fields.items()})


def _decoded_list(host: _Host, value: list, hint):
    fit = [x for x in _options_of(hint) if typing.get_origin(x)]
    hint = fit[0] if fit else hint
    items = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and Ellipsis not in items:
        return tuple(_decoded(host, x, h) for x, h in zip(value, items))
    made = [_decoded(host, x, items[0] if items else typing.Any) for x in value]
    return tuple(made) if typing.get_origin(hint) is tuple else made
