"""Plans of a decoder: one per number of tokens in a run, with a cache that is written in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedOp
from ..bind import Binder, BoundGraph
from ..declare.dtypes import INT64
from ..declare.symbolic import Sym
from ..ir import Graph, Info, Tensor, Value
from ..passes.last_position import keep_position
from ..passes.lora import SavedParameter, insert_lora, saved_parameters
from ..plan import Plan, compile_graph
from ..plan.explain import GENERATION, explained
from ..targets import Target
from .caches import head_dim

if TYPE_CHECKING:
    from ..passes.lora import AdapterConfig

# Registers of the plans: tokens in the cache, and the token of the run that the logits are of.
PAST, LAST = 0, 1


@dataclass
class DecoderCompiler:
    """What all plans of a decoder share.

    Attributes:
        graph: the model.
        inputs: {name: Info} of its inputs.
        caches: {input name: axis of the past length}.
        lora: layers that get adapters; None: none.
        trainable: names of weights that are states of the plans.
        cache_dtype: ONNX code of what keys and values are stored as.
        target: device that the plans are for.
        vocab_size, saved: found when a plan is compiled: the size of the vocabulary, and the
            parameters that an adapter holds as a whole.
    """

    graph: Graph
    inputs: Mapping[str, Info]
    caches: Mapping[str, int]
    lora: AdapterConfig | None
    trainable: Sequence[str]
    cache_dtype: int
    target: Target
    vocab_size: int = 0
    saved: list[SavedParameter] = field(default_factory=list)

    def compile(self, tokens: int, capacity: int) -> Plan:
        """The plan for runs of `tokens` tokens.

        Args:
            tokens: number of tokens per run.
            capacity: most tokens of a sequence.
        """
        past: Any = 0
        if self.caches and capacity > tokens:
            past = Sym(PAST, 1, 0, 0, capacity - tokens)
        last: Any = Sym(LAST, 1, 0, 0, tokens - 1) if tokens > 1 else 0
        shapes: dict[str, list[Any]] = {"input_ids": [1, tokens]}
        known: dict[str, list[Any]] = {}
        if "use_cache_branch" in self.inputs:
            shapes["use_cache_branch"], known["use_cache_branch"] = [1], [True]
        full = self._cache_shapes(capacity)
        for name, axis in self.caches.items():
            shapes[name] = [*full[name][:axis], past, *full[name][axis + 1 :]]
        self.saved = []
        with explained(GENERATION, self.graph.name or "model"):
            plan, _ = compile_graph(
                self.graph,
                shapes,
                None,
                known,
                roles=dict.fromkeys(self.caches, "cache"),
                outputs=["logits"],
                cache_shapes=full,
                cache_dtype=self.cache_dtype,
                registers=[("past", 0, capacity - tokens), ("last", 0, tokens - 1)],
                transform=lambda bound: self._transform(bound, tokens, last),
                computed=self._computed(past, tokens),
                float_outputs=True,
                trainable=self.trainable,
                target=self.target,
            )
        return plan

    def _cache_shapes(self, capacity: int) -> dict[str, list[int]]:
        """{input name: shape of a cache with all of its capacity}"""
        full = {}
        for name, axis in self.caches.items():
            info = self.inputs[name]
            full[name] = [d if isinstance(d, int) else 1 for d in info.shape or ()]
            full[name][3] = head_dim(self.graph, name, info)
            full[name][axis] = capacity
        return full

    def _computed(self, past: Any, tokens: int) -> dict[str, Callable[[Binder], Value]]:
        """Inputs that the plan computes itself: a mask of ones, and positions from `past` on."""

        def mask(binder: Binder) -> Value:
            one = Tensor.of("one", self.inputs["attention_mask"].dtype, [1], [1])
            shape = Value("mask_shape", INT64, [2], numbers=[1, past + tokens])
            return binder.op("ConstantOfShape", shape, value=one)

        def positions(binder: Binder) -> Value:
            dtype = self.inputs["position_ids"].dtype
            ends = [Value("p", dtype, [], numbers=[x]) for x in (past, past + tokens, 1)]
            ids = binder.op("Range", *ends)
            return binder.op("Unsqueeze", ids, binder.constant(INT64, [1], [0]))

        make = {"attention_mask": mask, "position_ids": positions}
        return {name: f for name, f in make.items() if name in self.inputs}

    def _transform(self, bound: BoundGraph, tokens: int, last: Any) -> None:
        """Keeps the logits of one position, and inserts adapters."""
        self.vocab_size = keep_logits(bound, tokens, last)
        if self.lora is not None:
            if self.lora.modules_to_save or self.lora.bias != "none":
                self.saved.extend(saved_parameters(bound, self.lora))
            insert_lora(bound, self.lora)


def keep_logits(bound: BoundGraph, tokens: int, last: Any) -> int:
    """Reduces the output "logits" to one position; returns the size of the vocabulary.

    Args:
        bound: the graph of a run.
        tokens: of the run.
        last: the position, a Sym or an int.

    Raises:
        UnsupportedOp: the logits are not [batch, sequence, vocabulary].
    """
    logits = bound.outputs["logits"]
    if logits.rank != 3 or not isinstance(logits.shape[2], int):
        raise UnsupportedOp(
            f"its logits have the shape {logits.shape}",
            "output 'logits'",
            "Export the model for text generation: logits are [batch, sequence, vocabulary].",
        )
    if logits.shape[1] == tokens and tokens > 1:
        keep_position(bound, "logits", 1, last)
    return logits.shape[2]
