"""A model of any kind, measured as one run with fixed shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array
from ...compiler.declare.dtypes import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, NAME, bytes_for, pack
from ...compiler.declare.symbolic import product
from ...compiler.ir import Graph, Info
from ...compiler.onnx.dimensions import check_names, input_shapes
from ...errors import InputError
from ...host.profile import Profile
from ...host.session import InferenceSession
from .contender import Comparison, Contender, LoadedModel, repeat

if TYPE_CHECKING:
    from .contender import Engine


class RunContender(Contender[LoadedModel]):
    """A runtime that runs a model with the same inputs repeatedly."""

    def measure(self) -> list[float]:
        """[milliseconds of a run]."""
        return [1000 * repeat(self.state.run)]

    def profile(self) -> Profile:
        assert self.state.session is not None
        with self.state.session.profile() as profile:
            self.state.run()
        return profile


def compare_runs(
    file: str,
    graph: Graph,
    engine: Engine,
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, Sequence[float]],
    against: bool,
) -> Comparison:
    """Prepares the measurement of one run.

    Args:
        file: path of the model.
        graph: the model.
        engine: for Edgewise; onnxruntime gets as many threads.
        dims: sizes of symbolic dimensions.
        shapes: shapes of inputs, instead of dims.
        values: flat numbers of inputs.
        against: whether to add onnxruntime.
    """
    full, needs = input_shapes(graph, dims, shapes)
    check_names(graph, "values", values)
    if needs:
        names = ",".join(name + "=1" for name in needs if " " not in name)
        raise InputError(
            f"it depends on {', '.join(needs)}",
            file,
            f"Give sizes: --dims {names or 'NAME=1'}; or --shape INPUT=2x3.",
        )
    feeds = {i.name: make_input(i, full[i.name], values.get(i.name)) for i in graph.input_names()}

    def load() -> tuple[LoadedModel, Sequence[Any]]:
        session = InferenceSession(file, engine=engine)
        return LoadedModel(lambda: session.run(None, feeds), session), session.run(None, feeds)

    given = f" except for {', '.join(values)}" if values else ""
    described = ", ".join(f"{name} {x.dtype}{list(x.shape)}" for name, x in feeds.items())
    comparison = Comparison(
        [RunContender("edgewise", "Edgewise", load)],
        task=f"{len(graph.nodes)} nodes",
        measured=[("a run", "ms", "lower")],
        notes=[
            f"One run with {described}; inputs are generated{given}. The time includes the"
            " conversion of inputs and outputs from and to arrays."
        ],
    )
    if against:
        from .peer import add_peer, load_run, open_session

        add_peer(
            comparison,
            lambda onnxruntime, title, exact: RunContender(
                "onnxruntime",
                title,
                lambda: load_run(open_session(onnxruntime, file, engine.threads, exact), feeds),
            ),
        )
    return comparison


def make_input(info: Info, shape: Sequence[int], values: Sequence[float] | None) -> Array:
    """A deterministic tensor for an input.

    Without `values`, floats are normally distributed; integers depend on the name of the input:
    ones for masks and bools, zeros for token types, indices for positions, else small ids.

    Args:
        info: the input.
        shape: its shape.
        values: flat numbers; one number is repeated.
    """
    count = product(shape)
    where = f"input '{info.name}'"
    if info.dtype not in NAME or info.kind != "tensor":
        raise InputError(
            "values of this type cannot be generated",
            where,
            "Measure the model from Python with arrays of your own: time session.run.",
        )
    numbers: list[float]
    if values is not None:
        if len(values) not in (1, count):
            raise InputError(
                f"{len(values)} numbers for {count} elements", where, "Give one, or all of them."
            )
        numbers = list(values) * (count if len(values) == 1 else 1)
    elif info.dtype in (FLOAT, FLOAT16, DOUBLE, BFLOAT16):
        random = Random(info.name)
        numbers = [random.gauss(0, 1) for _ in range(count)]
    elif info.dtype == BOOL or "mask" in info.name:
        numbers = [1] * count
    elif "position" in info.name:
        numbers = [i % max(shape[-1], 1) for i in range(count)] if shape else [0]
    elif "type" in info.name:
        numbers = [0] * count
    else:
        numbers = [1 + i * 7919 % 97 for i in range(count)]
    data = pack(info.dtype, numbers)
    assert len(data) == bytes_for(info.dtype, count)
    return Array(shape, NAME[info.dtype], data)
