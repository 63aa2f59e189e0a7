"""Compares a model on a GPU with the engine in C, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...compiler.onnx.dimensions import check_names, input_shapes
from ...errors import InputError
from ...host.devices import open_engine
from ...host.session import InferenceSession
from ...host.webgpu import Difference, WebGPUEngine, compare
from . import _read_model_file
from .run import make_input


@dataclass
class DeviceReport:
    """What `compare_devices` found.

    Attributes:
        adapter: the GPU, its driver and the library.
        steps: number of the steps that were compared.
        differences: outputs beyond their bounds, in the order of the steps.
        on_cpu: {kernel: why its steps run on the processor}, which are not compared.
    """

    adapter: str
    steps: int = 0
    differences: list[Difference] = field(default_factory=list)
    on_cpu: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "differences": [d._asdict() for d in self.differences]}

    def __str__(self) -> str:
        lines = [f"{self.adapter}: {self.steps} steps compared with the processor"]
        lines += [f"  {name} runs on the processor: {why}" for name, why in self.on_cpu.items()]
        for d in self.differences:
            lines.append(
                f"  step {d.step}, {d.where or d.kernel}: {d.kernel}.{d.operand} differs by"
                f" {d.error:.2g} (bound {d.bound:.2g})"
            )
        return "\n".join([*lines, *([] if self.differences else ["  all within their bounds"])])


def compare_devices(
    model: str,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    dtype: str | None = None,
    device: str = "webgpu",
) -> DeviceReport:
    """Runs a model step by step on a device and on the processor.

    Each step gets the inputs that the processor computed, so that the first difference is in the
    step that makes it.

    Args:
        model: .onnx file or model folder.
        dims: sizes of symbolic dimensions.
        shapes: shapes of inputs, instead of dims.
        values: flat numbers of inputs; other inputs are generated.
        dtype: which .onnx file of a folder.
        device: "webgpu".

    Raises:
        InputError: a size is missing, or the device is the processor.
        EngineError: there is no such device.
    """
    file, graph = _read_model_file(model, dtype)
    full, needs = input_shapes(graph, dims or {}, shapes or {})
    check_names(graph, "values", values or {})
    if needs:
        raise InputError(f"it depends on {', '.join(needs)}", file, "Give sizes: --dims NAME=1.")
    engine = open_engine(device)
    if not isinstance(engine, WebGPUEngine):
        raise InputError(
            f"the device '{device}' is what others are compared with", "device", "Use 'webgpu'."
        )
    given = values or {}
    feeds = {i.name: make_input(i, full[i.name], given.get(i.name)) for i in graph.input_names()}
    session = InferenceSession(file, engine=engine)
    session.run(None, feeds)
    report = DeviceReport(engine.gpu.name)
    for loaded in sorted(engine.plans, key=lambda plan: plan.handle):
        report.differences += compare(loaded)
        report.steps += loaded.info["steps"] - sum(loaded.info["onCpu"].values())
        report.on_cpu.update(loaded.info["why"])
    session.free()
    return report
