"""Losses, which a training step minimizes.

A loss adds nodes after the model's outputs that compute one float32 scalar. Any ONNX operator can
be used (`Gradients.op`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from ...errors import InputError
from ..bind.autodiff import Gradients
from ..declare.dtypes import FLOAT, INT64
from ..declare.symbolic import product
from ..ir import Graph, Value
from ..onnx import as_source, read_model
from .balance import balance_loss, real_tokens

Values = Mapping[str, Value]
TOKEN_WEIGHTS = "token_weights"  # weights of the losses of labels, float32 [batch, sequence]
TOKEN_LOSSES = "token_losses"  # losses of labels, float32 [batch, sequence]
Targets = dict[str, tuple[int, Sequence[int]]]  # {name: (dtype code, shape)}


class Loss(Protocol):
    """A loss, of edgewise.training.losses or your own."""

    def inputs(self, outputs: Values) -> Targets:
        """The targets that must be fed.

        Args:
            outputs: {name: Value} of the model.
        """
        ...

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """Adds the loss to the graph.

        Args:
            graph: to add nodes to.
            outputs: {name: Value} of the model.
            fed: {name: Value} of the targets.

        Returns:
            A float32 scalar.
        """
        ...


def _one(outputs: Values, name: str | None, loss: str) -> Value:
    """The output called `name`, or the first one."""
    if name is None:
        name = next(iter(outputs))
    if name not in outputs:
        raise InputError(
            f"the model has no output '{name}'",
            f"loss {loss}",
            f"Its outputs are {', '.join(outputs)}.",
        )
    return outputs[name]


def _reduce(graph: Gradients, value: Value, reduction: str) -> Value:
    if reduction == "none":
        raise InputError(
            "a loss to train on is one number", "reduction 'none'", "Use 'mean' or 'sum'."
        )
    if reduction not in ("mean", "sum"):
        raise InputError(f"{reduction!r} is not a valid reduction", "loss", "Use 'mean' or 'sum'.")
    return graph.op("ReduceMean" if reduction == "mean" else "ReduceSum", value, keepdims=0)


@dataclass
class CrossEntropyLoss:
    """torch.nn.CrossEntropyLoss on class indices.

    Args:
        weight: one float per class, or None.
        ignore_index: labels with this value have no loss.
        label_smoothing: from 0 to 1.
        reduction: "mean" (over the labels with a loss, weighted) or "sum".
        output: name of the output [N, classes] or [N, classes, d1, ...]. Default: the first.
        target: name of the labels that are fed, int64 [N] or [N, d1, ...].
    """

    weight: Sequence[float] | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    reduction: str = "mean"
    output: str | None = None
    target: str = "labels"

    def inputs(self, outputs: Values) -> Targets:
        """{target: int64 [N, d1, ...]}.

        Raises:
            InputError: there is no such output, or it has no axis of classes.
        """
        x = _one(outputs, self.output, "CrossEntropyLoss")
        if x.rank < 2:
            raise InputError(
                f"{x} has no axis of classes",
                "loss CrossEntropyLoss",
                "Its shape must be [N, classes] or [N, classes, ...].",
            )
        return {self.target: (INT64, [x.shape[0], *x.shape[2:]])}

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The scalar. Raises InputError if a field is out of range."""
        if self.reduction == "none":
            _reduce(graph, fed[self.target], self.reduction)  # raises
        return cross_entropy(
            graph,
            _one(outputs, self.output, "CrossEntropyLoss"),
            fed[self.target],
            self.weight,
            self.ignore_index,
            self.label_smoothing,
            self.reduction,
        )


