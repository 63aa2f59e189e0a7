"""Blocks that return models: ForwardBlock the extended graph, TrainingBlock the training and
evaluation models.
"""

from __future__ import annotations

import difflib
import re
import warnings
from abc import abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ....compiler.onnx.reader import NAME_SCOPES
from ..artifact_files.metadata import KEY, TrainingInfo
from . import _graph_utils as g
from . import blocks, model_accessor

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

T = TypeVar("T")
_FLOATS = (1, 10, 11, 16)
_BIG = 1 << 16  # initializers of this many bytes have no values that shape inference uses


class ForwardBlock(blocks.Block):
    """A block whose outputs become the outputs of the model; see `to_model_proto`."""

    def __init__(self) -> None:
        super().__init__()
        self._model: ModelProto | None = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the nodes; returns the name or names of the model's outputs."""

    def to_model_proto(self) -> ModelProto:
        """The onnx.ModelProto. Raises BlockError if the block was not called yet."""
        if self._model is None:
            raise g.BlockError(
                "the block has not been built",
                type(self).__name__,
                "Call it inside `with onnxblock.base(model):` first.",
            )
        return self._model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._built(*args, **kwargs)
        _infer_shapes(self.base)
        g.register_graph_outputs(self.base, output)
        self._model = _copy(self.base)
        return output


