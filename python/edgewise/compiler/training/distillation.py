"""Distillation: a loss against the probabilities of another model."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from ...errors import InputError
from ..bind.autodiff import Gradients
from ..declare.dtypes import FLOAT, INT64
from ..ir import Value
from .losses import CausalLMLoss, Targets, Values

LOW = -1e20  # logits of tokens that are not there: their share is 0, and finite in products


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass
class DistillationLoss:
    """Next-token loss against a teacher, from its most probable tokens at each position.

    alpha T^2 KL(teacher || student) + (1 - alpha) cross entropy, as Hinton et al. write it: both
    distributions are of temperature T, and the mean is over the labels with a loss. The teacher's
    is that of the given tokens alone, whose probabilities are made to add up to 1; with all of the
    vocabulary it is torch.nn.functional.kl_div of log_softmax and softmax. The student's is of the
    whole vocabulary.

    Args:
        top_k: tokens that are given at each position.
        temperature: T, more than 0.
        alpha: from 0 to 1: 1 is the teacher alone, 0 the labels alone.
        ignore_index: labels with this value (padding, prompts) have no loss.
        output: name of the logits [batch, sequence, vocabulary].
        target: name of the labels that are fed: the input ids, int64 [batch, sequence].

    Two more arrays are fed, which are those of the teacher at the same positions as the student's
    logits: `teacher_ids`, int64 [batch, sequence, top_k], and `teacher_log_probs`, float32 of this
    shape: logits are taken as well, since what they differ by is divided out. A token with a
    negative id or a log-probability of -inf fills up a shorter list: its share is 0.
    """

    top_k: int
    temperature: float = 1.0
    alpha: float = 0.5
    ignore_index: int = -100
    output: str = "logits"
    target: str = "labels"

    def _cross_entropy(self) -> CausalLMLoss:
        return CausalLMLoss(0.0, self.ignore_index, self.output, self.target)

    def inputs(self, outputs: Values) -> Targets:
        """{target, "teacher_ids", "teacher_log_probs"}.

        Raises:
            InputError: a field is out of range, or the output is not [batch, sequence, vocabulary].
        """
        fed = self._cross_entropy().inputs(outputs)
        batch, sequence, vocabulary = outputs[self.output].shape
        if not _is_number(self.alpha) or not 0 <= self.alpha <= 1:
            raise InputError(f"{self.alpha!r} is not from 0 to 1", "alpha", "0.5 is usual.")
        if not _is_number(self.temperature) or not 0 < self.temperature < float("inf"):
            raise InputError(f"{self.temperature!r} is not positive", "temperature", "Give 1 to 4.")
        if type(self.top_k) is not int or not 0 < self.top_k <= vocabulary:
            raise InputError(
                f"{self.top_k!r} is not from 1 to the vocabulary's {vocabulary}",
                "DistillationLoss.top_k",
                "Give how many tokens of each position the teacher tells.",
            )
        shape = [batch, sequence, self.top_k]
        return {**fed, "teacher_ids": (INT64, shape), "teacher_log_probs": (FLOAT, shape)}

    def build(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The scalar."""
        hard = self._cross_entropy().build(graph, outputs, fed)
        soft = graph.scale(self._divergence(graph, outputs, fed), self.temperature**2)
        return graph.add(graph.scale(soft, self.alpha), graph.scale(hard, 1 - self.alpha))

    def _divergence(self, graph: Gradients, outputs: Values, fed: Values) -> Value:
        """The mean over labels with a loss of KL(teacher || student)."""
        logits, ids, given = outputs[self.output], fed["teacher_ids"], fed["teacher_log_probs"]
        none, low = graph.constant(INT64, [1], [0]), graph.constant(FLOAT, [1], [LOW])
        absent = graph.op("Or", graph.op("Less", ids, none), graph.op("Less", given, low))
        there = graph.op("Not", absent)
        ids, given = graph.op("Where", there, ids, none), graph.op("Where", there, given, low)
        cooler = 1 / self.temperature
        student = graph.op("LogSoftmax", graph.scale(logits, cooler), axis=2)
        student = graph.op("GatherElements", student, ids, axis=2)
        teacher = graph.op("LogSoftmax", graph.scale(given, cooler), axis=2)
        shares = graph.mul(graph.op("Exp", teacher), graph.op("Cast", there, to=FLOAT))
        apart = graph.mul(shares, graph.sub(teacher, student))
        each = graph.op("ReduceSum", apart, graph.ints([2]), keepdims=0)
        counted = self._counted(graph, fed[self.target])
        total = graph.op("ReduceSum", graph.mul(each, counted), keepdims=0)
        count = graph.op("ReduceSum", counted, keepdims=0)
        return graph.div(total, graph.op("Max", count, graph.number(1.0)))

    def _counted(self, graph: Gradients, labels: Value) -> Value:
        """float32 [batch, sequence]: 1 where the next token has a loss."""
        batch, sequence = labels.shape
        following = graph.op(
            "Slice", labels, graph.ints([1]), graph.ints([sequence]), graph.ints([1])
        )
        ignored = graph.constant(INT64, [1], [self.ignore_index])
        same = graph.op("Cast", graph.op("Equal", following, ignored), to=FLOAT)
        kept = graph.sub(graph.number(1.0), same)
        none = graph.constant(FLOAT, [batch, 1], [0.0] * batch)
        return graph.op("Concat", kept, none, axis=1)


__all__ = ["DistillationLoss"]
