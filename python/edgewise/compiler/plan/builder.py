"""Lowering: each bound node becomes calls of kernels with concrete parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...errors import EdgewiseError, ModelError, UnsupportedOp
from ..bind import BoundGraph
from ..declare.dtypes import FLOAT, FLOAT16, FLOATS, INT8, INT64, UINT8, bytes_for, pack
from ..declare.symbolic import Sym, most, product, registers_of, strides_of
from ..ir import BROKEN, Body, BoundNode, Tensor, Value
from ..targets import CPU, Target
from .hoist import hoist_updates
from .layouts import Layouts
from .memory import plan_memory
from .once import content_names, outputs, split_steps
from .plan import Plan
from .steps import Step
from .view import Dim, Storage, View, merge_dims

# Rows of keys and values of fewer bits (the kernel store_rows): {type: (bits, bytes of a block)},
# columns of a block, and the most of a row.
ROWS = {INT8: (8, 34), UINT8: (4, 18)}
BLOCK, MAX_ROW = 32, 512
# (name, lowest value, highest value) of a register
Register = tuple[str, int, int]


@dataclass
class SlidingCaches:
    """Caches that hold the rows of the last positions: those that any token of a run sees.

    Attributes:
        shapes: {input name: shape of the rows before a run}.
        dropped: positions before these.
    """

    shapes: dict[str, list[Dim]] = field(default_factory=dict)
    dropped: Dim = 0


def lower(
    bound: BoundGraph,
    cache_shapes: Mapping[str, Sequence[Dim]] | None = None,
    registers: Sequence[Register] = (),
    cache_dtype: int = FLOAT,
    target: Target = CPU,
    sliding: SlidingCaches | None = None,
) -> Plan:
    """Lowers a BoundGraph to a Plan.

    Args:
        bound: the graph, after all passes.
        cache_shapes: {input name: full shape of the cache that it is stored in}; a dimension may
            follow a register.
        registers: in the order of their numbers in Syms.
        cache_dtype: what caches of float32 numbers are stored as: FLOAT, FLOAT16, or INT8 or UINT8:
            rows of 8 or 4 bits (the kernel store_rows).
        target: device that the plan is for.
        sliding: those of the caches that hold some positions only.

    Raises:
        UnsupportedOp: the target cannot run a node.
        ModelError: a node's inputs or attributes make no sense.
    """
    builder = Builder(cache_shapes or {}, cache_dtype, target, sliding)
    builder.lower_nodes(bound.nodes)
    builder.init, builder.label = False, None
    builder.finish(bound)
    further = registers_of(value.shape for value in bound.inputs.values())
    return Plan.assemble(builder, registers, further)


class Builder(Layouts):
    """What `lower` of an op writes to.

    `view` gives the memory of a Value, `out` makes room for one, `emit` and what is built on it add
    steps. Steps of nodes whose outputs are constants are init steps, unless a register decides what
    they do.

    A cache of halves has float32 numbers as far as the graph is concerned: `stored` gives the
    halves, for kernels that read them, and `view` a widened copy. So has one of rows of fewer bits,
    which `stored` gives only where the caller takes them (`rows`). So has a weight of halves, which
    are w * 2^k besides: only `narrow` gives those, for lowerings that undo the factor.

    Args:
        cache_shapes: as of `lower`.
        cache_dtype, sliding: as of `lower`.
        target: device that the plan is for.

    Attributes:
        init_steps, steps: those that run once, when weights are there, and those of each run; made
            by `finish`.
    """

    merge_dims = staticmethod(merge_dims)

    def __init__(
        self,
        cache_shapes: Mapping[str, Sequence[Dim]],
        cache_dtype: int = FLOAT,
        target: Target = CPU,
        sliding: SlidingCaches | None = None,
    ) -> None:
        super().__init__(target)
        self.sliding = sliding or SlidingCaches()
        self.cache_shapes, self.cache_dtype = cache_shapes, cache_dtype
        self.steps: list[Step] = []
        self.init_steps: list[Step] = []
        self.arena_bytes = self.arena_least = 0
        # Keyed by id(value); `_alive` keeps these values alive.
        self._views: dict[int, View] = {}
        self._widened: dict[int, View] = {}
        self._alive: list[Value] = []

    # ---- nodes
    def lower_nodes(self, nodes: Iterable[BoundNode]) -> None:
        """Lowers nodes in order. Raises as `lower`."""
        for node in nodes:
            self.label = node
            self.init = all(o is None or o.constant for o in node.outputs)
            if node.decl.lower_fn is None:
                raise UnsupportedOp(
                    f"{node.op} cannot be lowered", node.where, "Report this model."
                )
            try:
                node.decl.lower_fn(node, self)
            except EdgewiseError:
                raise
            except BROKEN as e:
                raise node.broken(e) from e

    def lower_body(self, body: Body, inputs: Iterable[View]) -> list[View]:
        """Lowers a subgraph of the present node.

        Nothing else may read what its steps compute, since they need not run: the views of values,
        and copies in other layouts, that it makes are forgotten.

        Args:
            body: the subgraph.
            inputs: views of its inputs.

        Returns:
            views of its outputs
        """
        kept = self.label, dict(self._views), dict(self._widened), dict(self.laid_out)
        for value, view in zip(body.inputs, inputs):
            self.alias(value, view)
        self.lower_nodes(body.bound.nodes)
        self.init = False
        outs = [self.view(v) for v in body.outputs]
        self.label, self._views, self._widened, self.laid_out = kept
        return outs

    # ---- values
    def view(self, value: Value) -> View:
        """The memory of a value, as elements of its dtype."""
        v = self.narrow(value)
        if v.bits or (v.dtype == FLOAT16 and value.dtype == FLOAT):  # of a cache or a weight
            if id(value) not in self._widened:
                self._widened[id(value)] = self._widen(v)
            return self._widened[id(value)]
        return v

    def _widen(self, v: View) -> View:
        """A copy in float32; that of a weight is made once."""
        if v.power is None:
            return self.cast(v, FLOAT)
        was, self.init = self.init, True
        y = self.undo_power(self.cast(v, FLOAT), v.power)
        self.init = was
        return y

    def stored(self, value: Value, rows: bool = False) -> View:
        """The memory of a value; that of a cache has the cache's dtype.

        Args:
            value: as above.
            rows: whether rows of fewer bits are taken, whose dimensions cannot be divided.
        """
        v = self.narrow(value)
        return self.view(value) if v.power is not None or (v.bits and not rows) else v

    def narrow(self, value: Value) -> View:
        """As `stored`; that of a weight may be float16 numbers of w * 2^k (View.power)."""
        v = self._views.get(id(value))
        if v is None:
            v = self._first_view(value)
            self.alias(value, v)
        return v

    def alias(self, value: Value, view: View) -> None:
        """Lets a value share the memory of a view: no step, nothing moves."""
        self._views[id(value)] = view
        self._alive.append(value)

    def out(self, value: Value) -> View:
        """A new contiguous buffer for a value that the node computes."""
        v = self.temp(value.dtype, value.shape)
        self.alias(value, v)
        return v

    def out_in_order(self, value: Value, order: Sequence[int]) -> View:
        """`out` with the dimensions laid out, and shown by the view, in another order."""
        y = self.out(value)
        if list(order) == list(range(len(order))):
            return y
        shape = [value.shape[i] for i in order]
        y = View(y.buffer, 0, shape, strides_of(shape), value.dtype)
        self.alias(value, y.transpose([order.index(i) for i in range(len(order))]))
        return y

    def view_like(self, value: Value, target: View) -> View:
        """A value laid out contiguously in another view's shape."""
        v = self.view(value)
        if list(v.shape) == list(target.shape) and v.plain:
            return v
        return self.reshaped(self.contiguous(v), target.shape)

    def _first_view(self, value: Value) -> View:
        if value.tensor is not None:
            return self._constant_view(value.tensor)
        if value.numbers is not None:
            if any(isinstance(x, Sym) for x in value.numbers):
                return self._register_numbers(value)
            return self.const_bytes(pack(value.dtype, value.numbers), value.dtype, value.shape)
        dtype, full, shape = value.dtype, list(value.shape), value.shape
        strides = strides_of(value.shape)
        if value.role == "cache":
            full = list(self.cache_shapes[value.name])
            shape = self.sliding.shapes.get(value.name, value.shape)
            dtype = self.cache_dtype if dtype == FLOAT else dtype
            if dtype != value.dtype and dtype in ROWS:
                return self._cache_of_rows(value, full, dtype)
            strides = strides_of(full)
        elif value.role not in ("state", "input", "kept"):
            raise AssertionError(f"{value} is used before it is computed")
        kind = "cache" if value.role == "kept" else value.role  # of a sequence, too
        buffer = self._slot_with_room(value.name, kind, dtype, full)
        return View(buffer, 0, shape, strides, dtype)

    def _slot_with_room(self, name: str, kind: str, dtype: int, full: Sequence[Dim]) -> Storage:
        """The slot of a tensor of this shape; it grows where a register decides its size, unless
        that is of an input, which has room for all.
        """
        shape = [most(d) for d in full]
        buffer = self.slot(name, kind, dtype, shape, bytes_for(dtype, product(shape)))
        self.slots[buffer.index].grows = kind == "cache" and shape != list(full)
        return buffer

    def _cache_of_rows(self, value: Value, full: list[Dim], dtype: int) -> View:
        """A cache whose tokens are rows of fewer bits.

        Raises:
            UnsupportedOp: its rows are not those of tokens.
        """
        grows = [i for i, (a, b) in enumerate(zip(value.shape, full)) if a != b]
        bits, blocks, row = *ROWS[dtype], most(full[-1])
        if len(full) != 4 or grows not in ([2], []) or row > MAX_ROW:
            raise UnsupportedOp(
                f"keys or values of the shape {value.shape} cannot be kept in {bits} bits",
                f"input '{value.name}'",
                "Keep them as float16 (cache_dtype). Of 8 and 4 bits are [batch, heads, past, dim]"
                f" of at most {MAX_ROW} per head.",
            )
        full[-1] = -(-row // BLOCK) * blocks
        buffer = self._slot_with_room(value.name, "cache", dtype, full)
        buffer.bits = bits
        shape = self.sliding.shapes.get(value.name, value.shape)
        return View(buffer, 0, shape, strides_of(full), dtype)

    def _constant_view(self, tensor: Tensor) -> View:
        """A constant of the model: a weight slot, or bytes of the plan where it is small."""
        if tensor.data is not None and tensor.nbytes <= self.target.memory.inline_bytes:
            return self.const_bytes(tensor.data, tensor.dtype, tensor.shape)
        dtype = tensor.dtype if tensor.power is None else FLOAT16
        nbytes = bytes_for(dtype, tensor.count)
        buffer = self.slot(tensor.name, "weight", dtype, tensor.shape, nbytes)
        if buffer.tensor not in (None, tensor):
            raise ModelError(
                f"two constants are named '{tensor.name}'", self.where, "Export the model again."
            )
        buffer.tensor = tensor
        return View(buffer, 0, tensor.shape, strides_of(tensor.shape), dtype)

    def _register_numbers(self, value: Value) -> View:
        """A small integer tensor that depends on registers, written element by element."""
        assert value.numbers is not None
        was, self.init = self.init, False
        v = self.temp(INT64 if value.dtype in FLOATS else value.dtype, value.shape)
        flat = self.reshaped(v, [len(value.numbers)])
        for i, x in enumerate(value.numbers):
            self.range(flat.slice(0, i, 1), x, 0)
        v = self.cast(v, value.dtype)
        self.init = was
        return v

    # ---- the end
    def finish(self, bound: BoundGraph | None = None) -> None:
        """Completes the plan once all nodes are lowered.

        Outputs get slots, what init steps compute for the steps of each run is kept in slots,
        updates of states move forward, and buffers are placed in the arena.

        Args:
            bound: the graph; None: there is none, only steps that were emitted.
        """
        for name, value in bound.outputs.items() if bound is not None else ():
            # An output that is a cache is the cache itself.
            if self.slot_kind(self.stored(value, rows=True).buffer) != "cache":
                self._place_output(name, self.view(value))
        self.init_steps, self.steps = split_steps(self.written, self._is_fixed)
        self._set_jumps()
        self._keep_computed()
        self.steps = hoist_updates(self.steps, self._is_state, self._last_guard(bound))
        self._place_buffers()
        self.target.check_buffer(self.arena_bytes, "memory between steps")
        self.target.check_buffer(len(self.constants), "constants")

    def _set_jumps(self) -> None:
        """Counts the steps of a run that each jump passes."""
        runs = set(map(id, self.steps)) if self.jumps else ()
        before = [0, *accumulate(id(step) in runs for step, _ in self.written)]
        for step, first, end in self.jumps:
            step.params["steps"] = before[end] - before[first]

    def _place_buffers(self) -> None:
        """Gives the buffers between steps their places, in one arena or in several."""
        phases = (self.init_steps, self.steps)
        if self.target.memory.several_arenas:
            from ..ops.attention.write_through import write_through
            from .arenas import place_in_slots
            from .batches import in_batches

            self.steps = write_through(self.steps, lambda b: self.slot_kind(b) == "cache")
            batches = in_batches(self.steps, self.target.alike, self._is_state)
            self.steps = [step for batch in batches for step in batch]
            alone = [[step] for step in self.init_steps]
            self.arena_bytes, self.arena_least = place_in_slots(self, (alone, batches))
            return
        places = [plan_memory(steps, self.target.memory) for steps in phases]
        self.arena_bytes = max(total for total, _ in places)
        self.arena_least = max(least for _, least in places)

    def _place_output(self, name: str, v: View) -> None:
        """Makes an output's buffer its slot, or copies it to one."""
        shape = [most(d) for d in v.shape]
        nbytes = bytes_for(v.dtype, product(shape))
        if (
            v.buffer.kind == "arena"
            and not v.buffer.init
            and v.plain
            and v.offset == 0
            and v.buffer.nbytes == nbytes
            and name not in self.slot_of
        ):
            self.move_to_slot(v.buffer, name, "output", v.dtype, shape)
            return
        own = name if name not in self.slot_of else name + "~output"
        buffer = self.slot(own, "output", v.dtype, shape, nbytes)
        self.copy(v, View(buffer, 0, v.shape, strides_of(v.shape), v.dtype))

    def _keep_computed(self) -> None:
        """Moves what init steps compute for the steps of each run to slots. What they compute twice
        is computed once.
        """
        read = {v.buffer for step in self.steps for _, v in step.bound()}
        together = {
            v.buffer for step in self.init_steps if len(o := outputs(step)) > 1 for _, v in o
        }
        copies = set()
        for buffer, content in content_names(self.init_steps, self.constant_parts()).items():
            name = f"computed/{content}"
            same = self.slot_of.get(name)
            if buffer not in read:
                continue
            if same is not None and buffer not in together:
                buffer.kind, buffer.name, buffer.index = "slot", name, same.index
                copies.add(buffer)
                continue
            if same is not None:
                name += f"/{len(self.slots)}"
            self.move_to_slot(buffer, name, "computed", UINT8, [buffer.nbytes])
        self.init_steps = [
            s for s in self.init_steps if copies.isdisjoint(v.buffer for _, v in outputs(s))
        ]

    def _is_fixed(self, buffer: Storage) -> bool:
        return self.slot_kind(buffer) in ("weight", "state")

    def _is_state(self, buffer: Storage) -> bool:
        return self.slot_kind(buffer) == "state"

    def _last_guard(self, bound: BoundGraph | None) -> int:
        """The last step that writes the output which has to be there before states are written;
        -1 where there is none.
        """
        if bound is None or bound.writes_after is None:
            return -1
        guard = self.view(bound.outputs[bound.writes_after]).buffer
        return max((i for i, step in enumerate(self.steps) if _writes(step, guard)), default=-1)


def _writes(step: Step, buffer: Storage) -> bool:
    return any(o.output and v.buffer is buffer for o, v in step.bound())


__all__ = ["Builder", "Dim", "Register", "lower"]
