"""Losses as blocks: each adds an input for the target, unless the graph has one of this name, and
returns the name of the loss.

Unlike ONNX Runtime's blocks, class weights and reduction="none" work, the classes may be the last
axis of scores of any rank, and the binary cross entropy does not overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _graph_utils as g
from .. import blocks

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

    Dims = list[int | str | None]  # sizes or names of axes; None: unknown


def _reduction(reduction: str) -> blocks.Block:
    if reduction not in ("mean", "sum", "none"):
        raise g.BlockError(
            f"reduction is {reduction!r}", "onnxblock.loss", 'It is "mean", "sum" or "none".'
        )
    kinds: dict[str, Any] = {"mean": blocks.ReduceMean, "sum": blocks.ReduceSum, "none": _Same}
    block: blocks.Block = kinds[reduction](keepdims=False)
    return block


class _Same(blocks.PassThrough):
    def build(self, *input_names: str) -> str:
        (name,) = input_names
        return name


def _target(model: ModelProto, scores: str, target: str) -> str:
    """The name of the target input, which is added with the type of the scores if it is missing."""
    return target if g.node_arg_exists(model, target) else blocks.InputLike(scores)(target)


class MSELoss(blocks.Block):
    """reduce((output - target)^2)."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._reduce, self._sub, self._square = _reduction(reduction), blocks.Sub(), blocks.Pow(2.0)

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """Name of the loss. target_name: an input like the model's output, added if missing."""
        return self._reduce(
            self._square(
                self._sub(loss_input_name, _target(self.base, loss_input_name, target_name))
            )
        )


class L1Loss(blocks.Block):
    """reduce(|output - target|)."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._reduce, self._sub, self._abs = _reduction(reduction), blocks.Sub(), blocks.Abs()

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """Name of the loss; target_name as MSELoss."""
        return self._reduce(
            self._abs(self._sub(loss_input_name, _target(self.base, loss_input_name, target_name)))
        )


class BCEWithLogitsLoss(blocks.Block):
    """torch.nn.BCEWithLogitsLoss, with its numerically stable formula.

    reduce(weight * ((1 - t) x + (1 + (pos_weight - 1) t) softplus(-x))) for logits x and targets t
    in [0, 1].

    Args:
        weight, pos_weight: arrays that broadcast to the logits, or None.
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__()
        self._weight, self._reduce, self._pos_weight = weight, _reduction(reduction), pos_weight

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """Name of the loss; target_name as MSELoss."""
        add, sub, mul, neg = blocks.Add(), blocks.Sub(), blocks.Mul(), blocks.Neg()
        target = _target(self.base, loss_input_name, target_name)
        one = g.add_floats(self.base, "bceloss.one", [1.0])
        softplus = g.add_node(self.base, "Softplus", [neg(loss_input_name)])
        if self._pos_weight is not None:
            softplus = mul(
                add(
                    one,
                    mul(
                        sub(g.add_array(self.base, "bceloss.pos_weight", self._pos_weight), one),
                        target,
                    ),
                ),
                softplus,
            )
        loss = add(mul(sub(one, target), loss_input_name), softplus)
        if self._weight is not None:
            loss = mul(g.add_array(self.base, "bceloss.weight", self._weight), loss)
        return self._reduce(loss)


class CrossEntropyLoss(blocks.Block):
    """torch.nn.CrossEntropyLoss on class indices.

    Scores [N, classes] need int64 labels [N]. In scores with more axes the classes are the last
    axis, as in language models: [N, length, classes] need labels [N, length]. If the graph already
    has labels [N, ...] that match scores [N, classes, ...], as in torch, they are the second axis.

    Args:
        weight: array [classes], or None.
        reduction: "mean", "sum" or "none".
        ignore_index: label of positions without a loss, or None.
    """

    def __init__(
        self, weight: Any = None, reduction: str = "mean", ignore_index: int | None = None
    ) -> None:
        super().__init__()
        _reduction(reduction)
        self._weight, self._reduction, self._ignore_index = weight, reduction, ignore_index

    def build(self, scores_input_name: str, labels_name: str = "labels") -> str:
        """Name of the loss. labels_name: an int64 input, added if it is missing.

        Raises:
            BlockError: the operator set is below 12, or the scores are not a graph output.
        """
        model = self.base
        if g.opset_of(model) < 12:
            raise g.BlockError(
                f"the model has operator set {g.opset_of(model)}, which has no"
                " SoftmaxCrossEntropyLoss",
                "CrossEntropyLoss",
                "Export it with operator set 12 or newer.",
            )
        scores = _info(model, scores_input_name)
        dims = _dims(scores)
        if not g.node_arg_exists(model, labels_name):
            if scores is None:
                raise g.BlockError(
                    f"'{scores_input_name}' is not a graph output",
                    "CrossEntropyLoss",
                    f"The model's outputs are {', '.join(o.name for o in model.graph.output)}; or"
                    f" add an input '{labels_name}' first.",
                )
            labels = type(scores).FromString(scores.SerializeToString())
            labels.name = labels_name
            labels.type.tensor_type.elem_type = g.onnx().TensorProto.INT64
            if dims:
                del labels.type.tensor_type.shape.dim[-1]
            model.graph.input.append(labels)
        if (
            dims is not None
            and len(dims) > 2
            and not _second(dims, _dims(_info(model, labels_name)))
        ):
            rank = len(dims)
            scores_input_name = g.add_node(
                model, "Transpose", [scores_input_name], perm=[0, rank - 1, *range(1, rank - 1)]
            )
        inputs = [scores_input_name, labels_name]
        if self._weight is not None:
            inputs.append(g.add_array(model, "celoss.weight", self._weight))
        attributes: dict[str, Any] = {"reduction": self._reduction} | (
            {} if self._ignore_index is None else {"ignore_index": self._ignore_index}
        )
        return g.add_node(
            model, "SoftmaxCrossEntropyLoss", inputs, names=["loss", "log_prob"], **attributes
        )[0]


def _info(model: ModelProto, name: str) -> ValueInfoProto | None:
    return next(
        (
            v
            for v in [*model.graph.output, *model.graph.value_info, *model.graph.input]
            if v.name == name
        ),
        None,
    )


def _dims(info: ValueInfoProto | None) -> Dims | None:
    """The axes of a value: sizes, names, or None if unknown. None if the rank is unknown."""
    if info is None or not info.type.tensor_type.HasField("shape"):
        return None
    return [
        d.dim_value if d.HasField("dim_value") else d.dim_param or None
        for d in info.type.tensor_type.shape.dim
    ]


def _second(scores: Dims, labels: Dims | None) -> bool:
    """Whether labels match scores with the classes in the second axis and not in the last one."""
    if labels is None or len(labels) != len(scores) - 1:
        return False

    def fits(rest: Dims) -> bool:
        return all(a is None or b is None or a == b for a, b in zip(labels, rest))

    return fits([scores[0], *scores[2:]]) and not fits(scores[:-1])