def cross_entropy(
    graph: Gradients,
    logits: Value,
    labels: Value,
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Value:
    """The value of CrossEntropyLoss, a float32 scalar; with "none" the losses of all labels.

    Args:
        logits: [N, classes, d1, ...].
        labels: int64 [N, d1, ...].
        weight, ignore_index, label_smoothing, reduction: as CrossEntropyLoss's; or "none".

    Raises:
        InputError: an argument is out of range.
    """
    if reduction not in ("mean", "sum", "none"):
        _reduce(graph, logits, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise InputError(
            f"{label_smoothing} is not in [0, 1]", "label_smoothing", "0 disables smoothing."
        )
    extra = (
        [graph.constant(FLOAT, [len(weight)], list(map(float, weight)))]
        if weight is not None
        else []
    )
    if label_smoothing:
        return graph.op(
            "CrossEntropy",
            logits,
            labels,
            *extra,
            domain="edgewise",
            ignore_index=ignore_index,
            label_smoothing=float(label_smoothing),
            reduction=reduction,
        )
    return graph.op(
        "SoftmaxCrossEntropyLoss",
        logits,
        labels,
        *extra,
        ignore_index=ignore_index,
        reduction=reduction,
    )


@dataclass
class CausalLMLoss:
    """Next-token cross entropy, as transformers computes it: the logits at a position are compared
    with the next token.

    Args:
        label_smoothing: from 0 to 1.
        ignore_index: labels with this value (padding, prompts) have no loss.
        output: name of the logits [batch, sequence, vocabulary].
        target: name of the labels that are fed: the input ids, int64 [batch, sequence].
        router_aux_loss_coef: of mixtures of experts, the factor of the loss that spreads tokens
            over experts, as transformers adds it for `output_router_logits`; tokens after a row's
            last label are padding and do not count. 0: none.
    """

    label_smoothing: float = 0.0
    ignore_index: int = -100
    output: str = "logits"
    target: str = "labels"
    router_aux_loss_coef: float = 0.0

    def inputs(self, outputs: Values) -> Targets:
        """{target: int64 [batch, sequence]}.

        Raises:
            InputError: the output is not [batch, sequence, vocabulary].
        """
        x = _one(outputs, self.output, "CausalLMLoss")
        if x.rank != 3:
            raise InputError(
                f"{x} is not [batch, sequence, vocabulary]",
                "loss CausalLMLoss",
                "Use CrossEntropyLoss for other outputs.",
            )
        return {self.target: (INT64, x.shape[:2])}

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The scalar: the mean over the labels with a loss.

        Raises:
            InputError: router_aux_loss_coef is for another kind of model.
        """
        loss = self._of(graph, outputs, fed, "mean")
        return graph.add(loss, self._balance(graph, fed)) if self.router_aux_loss_coef else loss

    def _balance(self, graph: Gradients, fed: Values) -> Value:
        """The loss of the routers, with its factor."""
        real = real_tokens(graph, fed[self.target], self.ignore_index)
        flat = graph.reshape(real, [product(real.shape)])
        return graph.scale(balance_loss(graph, flat), float(self.router_aux_loss_coef))

    def weighed(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The scalar: the sum of the losses of labels times their TOKEN_WEIGHTS."""
        weights = fed[TOKEN_WEIGHTS]
        batch, sequence = weights.shape
        following = graph.op(
            "Slice", weights, graph.ints([1]), graph.ints([sequence]), graph.ints([1])
        )
        none = graph.constant(FLOAT, [batch, 1], [0.0] * batch)
        flat = graph.reshape(graph.op("Concat", following, none, axis=1), [batch * sequence])
        losses = self._of(graph, outputs, fed, "none")
        loss = graph.op("ReduceSum", graph.mul(losses, flat), keepdims=0)
        if not self.router_aux_loss_coef:
            return loss
        share = graph.op("ReduceSum", flat, keepdims=0)
        return graph.add(loss, graph.mul(self._balance(graph, fed), share))

    def each(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The losses [batch, sequence], at each place that of the next label; 0 without one."""
        return graph.reshape(self._of(graph, outputs, fed, "none"), fed[self.target].shape)

    def _of(self, graph: Gradients, outputs: Values, fed: Values, reduction: str) -> Value:
        logits, labels = _one(outputs, self.output, "CausalLMLoss"), fed[self.target]
        batch, sequence, vocabulary = logits.shape
        following = graph.op(
            "Slice", labels, graph.ints([1]), graph.ints([sequence]), graph.ints([1])
        )  # shift the labels: the logits are large
        ignored = graph.constant(INT64, [batch, 1], [self.ignore_index] * batch)
        labels = graph.op("Concat", following, ignored, axis=1)
        return cross_entropy(
            graph,
            graph.reshape(logits, [batch * sequence, vocabulary]),
            graph.reshape(labels, [batch * sequence]),
            None,
            self.ignore_index,
            self.label_smoothing,
            reduction,
        )


@dataclass
class _Elementwise:
    """A loss between a float32 output and a target of its shape.

    Args:
        reduction: "mean" or "sum", over all elements.
        output: name of the output. Default: the first.
        target: name of the float32 array that is fed.
    """

    reduction: str = "mean"
    output: str | None = None
    target: str = "labels"

    def inputs(self, outputs: Values) -> Targets:
        """{target: float32 of the output's shape}. Raises InputError: there is no such output."""
        x = _one(outputs, self.output, type(self).__name__)
        return {self.target: (FLOAT, list(x.shape))}

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The scalar: `each`, reduced. Raises InputError: there is no such reduction."""
        x = _one(outputs, self.output, type(self).__name__)
        return _reduce(graph, self.each(graph, x, fed[self.target]), self.reduction)

    def each(self, graph: Gradients, x: Value, y: Value) -> Value:
        """The loss of each element of output x and target y."""
        raise NotImplementedError


@dataclass
class MSELoss(_Elementwise):
    """torch.nn.MSELoss."""

    def each(self, graph: Gradients, x: Value, y: Value) -> Value:
        """(x - y)^2."""
        d = graph.sub(x, y)
        return graph.mul(d, d)


@dataclass
class L1Loss(_Elementwise):
    """torch.nn.L1Loss."""

    def each(self, graph: Gradients, x: Value, y: Value) -> Value:
        """|x - y|."""
        return graph.op("Abs", graph.sub(x, y))


@dataclass
class HuberLoss(_Elementwise):
    """torch.nn.HuberLoss: 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta)."""

    delta: float = 1.0

    def each(self, graph: Gradients, x: Value, y: Value) -> Value:
        """The formula above, as 0.5 m^2 + delta (|d| - m) with m = min(|d|, delta)."""
        a = graph.op("Abs", graph.sub(x, y))
        inner = graph.op("Min", a, graph.number(self.delta))  # 0.5 inner^2 + delta (a - inner)
        return graph.add(
            graph.scale(graph.mul(inner, inner), 0.5), graph.scale(graph.sub(a, inner), self.delta)
        )


@dataclass
class BCEWithLogitsLoss(_Elementwise):
    """torch.nn.BCEWithLogitsLoss: max(x, 0) - x y + log(1 + exp(-|x|)), for targets y from 0 to 1.

    Args:
        pos_weight: factor of the loss of positive targets, one for all elements; None: 1.
    """

    pos_weight: float | None = None

    def each(self, graph: Gradients, x: Value, y: Value) -> Value:
        """The formula above, of logits x and targets y."""
        rest = graph.op("Softplus", graph.neg(graph.op("Abs", x)))  # log(1 + exp(-|x|))
        if self.pos_weight is None:
            return graph.add(graph.sub(graph.op("Relu", x), graph.mul(x, y)), rest)
        # (1 - y) x + (1 + (p - 1) y) (rest + max(-x, 0))
        more = graph.add(graph.scale(y, self.pos_weight - 1.0), graph.number(1.0))
        return graph.add(
            graph.mul(graph.sub(graph.number(1.0), y), x),
            graph.mul(more, graph.add(rest, graph.op("Relu", graph.neg(x)))),
        )


@dataclass
class OutputLoss:
    """An output of the model: a loss that the graph already computes.

    Args:
        output: its name. It has one element. Default: the first.
    """

    output: str | None = None

    def inputs(self, outputs: Values) -> Targets:
        """Nothing."""
        return {}

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The output as a scalar.

        Raises:
            InputError: there is no such output, or it has more than one element.
        """
        v = _one(outputs, self.output, "of the model")
        if any(d != 1 for d in v.shape):
            raise InputError(
                f"{v} is not a scalar",
                f"loss '{v.name}'",
                "Name an output of one element, or use a loss such as CrossEntropyLoss.",
            )
        return graph.reshape(v, [])


@dataclass
class FunctionLoss:
    """A loss made by a function.

    Args:
        function: function(graph, outputs, fed) that returns a scalar Value, as Loss.build.
        fed: {name: (dtype code, shape)} of its targets.
    """

    function: Callable[[Gradients, Values, Values], Value]
    fed: Targets = field(default_factory=dict)

    def inputs(self, outputs: Values) -> Targets:
        """The targets of `fed`."""
        return dict(self.fed)

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The function's value, as a scalar."""
        return graph.reshape(self.function(graph, outputs, fed), [])


@dataclass
class GraphLoss:
    """A loss that is an ONNX model.

    Args:
        model: a path, bytes or Graph. An input named like an output of the trained model receives
            that output; the others are targets, with the type and shape that the file declares.
        shapes: {input name: shape} of targets whose shape is not static in the file, or differs.
        loss: name of the output that is the loss, of one element. Default: the first.
    """

    model: Graph | str | os.PathLike[str] | bytes
    shapes: dict[str, Sequence[int]] = field(default_factory=dict)
    loss: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, Graph):
            self.model = read_model(as_source(self.model))

    def inputs(self, outputs: Values) -> Targets:
        """The inputs of its model that are not outputs of the trained model.

        Raises:
            InputError: a shape is not known.
        """
        fed: Targets = {}
        for i in cast(Graph, self.model).input_names():
            if i.name in outputs:
                continue
            shape = self.shapes.get(i.name, i.shape)
            if shape is None or not all(isinstance(d, int) and d >= 0 for d in shape):
                raise InputError(
                    f"its shape {shape} is not known",
                    f"input '{i.name}' of the loss",
                    "Pass GraphLoss(..., shapes={name: shape}).",
                )
            fed[i.name] = (i.dtype or FLOAT, list(shape))
        return fed

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """Adds its nodes after the model's; returns the scalar.

        Raises:
            InputError: its loss has more than one element.
        """
        made = graph.binder.inline(
            self.model,
            {
                i.name: outputs[i.name] if i.name in outputs else fed[i.name]
                for i in cast(Graph, self.model).input_names()
            },
        )
        v = _one(made, self.loss, "GraphLoss")
        if any(d != 1 for d in v.shape):
            raise InputError(
                f"{v} is not a scalar",
                "loss GraphLoss",
                "Reduce it to a scalar, for instance with ReduceMean.",
            )
        return graph.reshape(v, [])


def balanced(coefficient: float, usable: bool) -> CausalLMLoss:
    """The loss of next tokens and of routers. Raises InputError for a factor that has no use."""
    if not usable:
        raise InputError(
            "only next tokens of a language model are learned with it",
            "router_aux_loss_coef",
            "Leave it out.",
        )
    number = isinstance(coefficient, (int, float)) and not isinstance(coefficient, bool)
    if not number or not 0 < coefficient < float("inf"):
        raise InputError(
            f"{coefficient!r} is not a factor", "router_aux_loss_coef", "Give a positive number."
        )
    return CausalLMLoss(router_aux_loss_coef=coefficient)


LOSSES: dict[str, Callable[[], Loss]] = {
    "causal_lm": CausalLMLoss,
    "cross_entropy": CrossEntropyLoss,
    "mse": MSELoss,
    "l1": L1Loss,
    "huber": HuberLoss,
    "bce_with_logits": BCEWithLogitsLoss,
}


def loss_of(loss: Loss | str | Graph | Callable[..., Value]) -> Loss:
    """A loss object.

    Args:
        loss: a loss object; a name in LOSSES; "output:NAME" (OutputLoss); a Graph (GraphLoss); or a
            function (FunctionLoss).

    Raises:
        InputError: it is something else.
    """
    if isinstance(loss, str):
        if loss.startswith("output:"):
            return OutputLoss(loss[7:])
        if loss in LOSSES:
            return LOSSES[loss]()
        raise InputError(
            f"there is no loss '{loss}'",
            "loss",
            f"Use {', '.join(LOSSES)}, 'output:NAME', or an object of edgewise.training.losses.",
        )
    if hasattr(loss, "build") and hasattr(loss, "inputs"):
        return cast(Loss, loss)
    if isinstance(loss, Graph):
        return GraphLoss(loss)
    if callable(loss):
        return FunctionLoss(loss)
    raise InputError(
        f"a {type(loss).__name__} is not a loss",
        "loss",
        f"Use {', '.join(LOSSES)}, 'output:NAME', or an object of edgewise.training.losses.",
    )
