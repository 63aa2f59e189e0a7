"""Public calls with arguments of wrong types, wrong paths and no network: each is refused with an
error of Edgewise, which names the argument. Python itself refuses arguments that a call does not
have.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError
from onnx import TensorProto, helper, numpy_helper, save

MODEL = Path(__file__).parents[2] / "web" / "demo" / "model"
WRONG = [None, 5, -1, 2.5, float("nan"), "no/where", "./nowhere", "", b"\xff\0", [], {}]
WRONG += [object(), ["a", None], {"a": 1}, "/tmp", [[1, "a"]]]
MODULES = ["edgewise", "edgewise.text", "edgewise.training.api", "edgewise.pipelines"]
# Addresses of memory and methods between parts of the engine, which no page of the docs has.
LOW = {"batch", "check", "need_output", "options", "run", "session", "from_files"}
# As well, of a language model: with buffers, plans and parts of a manifest.
LOW_OF_MODELS = {"buffer", "drop", "give", "mark", "set_registers", "spans_of", "state_buffer"}
LOW_OF_MODELS |= {"weight"}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path) -> None:
    """No network, and another folder."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)


def refused(call: Callable[..., Any], *args: Any, **options: Any) -> str:
    """How a call fails in a way that is none of Edgewise's; empty: it does not."""
    try:
        call(*args, **options)
    except EdgewiseError as e:
        return "" if e.what else "an error without words"
    except TypeError as e:
        # of the call itself: Python's check of names and numbers of arguments
        checked = e.__traceback__ is not None and e.__traceback__.tb_next is None
        return "" if checked or "got multiple values" in str(e) else repr(e)
    except Exception as e:
        return repr(e)
    return ""


def parameters(call: Callable[..., Any]) -> tuple[int, list[str]]:
    """The number of arguments that a call needs, and the names of the others."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(call).parameters.values()
    except ValueError:  # a type of Python's
        return 0, []
    needed = [p for p in found if p.default is p.empty and p.kind in kinds]
    return len(needed), [p.name for p in found if p.default is not p.empty]


def attack(call: Callable[..., Any], *good: Any) -> list[str]:
    """The foreign errors of a call with each wrong value: of all arguments that it needs; with good
    arguments, in the place of each, and of each option.
    """
    count, names = parameters(call)
    errors = []
    for wrong in WRONG:
        tries: list[tuple[list[Any], dict[str, Any]]] = [([wrong] * count, {})]
        if good:
            tries = [([*good[:i], wrong, *good[i + 1 :]], {}) for i in range(len(good))]
            if wrong is not None and isinstance(wrong, (int, bytes, list, dict)):
                tries += [(list(good), {name: wrong}) for name in names]
        for args, options in tries:
            if error := refused(call, *args, **options):
                errors.append(
                    f"{getattr(call, '__qualname__', call)}{tuple(args)} {options}: {error}"[:300]
                )
    return errors


def methods(of: object) -> list[Callable[..., Any]]:
    named = [n for n in dir(type(of)) if not n.startswith("_") and n not in LOW]
    routines = [n for n in named if not isinstance(inspect.getattr_static(of, n), property)]
    found = [getattr(of, n) for n in routines]
    return [m for m in found if inspect.isroutine(m) and parameters(m)[0]]


@pytest.mark.parametrize("module", MODULES)
def test_functions_and_classes(module) -> None:
    found = importlib.import_module(module)
    errors = []
    for name in found.__all__:
        call = getattr(found, name)
        kind = isinstance(call, type) and issubclass(call, (BaseException, enum.Enum))
        if callable(call) and not kind and name != "CheckpointState":
            errors += attack(call)
    assert not errors, "\n".join(errors)


def test_sessions(tmp_path) -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "xy"]
    weights = [numpy_helper.from_array(np.ones(2, "f4"), "w")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", *ends_of(ends))
    graph.initializer.extend(weights)
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    session = edgewise.InferenceSession(tmp_path / "m.onnx")
    x = np.ones((3, 2), "f4")
    value = edgewise.OrtValue.ortvalue_from_numpy(x)
    errors = attack(edgewise.InferenceSession, tmp_path / "m.onnx")
    errors += attack(session.run, ["y"], {"x": x})
    errors += attack(session.run_with_ort_values, ["y"], {"x": value})
    objects = [session, session.io_binding(), value]
    for of in [*objects, edgewise.SessionOptions(), edgewise.RunOptions()]:
        for method in methods(of):
            errors += attack(method)
    assert not errors, "\n".join(errors)


def ends_of(ends: list[Any]) -> tuple[list[Any], list[Any]]:
    return ends[:1], ends[1:]


def test_language_models() -> None:
    write = edgewise.pipeline("text-generation", MODEL, capacity=32)
    errors = attack(partial(write, max_new_tokens=1), "Once") + attack(edgewise.CausalLM, MODEL)
    errors += attack(partial(edgewise.generate, max_new_tokens=1), write.model, [5, 6])
    lm = write.model
    own = [m for m in methods(lm) if m.__name__ not in LOW_OF_MODELS]
    assert {"forward", "logits", "truncate", "verify"} <= {m.__name__ for m in own}
    own += [write.save_prefix, write.load_prefix]
    sequence = lm.open()
    for method in (lm.forward, lm.verify, lm.forward_best):
        more = [None] if method == lm.forward_best else []
        errors += attack(method, sequence, [5, 6], *more)
        lm.truncate(sequence, 0)
    errors += attack(lm.truncate, sequence, 0) + attack(lm.copy, sequence, lm.open())
    streamers = [edgewise.TextStreamer(write.tokenizer)]
    for method in [*own, *(m for of in [write.tokenizer, *streamers] for m in methods(of))]:
        errors += attack(method)
    assert not errors, "\n".join(errors)


def test_training() -> None:
    errors = attack(edgewise.Trainer, MODEL)
    lora = edgewise.LoraConfig(r=2)
    trainer = edgewise.Trainer(MODEL, adapters=lora, batch_size=1, sequence_length=8)
    for method in methods(trainer):
        errors += attack(method)
    assert not errors, "\n".join(errors)
