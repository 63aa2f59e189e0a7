"""ONNX's backend interface, onnx.backend.base
(https://github.com/onnx/onnx/blob/main/docs/ImplementingAnOnnxBackend.md), for `InferenceSession`:
with it ONNX's test runner runs its tests, and onnxruntime's tests of `onnxruntime.backend` run.

    outputs = backend.prepare(model).run([x, y])  # outputs[0], outputs["name"]
    outputs = backend.run_node(node, [x, y], opset_version=13)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import onnx
from edgewise import InferenceSession
from edgewise.compiler.arrays import Array
from edgewise.compiler.inspect import unsupported
from edgewise.compiler.onnx import as_source, read_model
from edgewise.errors import InputError, ModelError
from onnx.backend.base import Backend, BackendRep, namedtupledict

__all__ = [
    "EdgewiseBackend",
    "EdgewiseBackendRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class EdgewiseBackendRep(BackendRep):
    """A model that is ready to run.

    Args:
        session: of the model.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.inputs = [i.name for i in session.get_inputs()]
        self.outputs = namedtupledict("Outputs", [o.name for o in session.get_outputs()])

    def run(self, inputs: Any, **kwargs: object) -> Any:
        """Runs the model.

        Args:
            inputs: a list with one value for each input that is not an initializer; a dict by name;
                or the value of the only input. Values are NumPy arrays (of ml_dtypes for types
                that NumPy does not have), lists of them for sequences, None for an optional
                without a value.
            kwargs: ignored.

        Returns:
            A tuple of the outputs, which can be indexed by position and by name.

        Raises:
            InputError: the inputs do not match the model.
        """
        if not isinstance(inputs, (dict, list, tuple)):
            inputs = [inputs]
        if not isinstance(inputs, dict):
            if len(inputs) != len(self.inputs):
                raise InputError(
                    f"{len(inputs)} values for {len(self.inputs)} inputs"
                    f" ({', '.join(self.inputs)})",
                    "inputs",
                    "Pass one value per input, or {name: value}.",
                )
            inputs = dict(zip(self.inputs, inputs))
        return self.outputs(*map(_numpy, self.session.run(None, inputs)))