class TrainingBlock(blocks.Block):
    """A block whose first output is the loss.

    Call `requires_grad(name)` for each parameter to train, then the block. After that,
    `to_model_proto` returns the training and the evaluation model, and `parameters` the contents of
    the checkpoint.

    Both models have the parameters as inputs, after the user's inputs and in the order of the file.
    The training model has no gradient nodes: Edgewise derives them when it is loaded (see
    `edgewise.extras.onnxruntime_training.artifact_files.metadata`). Differences from ONNX Runtime:

    - A name in requires_grad or frozen that the model lacks is an error; ONNX Runtime ignores it.
    - A linear layer's weight that the exporter transposed and renamed (val_7 for fc.weight, in
      torch's dynamo exports) is found by the layer's bias or module. Its name and its shape
      [out, in] are restored.
    - Parameters that the exporter merged because their values were equal (Identity of another
      initializer) become separate initializers if they are named.
    - BatchNormalization uses the statistics of the batch in training if its scale or bias is
      trained; see `batch_norm`. The running statistics are stored in the checkpoint, so that
      evaluation uses the updated ones.

    Attributes:
        batch_norm: whether BatchNormalization uses the statistics of the batch in training. None:
            if its scale or bias is trained; True: always, as ONNX Runtime; False: never.
    """

    def __init__(self) -> None:
        super().__init__()
        # Ordered sets: names in the order of the calls.
        self._requires_grad: dict[str, bool] = {}
        self._frozen_params: dict[str, bool] = {}
        self._parameters: tuple[list[TensorProto], list[TensorProto]] | None = None
        self._training_model: ModelProto | None = None
        self._eval_model: ModelProto | None = None
        self.batch_norm: bool | None = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the nodes; returns the name of the loss, or names of the loss and other outputs."""

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Marks a parameter as trained, or with False as frozen but stored in the checkpoint."""
        on, off = (
            (self._requires_grad, self._frozen_params)
            if value
            else (self._frozen_params, self._requires_grad)
        )
        off.pop(argument_name, None)
        on[argument_name] = True

    def parameters(self) -> tuple[list[TensorProto], list[TensorProto]]:
        """(trainable, frozen) parameters. Raises BlockError if the block was not called yet."""
        return self._after(self._parameters)

    def to_model_proto(self) -> tuple[ModelProto, ModelProto]:
        """(training model, evaluation model). Raises BlockError if the block was not called yet."""
        return self._after(
            (self._training_model, self._eval_model) if self._training_model is not None else None
        )

    def _after(self, x: T | None) -> T:
        if x is None:
            raise g.BlockError(
                "the block has not been built",
                type(self).__name__,
                "Call it inside `with onnxblock.base(model):` first.",
            )
        return x

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = model_accessor.current()
        _separate(model, self._requires_grad | self._frozen_params)
        _unfold(model, self._requires_grad | self._frozen_params)
        statistics = self._statistics(model)
        output = self._built(*args, **kwargs)
        outputs = [output] if isinstance(output, str) else list(output)
        self._check_names(model)
        _infer_shapes(model)
        g.register_graph_outputs(model, outputs)
        _check_loss(model.graph.output[0])
        frozen = self._frozen_params | dict.fromkeys(
            name for pair in statistics.values() for name in pair
        )
        trainable = [t for t in model.graph.initializer if t.name in self._requires_grad]
        kept = [t for t in model.graph.initializer if t.name in frozen]
        self._parameters = [_copy(t) for t in trainable], [_copy(t) for t in kept]
        names = {t.name for t in [*trainable, *kept]}
        inputs = [i for i in model.graph.input if i.name not in names]
        infos = {
            t.name: g.onnx().helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            for t in model.graph.initializer
            if t.name in names
        }
        info = TrainingInfo(
            [i.name for i in inputs],
            outputs,
            [t.name for t in trainable],
            [t.name for t in kept],
            {y: list(pair) for y, pair in statistics.items()},
        )
        inputs = [_copy(i) for i in inputs] + list(infos.values())
        rest = [_copy(t) for t in model.graph.initializer if t.name not in names]
        del model.graph.input[:], model.graph.initializer[:]
        model.graph.input.extend(inputs)
        model.graph.initializer.extend(rest)
        for p in [p for p in model.metadata_props if p.key == KEY]:
            model.metadata_props.remove(p)
        self._training_model, self._eval_model = _copy(model), _copy(model)
        _disable_training_mode(self._eval_model)
        for m, mode in ((self._training_model, "train"), (self._eval_model, "eval")):
            info.mode = mode
            m.metadata_props.add(key=KEY, value=info.to_json())
        model.CopyFrom(self._training_model)
        return output

    def _check_names(self, model: ModelProto) -> None:
        have = {t.name: t for t in model.graph.initializer}
        for name in [*self._requires_grad, *self._frozen_params]:
            if name not in have:
                floats = [
                    t.name for t in have.values() if t.data_type in _FLOATS and len(t.dims) > 0
                ]
                near = difflib.get_close_matches(name, floats, 3, 0.4) or floats[:8]
                folded = [
                    f"{t} {list(have[t].dims)}"
                    for t in _factors(model)
                    if not t.endswith(".weight")
                ]
                raise g.BlockError(
                    f"the model has no parameter '{name}'",
                    "requires_grad" if name in self._requires_grad else "frozen_params",
                    "It has"
                    f" {', '.join(near) or 'none'}{', ...' if len(floats) > len(near) else ''}."
                    + (
                        " Exporters rename weights that they transpose; factors with such names"
                        f" are {', '.join(folded[:6])}."
                        if folded
                        else ""
                    ),
                )
        if not self._requires_grad:
            names = [t.name for t in have.values() if t.data_type in _FLOATS and len(t.dims) > 0]
            raise g.BlockError(
                "no parameter is trained", "requires_grad", f"Name some of {', '.join(names[:8])}."
            )
        wrong = [n for n in self._requires_grad if have[n].data_type not in _FLOATS]
        if wrong:
            raise g.BlockError(
                f"'{wrong[0]}' is not a floating-point tensor",
                "requires_grad",
                "Only those can be trained; quantized weights take adapters (edgewise.Trainer).",
            )

    def _statistics(self, model: ModelProto) -> dict[str, tuple[str, str]]:
        """{output: (mean, variance)} of the BatchNormalization nodes that use the statistics of the
        batch in training. Shared statistics are copied, so that each node has its own.
        """
        out: dict[str, tuple[str, str]] = {}
        if self.batch_norm is False:
            return out
        have = {t.name: t for t in model.graph.initializer}
        users: dict[str, list[tuple[NodeProto, int]]] = {}
        for n in model.graph.node:
            for i, name in enumerate(n.input):
                users.setdefault(name, []).append((n, i))
        for n in model.graph.node:
            if (
                n.op_type != "BatchNormalization"
                or n.domain not in ("", "ai.onnx")
                or len(n.input) < 5
                or not (self.batch_norm or set(n.input[1:3]) & set(self._requires_grad))
            ):
                continue
            if (
                any(a.name == "training_mode" and a.i for a in n.attribute)
                or len([o for o in n.output if o]) > 1
                or not {n.input[3], n.input[4]} <= set(have)
            ):
                continue  # exported in training mode
            for i, stem in ((3, "running_mean"), (4, "running_var")):
                name = n.input[i]
                # Shared if the exporter merged initializers with equal values.
                if name in self._requires_grad or len(users[name]) > 1:
                    own = f"{n.output[0]}.{stem}"
                    model.graph.initializer.append(_copy(have[name]))
                    model.graph.initializer[-1].name = own
                    users[name] = [u for u in users[name] if u != (n, i)]
                    n.input[i] = own
            out[n.output[0]] = n.input[3], n.input[4]
        return out


