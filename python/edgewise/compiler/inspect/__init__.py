"""Describes a model without running it: its operators, inputs, outputs and parameters, the memory
of a session, and which parameters can be trained.

    report = edgewise.inspect.inspect("model.onnx", dims={"batch": 1, "sequence": 128})
    print(report)  # the output of `edgewise inspect model.onnx --dims batch=1,sequence=128`
    report.memory.total, report.as_dict()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ..bind import every_node, is_supported, unsupported
from ..declare.dtypes import NAME
from ..ir import Graph, Info
from ..onnx import Source, as_source, read_model
from ..onnx.dimensions import check_names, input_shapes
from ..training.parameters import parameters, quantized_count
from .gradients import find_trainability
from .memory import attempt, config_beside, file_beside, measure_cache, measure_memory, why_no_text
from .operators import list_operators
from .report import Cache, Initializers, Memory, Operator, Report, TensorInfo, Trainability, Weights
from .text import name_text

__all__ = [
    "Cache",
    "Memory",
    "Operator",
    "Initializers",
    "Report",
    "TensorInfo",
    "Trainability",
    "Weights",
    "every_node",
    "inspect",
    "is_supported",
    "unsupported",
]


def inspect(
    model: object,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    length: int | None = None,
    gradients: bool = True,
) -> Report:
    """Reads a model and describes it.

    Args:
        model: path of an .onnx file, its bytes, a Source, or a Graph.
        dims: sizes of the inputs' symbolic dimensions; expressions of them in the file ("past +
            sequence") are evaluated.
        shapes: shapes of inputs, instead of those that the file declares.
        values: flat numbers of inputs that shapes or branches depend on.
        length: capacity of a language model's cache in tokens; default 1024.
        gradients: whether to look for operators without a gradient, which binds the model a second
            time.

    Returns:
        The report. If the memory cannot be known, `problem` says why; that is not an error.

    Raises:
        ModelError: the file is damaged.
        InputError: dims, shapes, values or length are not valid.
    """
    graph = model if isinstance(model, Graph) else read_model(as_source(model))
    check_names(graph, "values", values or {})
    given = {name: list(numbers) for name, numbers in (values or {}).items()}
    full, needs = input_shapes(graph, dims or {}, shapes or {})
    missing, config = unsupported(graph), config_beside(graph)
    report = Report(
        name=graph.name if graph.source is None else cast(Source, graph.source).name,
        producer=graph.about.producer_name,
        ir_version=graph.ir_version,
        opsets=dict(graph.opsets),
        nodes=sum(1 for _ in graph.every_node()),
        inputs=[_describe(i) for i in graph.input_names()],
        outputs=[_describe(o) for o in graph.outputs],
        operators=list_operators(graph, missing),
        parameters=_count_parameters(graph),
        needs=needs,
        cache=measure_cache(graph, length, config),
        why_no_text=why_no_text(graph, config),
        file_beside=file_beside(graph),
    )
    if missing:
        report.problem = "it has operators that are not supported"
    elif needs:
        report.problem = f"it depends on {', '.join(map(name_text, needs))}"
    else:
        report.memory, report.problem = attempt(lambda: measure_memory(graph, full, given))
    if gradients and not missing and report.parameters.trainable:
        report.gradients, why = find_trainability(graph, full, given, needs)
        report.problem = report.problem or why
        report.why_no_gradients = why if report.gradients is None else ""
    return report


def _describe(info: Info) -> TensorInfo:
    shape = None if info.shape is None else list(info.shape)
    return TensorInfo(info.name, NAME.get(info.dtype, str(info.dtype)), shape, info.kind)


def _count_parameters(graph: Graph) -> Initializers:
    total = Weights()
    by_dtype: dict[str, Weights] = {}
    for t in graph.constants.values():
        for weights in (total, by_dtype.setdefault(NAME.get(t.dtype, str(t.dtype)), Weights())):
            weights.tensors += 1
            weights.elements += t.count
            weights.bytes += t.nbytes
    trainable = [
        (name, NAME[graph.constants[name].dtype], list(graph.constants[name].shape))
        for name in parameters(graph)
    ]
    return Initializers(total, by_dtype, trainable, quantized_count(graph))
