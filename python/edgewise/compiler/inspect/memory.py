"""The memory of a model: its plan is compiled for given shapes, and nothing is loaded."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...errors import EdgewiseError, InputError, UnsupportedOp
from ..compile import cached_as_halves, interface, state_shape
from ..compile.caches import static_rooms, windows
from ..compile.join import IDS, of_ids, takes_embeddings
from ..compile.model_file import read_config
from ..compile.states import StateInput
from ..declare.dtypes import FLOAT, FLOATS, INT64, NAME, size_of
from ..declare.symbolic import most, product
from ..ir import BROKEN, Graph, NeedsValue, Tensor, Value
from ..onnx.dimensions import MAX_DIM
from ..onnx.source import FileSource, LazyFileSource, Source
from ..plan import compile_graph
from ..plan.explain import INSPECTION, NO_PLAN, compiler_errors
from .report import Cache, Memory, State

DEFAULT_LENGTH = 1024  # tokens of a language model's cache

T = TypeVar("T")
Shapes = Mapping[str, Sequence[int]]
Numbers = Mapping[str, Sequence[float]]


def attempt(compute: Callable[[], T]) -> tuple[T | None, str]:
    """(result, "") of a function that compiles a graph, or (None, why it cannot be compiled)."""
    try:
        with compiler_errors(Graph("graph")):
            return compute(), ""
    except NO_PLAN as e:
        return None, INSPECTION.error(e).what
    except EdgewiseError as e:
        return None, str(e)


def input_dtypes(graph: Graph) -> dict[str, int]:
    """Types of the inputs; float32 if the file does not declare one."""
    return {i.name: i.dtype or FLOAT for i in graph.input_names()}


def measure_memory(graph: Graph, shapes: Shapes, values: Numbers) -> Memory:
    """Compiles a model for given shapes and reports its memory.

    Args:
        graph: the model.
        shapes: of all inputs.
        values: flat numbers of inputs that shapes or branches depend on.

    Raises:
        NeedsValue, NeedsHost, NotStatic, EdgewiseError: it cannot be compiled.
    """
    dtypes = input_dtypes(graph)
    assumed = []
    try:
        plan, bound = compile_graph(graph, shapes, dtypes, values)
    except NeedsValue:
        # Some exports derive shapes from the number of tokens in the mask.
        if "attention_mask" not in shapes or "attention_mask" in values:
            raise
        mask = _ones(shapes["attention_mask"], dtypes["attention_mask"])
        plan, bound = compile_graph(
            graph, shapes, dtypes, values, computed={"attention_mask": mask}
        )
        assumed.append("attention_mask is all ones")
    size: Counter[str] = Counter()
    for slot in plan.slots:
        size[slot.kind] += slot.nbytes
    steps = plan.kernels[plan.init_count :]
    return Memory(
        shapes={name: list(shape) for name, shape in shapes.items()},
        assumed=assumed,
        weights=size["weight"],
        computed=size["computed"],
        arena=plan.arena_bytes,
        arena_least=plan.arena_least,
        inputs_and_outputs=size["input"] + size["output"],
        plan=len(plan.data),
        outputs={name: [most(d) for d in v.shape] for name, v in bound.outputs.items()},
        nodes=len(bound.nodes),
        steps=len(steps),
        once=plan.init_count,
        kernels=dict(sorted(Counter(steps).items())),
    )


def _ones(shape: Sequence[int], dtype: int) -> Callable[[Any], Value]:
    """A function from a binder to a tensor of ones, as `bind`'s argument `computed` takes it."""
    one = Tensor.of("one", dtype, [1], [1])
    dims = Value("mask_shape", INT64, [len(shape)], numbers=list(shape))
    return lambda binder: binder.op("ConstantOfShape", dims, value=one)


def config_beside(graph: Graph) -> dict[str, Any]:
    """The contents of config.json (and genai_config.json) beside a model's file, or in the folder
    around `onnx/`; {} where there are none.
    """
    if not isinstance(graph.source, FileSource):
        return {}
    folder = os.path.dirname(os.path.abspath(graph.source.path))
    folders = [folder, os.path.dirname(folder)] if os.path.basename(folder) == "onnx" else [folder]
    files: dict[str, Source] = {}
    for name in ("genai_config.json", "config.json"):
        path = next((p for f in folders if os.path.isfile(p := os.path.join(f, name))), None)
        if path is not None:
            files[name] = LazyFileSource(path)
    try:
        return read_config(files)
    except EdgewiseError:  # what reads the model tells
        return {}


def measure_cache(graph: Graph, length: int | None, config: Mapping[str, Any]) -> Cache | None:
    """The states of a language model; None if the inputs do not match one.

    Args:
        graph: the model.
        length: capacity in tokens; default DEFAULT_LENGTH.
        config: its config.json.

    Raises:
        InputError: length is not valid.
    """
    if length is not None and (type(length) is not int or not 0 < length < MAX_DIM):
        raise InputError(
            f"{length!r} is not a number of tokens", "length", "Pass a positive integer."
        )
    length, graph = length or DEFAULT_LENGTH, of_ids(graph)
    try:
        found = interface(graph)
        rooms = static_rooms(found, config, length)
        shapes = [(s, state_shape(graph, s, config, rooms)) for s in found.states.values()]
    except (UnsupportedOp, *BROKEN):
        return None
    if not shapes:
        return None
    size = 2 if cached_as_halves(graph) else 4

    def width(state: StateInput, of_floats: int) -> int:
        return of_floats if state.info.dtype in FLOATS else size_of(state.info.dtype)

    growing = [(s, [d or 1 for d in shape]) for s, shape in shapes if not s.fixed]
    per_token = sum(width(s, size) * product(shape) for s, shape in growing)
    fixed = sum(width(s, 4) * product(shape) for s, shape in shapes if s.fixed)
    kept = {
        "float16" if size == 2 else "float32" if s.info.dtype in FLOATS else NAME[s.info.dtype]
        for s, _ in growing
    }
    return Cache(
        dtype=" and ".join(sorted(kept)),
        tensors=sum(not s.fixed for s, _ in shapes),
        bytes_per_token=per_token,
        length=length,
        bytes=per_token * length + fixed,
        fixed_bytes=fixed,
        states=[
            State(s.name, s.output, ["tokens" if i == s.axis else d for i, d in enumerate(shape)])
            for s, shape in shapes
        ],
    )


def why_no_text(graph: Graph, config: Mapping[str, Any]) -> str:
    """Why text generation cannot run a graph from token ids, or their embeddings, to logits; ""
    otherwise.
    """
    graph = of_ids(graph)
    names = {i.name for i in graph.input_names()}
    if IDS not in names or not any(o.name == "logits" for o in graph.outputs):
        return ""
    try:
        found = interface(graph)
        rooms = static_rooms(found, config, DEFAULT_LENGTH)
        for state in found.states.values():
            state_shape(graph, state, config, rooms)
        windows(found, config, rooms)
    except UnsupportedOp as e:
        return str(e)
    return ""


def file_beside(graph: Graph) -> str:
    """The file that text generation needs beside a decoder; "" where it needs none."""
    return "embed_tokens.onnx" if takes_embeddings(graph) else ""