def _copy(message: Any) -> Any:
    return (
        type(message).FromString(message.SerializeToString())
        if message.ByteSize() < 1 << 30
        else _copied(message)
    )


def _copied(message: Any) -> Any:
    new = type(message)()
    new.CopyFrom(message)
    return new


def _infer_shapes(model: ModelProto) -> None:
    """Adds the types and shapes that onnx can infer.

    Data of large initializers is removed meanwhile, so that the size of the model does not matter.
    """
    o = g.onnx()
    held = [(t, t.raw_data) for t in model.graph.initializer if len(t.raw_data) >= _BIG]
    for t, _ in held:
        t.ClearField("raw_data")
    try:
        inferred = o.shape_inference.infer_shapes(model)
    except (o.shape_inference.InferenceError, ValueError):
        return
    finally:
        for t, data in held:
            t.raw_data = data
    del model.graph.value_info[:], model.graph.output[:]
    model.graph.value_info.extend(inferred.graph.value_info)
    model.graph.output.extend(inferred.graph.output)


def _check_loss(info: ValueInfoProto) -> None:
    t = info.type.tensor_type
    if (
        t.elem_type not in (0, *_FLOATS)
        or t.HasField("shape")
        and any(not d.HasField("dim_value") or d.dim_value != 1 for d in t.shape.dim)
    ):
        shape = [d.dim_value or d.dim_param or "?" for d in t.shape.dim]
        raise g.BlockError(
            f"the loss '{info.name}' is not one number but"
            f" {'integers of shape ' if t.elem_type not in (0, *_FLOATS) else ''}{shape}",
            "onnxblock",
            "Reduce it to its mean or sum; without a loss block, the model's first output is the"
            " loss.",
        )


def _separate(model: ModelProto, wanted: Collection[str]) -> None:
    """Replaces Identity nodes of initializers by initializers, if their outputs are in `wanted` or
    are statistics of norms.
    """
    have = {t.name: t for t in model.graph.initializer}
    statistics = {
        name for n in model.graph.node if n.op_type == "BatchNormalization" for name in n.input[3:5]
    }
    for n in [
        n for n in model.graph.node if n.op_type == "Identity" and n.domain in ("", "ai.onnx")
    ]:
        name = n.output[0]
        if n.input[0] in have and (name in wanted or name in statistics):
            model.graph.initializer.append(_copy(have[n.input[0]]))
            model.graph.initializer[-1].name = name
            have[name] = model.graph.initializer[-1]
            model.graph.node.remove(n)


def _factors(model: ModelProto) -> dict[str, NodeProto]:
    """{initializer: MatMul} of matrices that are used only as the second factor of one MatMul."""
    have = {t.name for t in model.graph.initializer if len(t.dims) == 2}
    users: dict[str, list[tuple[NodeProto, int]]] = {}
    for n in model.graph.node:
        for i, name in enumerate(n.input):
            if name in have:
                users.setdefault(name, []).append((n, i))
    return {
        name: found[0][0]
        for name, found in users.items()
        if len(found) == 1 and found[0][0].op_type == "MatMul" and found[0][1] == 1
    }