class EdgewiseBackend(Backend):
    """The functions of this module as class methods, as ONNX's test runner expects them."""

    @classmethod
    def is_compatible(cls, model: object, device: str = "CPU", **kwargs: object) -> bool:
        """Whether every operator of a model is supported. Its types and attributes are checked
        only when it runs.

        Args:
            model: ModelProto, its bytes, or a path.
            device: "CPU".
            kwargs: ignored.
        """
        return cls.supports_device(device) and not unsupported(
            read_model(as_source(_source(model)))
        )

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", *, engine: Any = None, **kwargs: object
    ) -> EdgewiseBackendRep:
        """Checks a model and prepares it for runs.

        Args:
            model: ModelProto, its bytes, or a path (for models with external data, or larger than
                2 GB).
            device: "CPU".
            engine: an edgewise Engine; default: that of the process.
            kwargs: ignored; ONNX's test runner passes some.

        Raises:
            InputError: there is no such device.
            ModelError: the model is not valid ONNX.
            UnsupportedOp: as InferenceSession.
        """
        if not cls.supports_device(device):
            raise InputError(
                f"there is no device {device!r}",
                "device",
                'Use "CPU"; a WebAssembly engine is passed as engine=.',
            )
        try:
            onnx.checker.check_model(model)
        except ValueError as e:
            raise ModelError(
                str(e),
                "model",
                "The file is damaged, not an ONNX model, or larger than 2 GB: then pass its path.",
            ) from None
        return EdgewiseBackendRep(InferenceSession(_source(model), engine=engine))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> Any:
        """Runs a model once: `prepare(model, device, **kwargs).run(inputs)`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        *,
        opset_version: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs one node.

        Args:
            node: the node.
            inputs: values of its inputs, with None for absent ones or without them.
            device: "CPU".
            outputs_info: (dtype, shape) of its outputs; default: inferred by ONNX.
            opset_version: version of the operator set of the node's domain; default: the newest
                that the onnx package has.
            kwargs: as `prepare`.

        Returns:
            The outputs, as EdgewiseBackendRep.run.

        Raises:
            InputError: the inputs or outputs_info do not match the node.
            ModelError, UnsupportedOp: as `prepare`.
        """
        feeds = _node_feeds(node, inputs)
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_value_info(name, _type(x, f"input '{name}'"))
                for name, x in feeds.items()
            ],
            _declared_outputs(node, outputs_info),
        )
        opsets = [
            onnx.helper.make_opsetid(domain, version)
            for domain, version in _opsets(node, opset_version).items()
        ]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        if outputs_info is None:
            model = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(model, list(feeds.values()), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is "CPU"; the engine decides where it computes."""
        return device.split(":")[0] == "CPU"


prepare = EdgewiseBackend.prepare
run_model = EdgewiseBackend.run_model
run_node = EdgewiseBackend.run_node
supports_device = EdgewiseBackend.supports_device
is_compatible = EdgewiseBackend.is_compatible


def _node_feeds(node: onnx.NodeProto, inputs: Any) -> dict[str, Any]:
    """Values by name of a node's inputs, in the order of the node."""
    names = list(dict.fromkeys(name for name in node.input if name))
    values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(values) == len(names):
        return dict(zip(names, values))
    feeds = {name: x for name, x in zip(node.input, values) if name}
    if set(feeds) != set(names):
        raise InputError(
            f"{len(values)} values for the inputs {', '.join(names)}",
            "inputs",
            "Pass one value per input of the node.",
        )
    return feeds


def _declared_outputs(
    node: onnx.NodeProto, outputs_info: Sequence[tuple[Any, Sequence[int]]] | None
) -> list[onnx.ValueInfoProto]:
    names = [name for name in node.output if name]
    if outputs_info is None:
        return [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    if len(outputs_info) != len(names):
        raise InputError(
            f"{len(outputs_info)} types for the outputs {', '.join(names)}",
            "outputs_info",
            "Pass (dtype, shape) of each.",
        )
    return [
        onnx.helper.make_tensor_value_info(name, _code(dtype, f"output '{name}'"), shape)
        for name, (dtype, shape) in zip(names, outputs_info)
    ]


def _opsets(node: onnx.NodeProto, opset_version: int | None) -> Mapping[str, int]:
    """Versions of ONNX's operator set and of that of the node's domain."""
    versions = {"": onnx.defs.onnx_opset_version()}
    if node.domain not in ("", "ai.onnx"):
        versions[node.domain] = max(
            (s.since_version for s in onnx.defs.get_all_schemas() if s.domain == node.domain),
            default=1,
        )
    if opset_version is not None:
        versions[node.domain if node.domain in versions else ""] = opset_version
    return versions


def _source(model: Any) -> Any:
    """The model as InferenceSession takes it."""
    if isinstance(model, onnx.ModelProto):
        try:
            return model.SerializeToString()
        except Exception as e:  # errors of protobuf: more than 2 GB, a string that is not UTF-8
            raise InputError(
                f"it cannot be serialized ({e})", "model", "Pass the path of its file."
            ) from None
    return os.fspath(model) if isinstance(model, os.PathLike) else model


def _numpy(value: Any) -> Any:
    """An output with all tensors as NumPy arrays; onnx has ml_dtypes as a dependency."""
    if isinstance(value, Array):
        return numpy.asarray(value)
    if isinstance(value, (list, tuple)):
        return [_numpy(v) for v in value]
    return value


def _type(value: Any, where: str) -> onnx.TypeProto:
    """The type of an input."""
    if isinstance(value, (list, tuple)):
        element = (
            _type(value[0], where)
            if value
            else onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        )
        return onnx.helper.make_sequence_type_proto(element)
    if not hasattr(value, "dtype"):
        raise InputError(f"a {type(value).__name__} is not a tensor", where, "Pass a NumPy array.")
    return onnx.helper.make_tensor_type_proto(_code(value.dtype, where), value.shape)


def _code(dtype: Any, where: str) -> int:
    """ONNX's code of a NumPy element type."""
    try:
        return onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    except (TypeError, ValueError):
        raise InputError(
            f"ONNX has no element type {dtype!r}", where, "Use an element type of ONNX."
        ) from None
