"""ONNX's interface of a runtime, onnx.backend.base
(https://github.com/onnx/onnx/blob/main/docs/ImplementingAnOnnxBackend.md), over `InferenceSession`:

    from edgewise import backend
    outputs = backend.prepare(model).run([x, y])            # outputs[0], outputs["name"]
    outputs = backend.run_node(node, [x, y], opset_version=13)

The only part of the package, beside training's onnxblock, that needs the onnx package.
"""

from __future__ import annotations

import os

from .arrays import Array
from .errors import InputError, ModelError
from .inspect import unsupported
from .onnx import as_source, read_model
from .session import InferenceSession

try:
    import numpy
    import onnx
    from onnx.backend.base import Backend, BackendRep, namedtupledict
except ImportError:
    raise InputError(
        "the onnx package is not installed",
        "edgewise.backend",
        "pip install onnx, or use edgewise.InferenceSession, which does not need it.",
    ) from None

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
    """A prepared model: `session` is its InferenceSession."""

    def __init__(self, session):
        self.session = session
        self.inputs = [i.name for i in session.get_inputs()]
        names = [o.name for o in session.get_outputs()]
        self.outputs = namedtupledict("Outputs", names)

    def run(self, inputs, **kwargs):
        """Runs the model.

        Args:
            inputs: one value per input of the model that is no initializer, in their order; {name:
            value}; or the value of the only one. Values are NumPy
                arrays, those of types that NumPy lacks of ml_dtypes' types; lists of them for
                sequences, None for an optional without a value.
        Returns:
            a tuple of the outputs that can also be asked for an output by name: outputs[0],
            outputs["y"].
        Raises:
            InputError: what was fed does not fit the model.
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
    """The functions below, as methods of the class that ONNX's own test runner takes."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        """Whether every operator of the model (ModelProto, its bytes, or a path) is there; what
        types and attributes they have, only running it tells.
        """
        return cls.supports_device(device) and not unsupported(
            read_model(as_source(_source(model)))
        )

    @classmethod
    def prepare(cls, model, device="CPU", *, engine=None, **kwargs):
        """Checks a model and makes it ready to run.

        Args:
            model: ModelProto, the bytes of one, or a path (models with external data, or of more
            than 2 GB). device: "CPU".
            engine: an edgewise Engine; default: the process's.
            kwargs: ignored, as ONNX's test runner passes some of its own.
        Returns:
            EdgewiseBackendRep.
        Raises:
            onnx.checker.ValidationError: the model is not valid ONNX. ModelError, UnsupportedOp: as
            InferenceSession, the latter mostly when it is run.
        """
        if not cls.supports_device(device):
            raise InputError(
                f"there is no device {device!r}",
                "device",
                'Take "CPU"; a WebAssembly engine is given as engine=.',
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
    def run_model(cls, model, inputs, device="CPU", **kwargs):
        """prepare(model, device, **kwargs).run(inputs)"""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node, inputs, device="CPU", outputs_info=None, *, opset_version=None, **kwargs
    ):
        """Runs one node.

        Args:
            node: NodeProto.
            inputs: values of its inputs, None where one is absent; or of those only that are there.
            outputs_info: [(dtype, shape)] of its outputs; default: as ONNX infers, where it can.
            opset_version: version of the operator set of the node's domain; default: the newest
            that the onnx package knows. kwargs: as prepare's.
        Raises:
            as prepare and run.
        """
        names = list(dict.fromkeys(i for i in node.input if i))
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        feeds = (
            dict(zip(names, given))
            if len(given) == len(names)
            else {n: v for n, v in zip(node.input, given) if n}
        )
        if set(feeds) != set(names):
            raise InputError(
                f"{len(given)} values for the inputs {', '.join(names)}",
                "inputs",
                "Pass one value per input of the node.",
            )
        outs = [o for o in node.output if o]
        if outputs_info is not None and len(outputs_info) != len(outs):
            raise InputError(
                f"{len(outputs_info)} types for the outputs {', '.join(outs)}",
                "outputs_info",
                "Pass (dtype, shape) of each.",
            )
        helper = onnx.helper
        if outputs_info is None:
            declared = [helper.make_empty_tensor_value_info(o) for o in outs]
        else:
            declared = [
                helper.make_tensor_value_info(o, _code(dtype, f"output '{o}'"), shape)
                for o, (dtype, shape) in zip(outs, outputs_info)
            ]
        versions = {"": onnx.defs.onnx_opset_version()}
        if node.domain not in ("", "ai.onnx"):
            versions[node.domain] = max(
                (s.since_version for s in onnx.defs.get_all_schemas() if s.domain == node.domain),
                default=1,
            )
        if opset_version is not None:
            versions[node.domain if node.domain in versions else ""] = opset_version
        graph = helper.make_graph(
            [node],
            "node",
            [helper.make_value_info(n, _type(feeds[n], f"input '{n}'")) for n in names],
            declared,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(d, v) for d, v in versions.items()]
        )
        if outputs_info is None:
            model = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(model, [feeds[n] for n in names], device, **kwargs)

    @classmethod
    def supports_device(cls, device):
        """Whether `device` is "CPU": where an engine computes is the engine's own concern."""
        return device.split(":")[0] == "CPU"


prepare = EdgewiseBackend.prepare
run_model = EdgewiseBackend.run_model
run_node = EdgewiseBackend.run_node
supports_device = EdgewiseBackend.supports_device
is_compatible = EdgewiseBackend.is_compatible


def _source(model):
    """What InferenceSession takes."""
    if isinstance(model, onnx.ModelProto):
        try:
            return model.SerializeToString()
        except Exception as e:  # protobuf's own errors: more than 2 GB, a string that is no UTF-8
            raise InputError(
                f"it cannot be written ({e})", "model", "Pass the path of its file."
            ) from None
    return os.fspath(model) if isinstance(model, os.PathLike) else model


def _numpy(value):
    """A session's value with every tensor as a NumPy array; types that NumPy lacks are ml_dtypes',
    which onnx brings.
    """
    if isinstance(value, Array):
        return numpy.asarray(value)
    if isinstance(value, (list, tuple)):
        return [_numpy(v) for v in value]
    return value


def _type(value, where):
    """The TypeProto of a value."""
    helper = onnx.helper
    if isinstance(value, (list, tuple)):
        return helper.make_sequence_type_proto(
            _type(value[0], where)
            if value
            else helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        )
    if not hasattr(value, "dtype"):
        raise InputError(f"a {type(value).__name__} is no tensor", where, "Pass a NumPy array.")
    return helper.make_tensor_type_proto(_code(value.dtype, where), value.shape)


def _code(dtype, where):
    """ONNX's code of a NumPy element type."""
    try:
        return onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    except (TypeError, ValueError):
        raise InputError(f"ONNX has no element type {dtype!r}", where, "Take another.") from None
