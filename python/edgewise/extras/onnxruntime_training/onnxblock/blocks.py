"""Blocks: each adds nodes to the open model.

Names and parameters are those of ONNX Runtime Training's onnxblock, release 1.19.2.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from . import _graph_utils as g
from . import model_accessor

_CHECKED = 1 << 30  # larger models (in bytes) are not checked


class Block(ABC):
    """Part of a graph.

    Subclasses define `build(*names)`, which adds nodes to `self.base` (the open onnx.ModelProto),
    usually by calling other blocks, and returns the name or names of its outputs.

        class Huber(onnxblock.Block):
            def build(self, scores, target): ...

    Calling a block builds it. After the outermost call, the model is checked by onnx unless it has
    a gigabyte or more.
    """

    _depth = 0

    def __init__(self) -> None:
        self.base: Any = None  # the open onnx.ModelProto, while the block is called

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the block's nodes; returns the name or names of its outputs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._built(*args, **kwargs)
        if Block._depth == 0 and self.base.ByteSize() < _CHECKED:
            g.onnx().checker.check_model(self.base, True)
        return output

    def _built(self, *args: Any, **kwargs: Any) -> Any:
        self.base = model_accessor.current()
        Block._depth += 1
        try:
            return self.build(*args, **kwargs)
        finally:
            Block._depth -= 1


class _BinaryOp(Block):
    _op_name = ""

    def build(self, input_name1: str, input_name2: str) -> str:
        return g.add_node(self.base, self._op_name, [input_name1, input_name2])


class Add(_BinaryOp):
    """a + b."""

    _op_name = "Add"


class Sub(_BinaryOp):
    """a - b."""

    _op_name = "Sub"


class Mul(_BinaryOp):
    """a * b."""

    _op_name = "Mul"


class Div(_BinaryOp):
    """a / b."""

    _op_name = "Div"


class Pow(Block):
    """x ** exponent."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self._exponent = exponent

    def build(self, pow_input_name: str) -> str:
        """Name of input ** exponent."""
        return g.add_node(
            self.base,
            "Pow",
            [pow_input_name, g.add_floats(self.base, "pow_exponent", [self._exponent])],
        )


class _UnaryOp(Block):
    _op_name = ""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self._attributes = attributes

    def build(self, input_name: str) -> str:
        return g.add_node(self.base, self._op_name, [input_name], **self._attributes)


class ReduceMean(_UnaryOp):
    """The mean over all axes. keepdims: whether axes are kept with size 1, or removed."""

    _op_name = "ReduceMean"

    def __init__(self, keepdims: bool = True) -> None:
        super().__init__(keepdims=int(keepdims))


class ReduceSum(_UnaryOp):
    """The sum over all axes. keepdims as in ReduceMean."""

    _op_name = "ReduceSum"

    def __init__(self, keepdims: bool = True) -> None:
        super().__init__(keepdims=int(keepdims))


class Sigmoid(_UnaryOp):
    """1 / (1 + exp(-x))."""

    _op_name = "Sigmoid"

    def __init__(self) -> None:
        super().__init__()


class Log(_UnaryOp):
    """The natural logarithm."""

    _op_name = "Log"

    def __init__(self) -> None:
        super().__init__()


class Neg(_UnaryOp):
    """-x."""

    _op_name = "Neg"

    def __init__(self) -> None:
        super().__init__()


class Abs(_UnaryOp):
    """|x|."""

    _op_name = "Abs"

    def __init__(self) -> None:
        super().__init__()


class Constant(Block):
    """A float32 initializer [1]."""

    def __init__(self, value_float: float) -> None:
        super().__init__()
        self._value = value_float

    def build(self) -> str:
        """Name of the initializer."""
        return g.add_floats(self.base, "initializer", [self._value])


class SequenceConstruct(Block):
    """A sequence of tensors."""

    def build(self, *sequence_input_names: str) -> str:
        """Name of the sequence of these tensors."""
        return g.add_node(self.base, "SequenceConstruct", sequence_input_names)


class ReduceAllL2(Block):
    """The L2 norm [1] over all elements of all inputs (com.microsoft)."""

    def build(self, *reduce_node_input_names: str) -> str:
        """Name of the norm of these tensors."""
        output = g.add_node(
            self.base, "ReduceAllL2", reduce_node_input_names, domain="com.microsoft"
        )
        self.base.graph.value_info.append(
            g.onnx().helper.make_tensor_value_info(output, g.FLOAT, [1])
        )
        return output