def _unfold(model: ModelProto, wanted: Collection[str]) -> None:
    """Restores the names of transposed weights of linear layers.

    NAME.weight is the factor of the product that NAME.bias is added to, or of the product in the
    module NAME, which the exporter stores in the metadata or the name of the node. If one name and
    one unnamed factor are left, they are matched with a warning.
    """
    have = {t.name: t for t in model.graph.initializer}
    missing = [name for name in wanted if name not in have and name.endswith(".weight")]
    if not missing:
        return
    factors = _factors(model)
    makers = {out: n for n in model.graph.node for out in n.output}
    modules: dict[str, list[str]] = {}
    for folded, n in factors.items():
        modules.setdefault(_module(n), []).append(folded)

    def by_bias(name: str) -> str | None:
        bias = name.removesuffix("weight") + "bias"
        adds = [n for n in model.graph.node if n.op_type == "Add" and bias in n.input]
        product: Any = (
            makers.get(next((x for x in adds[0].input if x != bias), ""))
            if bias in have and len(adds) == 1
            else None
        )
        return (
            product.input[1]  # type: ignore[union-attr]
            if product is not None
            and len(product.input) > 1
            and factors.get(product.input[1]) is product
            and list(have[product.input[1]].dims)[1:]  # type: ignore[union-attr]
            == list(have[bias].dims)
            else None
        )

    def by_module(name: str) -> str | None:
        found = modules.get(name.removesuffix(".weight"), ())
        return found[0] if len(found) == 1 else None

    for name in list(missing):
        found = by_bias(name) or by_module(name)
        if found is not None and found not in wanted:
            _turn(model, have[found], factors.pop(found), name)
            missing.remove(name)
    left = [f for f in factors if f not in wanted and re.match(r"val_\d+$|onnx::", f)]
    if len(missing) == len(left) == 1 and not difflib.get_close_matches(missing[0], have, 1, 0.9):
        warnings.warn(
            f"'{missing[0]}' is taken to be '{left[0]}', the only weight that lost its name",
            stacklevel=4,
        )
        _turn(model, have[left[0]], factors[left[0]], missing[0])


def _module(node: NodeProto) -> str:
    """The module of a node: from the metadata of torch's exporters, or from a node name such as
    /layers.0/fc/MatMul.
    """
    scopes = next(
        (
            re.findall(r"'([^']*)'", p.value)
            for p in getattr(node, "metadata_props", ())
            if p.key == NAME_SCOPES
        ),
        (),
    )
    return (
        scopes[-2] if len(scopes) > 1 else node.name.strip("/").rpartition("/")[0].replace("/", ".")
    )


def _turn(model: ModelProto, t: TensorProto, product: NodeProto, name: str) -> None:
    """Transposes the second factor of a product, renames it to `name`, and inserts a Transpose."""
    o = g.onnx()
    t.CopyFrom(o.numpy_helper.from_array(o.numpy_helper.to_array(t).T.copy(), name))
    output = g.generate_graph_name("transposed")
    product.input[1] = output
    at = next(i for i, n in enumerate(model.graph.node) if n is product or n == product)
    model.graph.node.insert(
        at,
        o.helper.make_node(
            "Transpose", [name], [output], name=g.generate_graph_name("Transpose"), perm=[1, 0]
        ),
    )


def _disable_training_mode(model: ModelProto) -> None:
    """Turns off Dropout and makes BatchNormalization use its running statistics. onnx then allows
    it only one output.
    """
    used = {name for n in model.graph.node for name in n.input} | {
        o.name for o in model.graph.output
    }
    for n in model.graph.node:
        if n.op_type == "Dropout" and len(n.input) > 2:
            del n.input[2:]
        elif n.op_type == "BatchNormalization":
            for a in n.attribute:
                if a.name == "training_mode":
                    a.i = 0
            if not used & set(n.output[1:]):
                del n.output[1:]
