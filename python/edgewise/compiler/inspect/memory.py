"""The memory of a model: its plan is compiled for given shapes, and nothing is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...errors import EdgewiseError, InputError, UnsupportedOp
from ..compile import CACHE_NAME, cache_axis, cached_as_halves, head_dim
from ..declare.dtypes import FLOAT, INT64
from ..declare.symbolic import most, product
from ..ir import BROKEN, Graph, NeedsValue, Tensor, Value
from ..onnx.dimensions import MAX_DIM
from ..plan import compile_graph
from ..plan.explain import INSPECTION, NO_PLAN, compiler_errors
from .report import Cache, Memory

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


def measure_cache(graph: Graph, length: int | None) -> Cache | None:
    """The cache of a language model; None if the inputs do not match one.

    Args:
        graph: the model.
        length: capacity in tokens; default DEFAULT_LENGTH.

    Raises:
        InputError: length is not valid.
    """
    if length is not None and (type(length) is not int or not 0 < length < MAX_DIM):
        raise InputError(
            f"{length!r} is not a number of tokens", "length", "Pass a positive integer."
        )
    length, per_token, count = length or DEFAULT_LENGTH, 0, 0
    halves = cached_as_halves(graph)
    for info in graph.input_names():
        if CACHE_NAME.search(info.name) and "encoder" not in info.name:
            try:
                shape = [d if isinstance(d, int) else 1 for d in info.shape or ()]
                axis = cache_axis(info)
                shape[3] = head_dim(graph, info.name, info)
            except (UnsupportedOp, *BROKEN):
                return None
            shape[axis] = 1
            per_token += (2 if halves else 4) * product(shape)
            count += 1
    if not count:
        return None
    dtype = "float16" if halves else "float32"
    return Cache(dtype, count, per_token, length, per_token * length)
