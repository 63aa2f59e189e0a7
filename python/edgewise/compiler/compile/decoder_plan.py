"""Plans of a decoder: one per number of tokens in a run, with a cache that is written in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedOp
from ...logic.generation.sliding import BLOCK, rows_of
from ...logic.manifest.limits import ROOM_STEP
from ...logic.manifest.schema import SlidingWindow
from ..bind import BoundGraph
from ..declare.op import Dim
from ..declare.symbolic import NotStatic, Sym
from ..ir import Graph, Value
from ..passes.last_position import keep_position
from ..passes.lora import SavedParameter, insert_lora, saved_parameters
from ..plan import Plan, compile_graph
from ..plan.builder import Register, SlidingCaches
from ..plan.explain import GENERATION, explained
from ..targets import CPU, Target
from .caches import Interface, state_shape, static_rooms
from .computed import COUNTS, computed_inputs
from .features import fed_shapes
from .sliding import sliding_caches
from .states import STATES_OF_OPS, StateInput
from .tables import one_size

if TYPE_CHECKING:
    from ..passes.lora import AdapterConfig

# Registers of the plans: tokens in the cache, the token of the run that the logits are of, and
# tokens that the caches have room for. After them, of some: of how many tokens from that one on
# there are logits; and of caches of a sliding window the rows before the run, the positions before
# these, and the rows that they have room for.
PAST, LAST, ROOM = 0, 1, 2
MAX_VERIFIED = 16
"""Tokens of a run whose logits are all wanted, at most."""
# Ops that scale the numbers of all tokens of a run alike.
SHARED_SCALES = ("DynamicQuantizeLinear", "MatMulInteger", "DynamicQuantizeMatMul")


class NoGrowth(Exception):
    """A cache is written as a whole: it has one size, for all tokens of a sequence."""


@dataclass
class DecoderCompiler:
    """What all plans of a decoder share.

    Attributes:
        graph: the model.
        found: its inputs, states, and logits.
        config: the model's config.json.
        lora: layers that get adapters; None: none.
        trainable: names of weights that are states of the plans.
        cache_dtype: ONNX code of what keys and values are stored as.
        target: device that the plans are for.
        grows: whether caches may be bound to memory for fewer tokens than the capacity.
        slides: whether caches of a sliding window may hold fewer tokens.
        longest: most tokens of a run.
        windows: {capacity: the window of such caches}, found when a plan is compiled.
        vocab_size, padded, whole, saved: found when a plan is compiled: the size of the vocabulary,
            whether a run may be padded after its last token, names of the states that runs write as
            a whole, and the parameters that an adapter holds as a whole.
    """

    graph: Graph
    found: Interface
    config: Mapping[str, Any]
    lora: AdapterConfig | None
    trainable: Sequence[str]
    cache_dtype: int
    target: Target
    grows: bool = True
    slides: bool = True
    longest: int = 1
    windows: dict[int, SlidingWindow] = field(default_factory=dict)
    vocab_size: int = 0
    padded: bool = True
    whole: set[str] = field(default_factory=set)
    saved: list[SavedParameter] = field(default_factory=list)

    def compile(self, tokens: int, capacity: int) -> Plan:
        """The plan for runs of `tokens` tokens.

        Args:
            tokens: number of tokens per run.
            capacity: most tokens of a sequence.
        """
        if self._verifies(tokens):
            with suppress(UnsupportedOp):  # a node cannot; the other plan says what else is missing
                rows = ROOM + 1 if self.grows else ROOM
                return self._compile(tokens, capacity, Sym(rows, 1, 0, 1, tokens))
        return self._compile(tokens, capacity, 1)

    def _verifies(self, tokens: int) -> bool:
        """Whether a plan checks tokens that were guessed: its runs can stand for runs of single
        tokens, since states can be cut and no scale of numbers is shared by the tokens of a run.
        """
        shared = any(n.op in SHARED_SCALES for n in self.graph.nodes)
        return (
            1 < tokens <= MAX_VERIFIED
            and self.target is CPU
            and len(self.found.states) > 0
            and not any(s.fixed for s in self.found.states.values())
            and not shared
        )

    def _compile(self, tokens: int, capacity: int, rows: Dim) -> Plan:
        """As `compile`. rows: tokens that there are logits of."""
        past: Any = 0
        if self.found.states and capacity > tokens:
            past = Sym(PAST, 1, 0, 0, capacity - tokens)
        last: Any = Sym(LAST, 1, 0, 0, tokens - 1) if tokens > 1 else 0
        shapes: dict[str, list[Any]] = {"input_ids": [1, tokens], **fed_shapes(self.graph, tokens)}
        known: dict[str, list[Any]] = {}
        if "use_cache_branch" in self.found.inputs:
            shapes["use_cache_branch"], known["use_cache_branch"] = [1], [True]
        for name in COUNTS & self.found.inputs.keys():
            shapes[name], known[name] = list(self.found.inputs[name].shape or []), [tokens]
        full: dict[str, list[Any]] = {}
        room: Any = capacity
        least = max(tokens, ROOM_STEP)
        if self.grows:
            room = Sym(ROOM, 1, 0, least, capacity, packed=True)
        rooms = static_rooms(self.found, self.config, capacity)
        for name, state in self.found.states.items():
            shape = state_shape(self.graph, state, self.config, rooms)
            full[name] = [room if i == state.axis else d for i, d in enumerate(shape)]
            shapes[name] = [past if i == state.axis else d for i, d in enumerate(shape)]
        states = self.found.states.values()
        self.saved = []
        registers: list[Register] = [
            ("past", 0, capacity - tokens),
            ("last", 0, tokens - 1),
            *([("room", least, capacity)] if self.grows else []),
            *([("rows", 1, rows.max)] if isinstance(rows, Sym) else []),
        ]
        sliding = SlidingCaches()
        graph = one_size(self.graph, capacity)
        # Tables are chosen by the number of tokens: padding does not count.
        self.padded = self.padded and graph is self.graph
        with explained(GENERATION, self.graph.name or "model"), _no_cut(graph, states):
            plan, _ = compile_graph(
                graph,
                shapes,
                None,
                known,
                roles={s.name: "kept" if s.fixed else "cache" for s in states},
                outputs=[self.found.logits, *(s.output for s in states)],
                cache_shapes=full,
                cache_dtype=self.cache_dtype,
                registers=registers,
                sliding=sliding,
                prepare=self._prepare,
                transform=lambda bound: self._transform(bound, tokens, last, rows),
                finish=lambda bound: self._slide(bound, full, registers, sliding, tokens),
                computed=computed_inputs(self.found, self.config, past, tokens, rooms),
                float_outputs=True,
                jumps=self.target.jumps and self.lora is None and not self.trainable,
                trainable=self.trainable,
                target=self.target,
            )
        return plan

    def _slide(
        self,
        bound: BoundGraph,
        full: dict[str, list[Any]],
        registers: list[Register],
        sliding: SlidingCaches,
        tokens: int,
    ) -> None:
        """Lets caches of a sliding window hold the last positions alone, where that is less.

        Args:
            bound: the graph of a run, after all passes.
            full: shapes of the caches, {input name: shape}.
            registers: of the plan.
            sliding: receives these caches.
            tokens: of the run.
        """
        growing = {s.name: s.axis for s in self.found.states.values() if s.axis is not None}
        if not (self.grows and self.slides and self.target is CPU and growing):
            return
        least, capacity = registers[ROOM][1:]
        sizes = {
            name: size
            for name, size in sliding_caches(bound, growing, PAST).items()
            if rows_of(size, self.longest) < capacity
        }
        if not sizes:
            return
        size = max(sizes.values())
        rows = rows_of(size, self.longest)
        rows += (capacity - rows) % BLOCK  # the last positions that are dropped are a whole block
        self.windows[capacity] = {"size": size, "rows": rows}
        first = len(registers)
        held, sliding.dropped, room = (
            Sym(first, 1, 0, 0, rows - tokens),
            Sym(first + 1, 1, 0, 0, capacity - rows),
            Sym(first + 2, 1, 0, least, rows, packed=True),
        )
        registers += [
            ("held", held.min, held.max),
            ("dropped", 0, capacity - rows),
            ("window", least, rows),
        ]
        for name in sizes:
            axis = growing[name]
            full[name][axis] = room
            shape = bound.inputs[name].shape
            sliding.shapes[name] = [held if i == axis else d for i, d in enumerate(shape)]

    def _prepare(self, bound: BoundGraph) -> None:
        """Lets the plan write states, and names the logits so."""
        states = self.found.states.values()
        fixed = {s.name: s.output for s in states if s.fixed}
        growing = {s.name: (s.output, s.axis) for s in states if s.axis is not None}
        grown = grow_states(bound, growing)
        if grown and self.grows:
            raise NoGrowth
        self.whole = {*fixed, *grown}
        keep_states(bound, fixed)
        bound.outputs["logits"] = bound.outputs.pop(self.found.logits)

    def _transform(self, bound: BoundGraph, tokens: int, last: Any, rows: Dim) -> None:
        """Keeps the logits of some positions, and inserts adapters."""
        shape = bound.outputs["logits"].shape
        # States take each token of a run; so do the logits of models that keep the last position.
        self.padded = self.padded and not self.whole and (tokens == 1 or shape[1:2] == [tokens])
        self.vocab_size = keep_logits(bound, tokens, last, rows)
        if self.lora is not None:
            if self.lora.modules_to_save or self.lora.bias != "none":
                self.saved.extend(saved_parameters(bound, self.lora))
            insert_lora(bound, self.lora)


@contextmanager
def _no_cut(graph: Graph, states: Iterable[StateInput]) -> Iterator[None]:
    """Says which state has a length that no plan can express, since its last rows alone are kept.

    Args:
        graph: a model.
        states: of it.
    """
    try:
        yield
    except NotStatic:
        made = {o: n for n in graph.nodes for o in n.outputs}
        for state in states:
            node = made.get(state.output)
            while node is not None and node.op in ("Identity", "Cast", "Transpose"):
                node = made.get(node.inputs[0])
            if state.axis is not None and node is not None and node.op == "Slice":
                raise UnsupportedOp(
                    f"its output '{state.output}' is the last rows alone, once there are enough",
                    f"input '{state.name}'",
                    "Export the model so that it returns all rows, or run it with"
                    " InferenceSession.",
                ) from None
        raise


def keep_states(bound: BoundGraph, fixed: Mapping[str, str]) -> None:
    """Lets a plan write the states of fixed shape, which are inputs, instead of returning them.

    Args:
        bound: the graph of a run.
        fixed: {input name: name of the output that replaces it}.
    """
    for name, output in fixed.items():
        new, state = bound.outputs.pop(output), bound.inputs[name]
        if new.dtype != state.dtype:
            new = bound.binder.op("Cast", new, to=state.dtype)
        if list(new.shape) != list(state.shape):
            raise UnsupportedOp(
                f"its shape is {new.shape}, that of the input '{name}' {state.shape}",
                f"output '{output}'",
                "Export the model with states of one shape.",
            )
        bound.effects.append(bound.binder.op("Assign", state, new, domain="edgewise"))


def grow_states(bound: BoundGraph, growing: Mapping[str, tuple[str, int]]) -> set[str]:
    """Lets a plan write the states that grow, which are caches, instead of returning them. Where
    the graph only appends to a state, the node that does so writes into the cache's room.

    Args:
        bound: the graph of a run.
        growing: {input name: (name of the output that replaces it, axis along which it grows)}.

    Returns:
        the others, which are written as a whole: rows of them may stand for any token
    """
    written: set[str] = set()
    news = {name: bound.outputs.pop(output) for name, (output, _) in growing.items()}
    for name, (_, axis) in growing.items():
        new, cache = news[name], bound.inputs[name]
        whole = appended(new, cache, axis)
        if whole is None:
            written.add(name)
            whole = bound.binder.op("AssignGrown", cache, new, domain="edgewise", axis=axis)
        bound.effects.append(whole)
    return written


def appended(new: Value, cache: Value, axis: int) -> Value | None:
    """The value that a node makes by appending to a cache, where `new` is no more than that."""
    while new.producer is not None:
        node = new.producer
        if node.op == "Concat" and node.domain == "":
            same = node.inputs[0] is cache and node.attr("axis", 1) % new.rank == axis
            return new if same else None
        states = STATES_OF_OPS.get(node.op, {})
        place = next((i for i, o in enumerate(node.outputs) if o is new), 0)
        of = next((i for i, o in states.items() if o == place), None)
        if of is not None:
            return new if node.input(of) is cache else None
        if node.op not in ("Identity", "Cast"):
            return None
        new = node.inputs[0]
    return None


def keep_logits(bound: BoundGraph, tokens: int, last: Any, rows: Dim = 1) -> int:
    """Reduces the output "logits" to some positions; returns the size of the vocabulary.

    Args:
        bound: the graph of a run.
        tokens: of the run.
        last: the position, a Sym or an int; the first of several.
        rows: positions, 1 or a Sym.

    Raises:
        NotStatic: the number of positions cannot depend on a register.
        UnsupportedOp: the logits are not [batch, sequence, vocabulary].
    """
    logits = bound.outputs["logits"]
    if logits.rank == 2 and tokens == 1 and isinstance(logits.shape[1], int):
        return logits.shape[1]
    if logits.rank != 3 or not isinstance(logits.shape[2], int):
        raise UnsupportedOp(
            f"its logits have the shape {logits.shape}",
            "output 'logits'",
            "Export the model for text generation: logits are [batch, sequence, vocabulary].",
        )
    if logits.shape[1] == tokens and tokens > 1:
        keep_position(bound, "logits", 1, last, rows)
    elif rows != 1:
        raise NotStatic("logits of one position alone")
    return logits.shape[2]