class Clip(Block):
    """x limited to clip_min and clip_max; None: no limit."""

    def __init__(self, clip_min: float | None = None, clip_max: float | None = None) -> None:
        super().__init__()
        self._min, self._max = clip_min, clip_max

    def build(self, clip_input_name: str) -> str:
        """Name of the clipped tensor."""
        limits = [
            "" if x is None else g.add_floats(self.base, stem, [x], ())
            for stem, x in (("clip_min", self._min), ("clip_max", self._max))
        ]
        return g.add_node(self.base, "Clip", [clip_input_name, *limits])


class PassThrough(Block):
    """Returns its inputs unchanged."""

    def __init__(self, **_: Any) -> None:  # keepdims, like reductions
        super().__init__()

    def build(self, *input_names: str) -> Any:
        """The names, as a tuple."""
        return input_names


class InputLike(Block):
    """A new graph input with the type and shape of the graph input or output `like`."""

    def __init__(self, like: str) -> None:
        super().__init__()
        self._like = like

    def build(self, input_name: str | None = None) -> str:
        """Name of the new input; generated if it is not given.

        Raises:
            BlockError: `like` is not a graph input or output.
        """
        for i in [*self.base.graph.input, *self.base.graph.output]:
            if i.name == self._like:
                clone = type(i).FromString(i.SerializeToString())
                clone.name = input_name or g.generate_graph_name("input")
                self.base.graph.input.append(clone)
                return clone.name
        raise g.BlockError(
            f"'{self._like}' is not a graph input or output",
            "InputLike",
            "The model's are"
            f" {', '.join(i.name for i in [*self.base.graph.input, *self.base.graph.output])}.",
        )


class LabelEncoder(Block):
    """ai.onnx.ml's LabelEncoder: maps keys to values by a table."""

    def __init__(
        self,
        default_float: float = 0.0,
        default_int64: int = -1,
        default_string: str = "_Unused",
        keys_floats: Sequence[float] | None = None,
        keys_int64s: Sequence[int] | None = None,
        keys_strings: Sequence[str] | None = None,
        values_floats: Sequence[float] | None = None,
        values_int64s: Sequence[int] | None = None,
        values_strings: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._attributes: dict[str, Any] = {
            "default_float": default_float,
            "default_int64": default_int64,
            "default_string": default_string,
        }
        self._attributes |= {
            k: v
            for k, v in (
                ("keys_floats", keys_floats),
                ("keys_int64s", keys_int64s),
                ("keys_strings", keys_strings),
                ("values_floats", values_floats),
                ("values_int64s", values_int64s),
                ("values_strings", values_strings),
            )
            if v is not None
        }

    def build(self, label_encoder_input_name: str) -> str:
        """Name of the encoded tensor."""
        return g.add_node(
            self.base,
            "LabelEncoder",
            [label_encoder_input_name],
            domain="ai.onnx.ml",
            names=["label_encoder.output"],
            **self._attributes,
        )


class Cast(Block):
    """x as another element type. to: onnx.TensorProto's code."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    def build(self, cast_input_name: str) -> str:
        """Name of the converted tensor."""
        return g.add_node(self.base, "Cast", [cast_input_name], names=["cast.output"], to=self._to)


class Linear(Block):
    """alpha * x W + beta * b, with new initializers W [in_features, out_features] and
    b [out_features], uniform in +-1/sqrt(in_features) as in torch.nn.Linear.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        self._in_features, self._out_features, self._bias, self._alpha, self._beta = (
            in_features,
            out_features,
            bias,
            alpha,
            beta,
        )

    def build(self, linear_input_name: str) -> str:
        """Name of the output [N, out_features] of an input [N, in_features]."""
        bound = 1 / math.sqrt(self._in_features)

        def uniform(stem: str, *shape: int) -> str:
            return g.add_floats(
                self.base,
                stem,
                [random.uniform(-bound, bound) for _ in range(math.prod(shape))],
                shape,
            )

        inputs = [
            linear_input_name,
            uniform("linear.weight", self._in_features, self._out_features),
        ]
        if self._bias:
            inputs.append(uniform("linear.bias", self._out_features))
        return g.add_node(
            self.base,
            "Gemm",
            inputs,
            names=["linear.output"],
            alpha=float(self._alpha),
            beta=float(self._beta),
        )
