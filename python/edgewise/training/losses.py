"""Losses: what a training step minimizes.

Each adds nodes behind the model's outputs and ends in one float32 scalar.

A loss has `inputs(outputs)`: {name: (dtype code, shape)} of what must be fed for it, from {name:
Value} of the model's outputs, and `build(g, outputs, fed)`, which returns the scalar Value. `g` is
an autodiff.Gradients, so a loss can use any ONNX operator (`g.op`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..declare.dtypes import FLOAT, INT64
from ..errors import InputError
from ..ir import Graph
from ..onnx import as_source, read_model


def _one(outputs, name, loss):
    """The output a loss is of: the one named, or the first."""
    if name is None:
        name = next(iter(outputs))
    if name not in outputs:
        raise InputError(
            f"the model has no output '{name}'",
            f"loss {loss}",
            f"Its outputs are {', '.join(outputs)}.",
        )
    return outputs[name]


def _reduce(graph, value, reduction):
    if reduction == "none":
        raise InputError(
            "a loss to train on is one number", "reduction 'none'", "Use 'mean' or 'sum'."
        )
    if reduction not in ("mean", "sum"):
        raise InputError(f"{reduction!r} is no reduction", "loss", "Use 'mean' or 'sum'.")
    return graph.op("ReduceMean" if reduction == "mean" else "ReduceSum", value, keepdims=0)


@dataclass
class CrossEntropyLoss:
    """torch.nn.CrossEntropyLoss on class indices.

    Feeds `target`: int64 [N] (or [N, d1, ...]) for an output [N, classes] (or [N, classes, d1,
    ...]). weight: list of one float per class, or None. ignore_index: labels that do not count
    (default -100). label_smoothing: in [0, 1]. output: name of the output (default: the first).
    reduction: "mean" (over the labels that count, weighted) or "sum".
    """

    weight: list | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    reduction: str = "mean"
    output: str | None = None
    target: str = "labels"

    def inputs(self, outputs):
        """{target: int64 [N, d1, ...]}.

        InputError: there is no such output, or it has no axis of classes.
        """
        x = _one(outputs, self.output, "CrossEntropyLoss")
        if x.rank < 2:
            raise InputError(
                f"{x} has no axis of classes",
                "loss CrossEntropyLoss",
                "It wants [N, classes] or [N, classes, ...].",
            )
        return {self.target: (INT64, [x.shape[0], *x.shape[2:]])}

    def build(self, g, outputs, fed):
        """The scalar Value. InputError: a field is out of range."""
        return cross_entropy(
            g,
            _one(outputs, self.output, "CrossEntropyLoss"),
            fed[self.target],
            self.weight,
            self.ignore_index,
            self.label_smoothing,
            self.reduction,
        )


def cross_entropy(
    graph, logits, labels, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"
):
    """CrossEntropyLoss of logits [N, classes, d1, ...] and int64 labels [N, d1, ...], both Values:
    a float32 scalar. Raises InputError.
    """
    if reduction not in ("mean", "sum"):
        _reduce(graph, logits, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise InputError(
            f"{label_smoothing} is not in [0, 1]", "label_smoothing", "0 is no smoothing."
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
    """Next-token cross entropy as transformers computes it: the logits of a token are compared with
    the token behind it.

    Feeds `labels`: int64 [batch, sequence], the input ids, with -100 where nothing is to be learned
    (padding, prompts). Output: logits [batch, sequence, vocabulary].
    """

    label_smoothing: float = 0.0
    ignore_index: int = -100
    output: str = "logits"
    target: str = "labels"

    def inputs(self, outputs):
        """{target: int64 [batch, sequence]}.

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

    def build(self, graph, outputs, fed):
        """The scalar Value: the mean over the labels that count."""
        logits, labels = _one(outputs, self.output, "CausalLMLoss"), fed[self.target]
        batch, sequence, vocabulary = logits.shape
        following = graph.op(
            "Slice", labels, graph.ints([1]), graph.ints([sequence]), graph.ints([1])
        )  # the labels move, not the logits, which are large
        ignored = graph.constant(INT64, [batch, 1], [self.ignore_index] * batch)
        labels = graph.op("Concat", following, ignored, axis=1)
        return cross_entropy(
            graph,
            graph.reshape(logits, [batch * sequence, vocabulary]),
            graph.reshape(labels, [batch * sequence]),
            None,
            self.ignore_index,
            self.label_smoothing,
        )


@dataclass
class _Elementwise:
    """A loss between an output and a target of the same shape and type float32. output: its name
    (default: the first).
    """

    reduction: str = "mean"
    output: str | None = None
    target: str = "labels"

    def inputs(self, outputs):
        """{target: float32 of the output's shape}. InputError: there is no such output."""
        x = _one(outputs, self.output, type(self).__name__)
        return {self.target: (FLOAT, list(x.shape))}

    def build(self, g, outputs, fed):
        """The scalar Value: `each`, reduced. InputError: reduction is neither "mean" nor "sum"."""
        return _reduce(
            g,
            self.each(g, _one(outputs, self.output, type(self).__name__), fed[self.target]),
            self.reduction,
        )


@dataclass
class MSELoss(_Elementwise):
    """torch.nn.MSELoss."""

    def each(self, graph, x, y):
        """(x - y)^2."""
        d = graph.sub(x, y)
        return graph.mul(d, d)


@dataclass
class L1Loss(_Elementwise):
    """torch.nn.L1Loss."""

    def each(self, graph, x, y):
        """|x - y|."""
        return graph.op("Abs", graph.sub(x, y))


@dataclass
class HuberLoss(_Elementwise):
    """torch.nn.HuberLoss: 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta)."""

    delta: float = 1.0

    def each(self, graph, x, y):
        """The formula above, as 0.5 m^2 + delta (|d| - m) with m = min(|d|, delta)."""
        a = graph.op("Abs", graph.sub(x, y))
        inner = graph.op("Min", a, graph.number(self.delta))  # 0.5 inner^2 + delta (a - inner)
        return graph.add(
            graph.scale(graph.mul(inner, inner), 0.5), graph.scale(graph.sub(a, inner), self.delta)
        )


@dataclass
class BCEWithLogitsLoss(_Elementwise):
    """torch.nn.BCEWithLogitsLoss, stable for large logits: max(x, 0) - x y + log(1 + exp(-|x|)).
    pos_weight: one float for all, or None.
    """

    pos_weight: float | None = None

    def each(self, graph, x, y):
        """The formula above, of logits x and targets y in [0, 1]."""
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
    """An output of the model itself, of one element: a loss that the graph already computes."""

    output: str | None = None

    def inputs(self, outputs):
        """{}: it feeds nothing."""
        return {}

    def build(self, graph, outputs, fed):
        """The output as a scalar.

        InputError: there is none of this name, or it has more than one element.
        """
        v = _one(outputs, self.output, "of the model")
        if any(d != 1 for d in v.shape):
            raise InputError(
                f"{v} is no scalar",
                f"loss '{v.name}'",
                "Name an output of one element, or use a loss such as CrossEntropyLoss.",
            )
        return graph.reshape(v, [])


@dataclass
class FunctionLoss:
    """A loss made by a function(g, outputs, fed) -> scalar Value. fed: {name: (dtype code, shape)}
    of what it wants fed.
    """

    function: object
    fed: dict = field(default_factory=dict)

    def inputs(self, outputs):
        """What `fed` says."""
        return dict(self.fed)

    def build(self, graph, outputs, fed):
        """What the function returns, as a scalar."""
        return graph.reshape(self.function(graph, outputs, fed), [])


@dataclass
class GraphLoss:
    """A loss that is an ONNX model of its own: any subgraph, composed with whatever tool.

    model: path, bytes or Graph. Its inputs that have the name of an output of the trained model get
    that output; the others are fed under their names, with the type and shape that the file
    declares. shapes: {input: shape} where that is not static, or differs. loss: its output that is
    the loss (default: the first), of one element.
    """

    model: object
    shapes: dict = field(default_factory=dict)
    loss: str | None = None

    def __post_init__(self):
        if not isinstance(self.model, Graph):
            self.model = read_model(as_source(self.model))

    def inputs(self, outputs):
        """Those inputs of its model that no output of the trained model has the name of.

        InputError: a shape is not known.
        """
        fed = {}
        for i in self.model.input_names():
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

    def build(self, graph, outputs, fed):
        """Puts its nodes behind the model's; the scalar Value.

        InputError: its loss has more than one element.
        """
        made = graph.binder.inline(
            self.model,
            {
                i.name: outputs[i.name] if i.name in outputs else fed[i.name]
                for i in self.model.input_names()
            },
        )
        v = _one(made, self.loss, "GraphLoss")
        if any(d != 1 for d in v.shape):
            raise InputError(
                f"{v} is no scalar",
                "loss GraphLoss",
                "Let it end in one number, for instance by ReduceMean.",
            )
        return graph.reshape(v, [])


LOSSES = {
    "causal_lm": CausalLMLoss,
    "cross_entropy": CrossEntropyLoss,
    "mse": MSELoss,
    "l1": L1Loss,
    "huber": HuberLoss,
    "bce_with_logits": BCEWithLogitsLoss,
}


def loss_of(loss):
    """A loss object of a loss object, of a name in LOSSES, of "output:NAME", of a Graph, or of a
    function(g, outputs, fed).
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
        return loss
    if isinstance(loss, Graph):
        return GraphLoss(loss)
    if callable(loss):
        return FunctionLoss(loss)
    raise InputError(
        f"a {type(loss).__name__} is no loss",
        "loss",
        f"Use {', '.join(LOSSES)}, 'output:NAME', or an object of edgewise.training.losses.",
    )
