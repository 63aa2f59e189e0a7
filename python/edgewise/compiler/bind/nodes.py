"""Binding of one node: shapes, known constants, and the decomposition of composite ops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...element_types import DTYPES
from ...errors import EdgewiseError, ModelError, UnsupportedOp
from ..declare.dtypes import BFLOAT16, BITS, FLOAT, FLOATS, INT64, NAME, STRING, wrap
from ..declare.symbolic import NeedsHost, NotStatic, Sym, most, product
from ..declare.values import check_copied
from ..ir import BROKEN, BoundNode, Graph, Node, Value
from ..ops import OPS
from ..ops.promotion import PROMOTIONS
from ..session_limits import LATEST_OPSET
from .autodiff import add_gradients
from .graph import BoundGraph
from .rounding import HALF

if TYPE_CHECKING:
    from ..declare.op import Op

# Elements up to which constants are computed in Python.
FOLD_INTEGERS, FOLD_FLOATS = 512, 64
# Bound nodes of functions and subgraphs: functions that call each other twice grow without end.
MAX_NODES = 1 << 16
MAX_RANK = 64
MAX_ELEMENTS = 1 << 40  # of a tensor, exclusive
RUN_SEED = "seed of the run"  # name of the input for random numbers that are drawn without a seed


class NodeBinder:
    """Adds nodes to a BoundGraph. Composite ops and gradients use `op` and what is built on it.

    Args:
        graph: the graph that is bound.
        known: {value name: flat numbers} of inputs and inner values that are fixed.
        training: whether Dropout is active.
        run_seed: whether each run has a seed of its own.
        max_bytes: most bytes of a tensor, for ops whose binding takes long; None: any.
    """

    def __init__(
        self,
        graph: Graph,
        known: Mapping[str, Sequence[Any]],
        training: bool,
        run_seed: bool,
        max_bytes: int | None,
    ) -> None:
        self.graph, self.known, self.max_bytes = graph, known, max_bytes
        self.training, self.run_seed = training, run_seed
        self.opsets = graph.opsets  # of the graph or function that is being bound
        self.bound = BoundGraph(self)  # type: ignore[arg-type]  # the only subclass is Binder
        self.module = ""  # PyTorch module of the node that is being bound
        self.origin: Node | None = None  # the node of the file that is being bound
        self.depth = 0  # of functions and subgraphs around that node
        self.inside = False  # whether a body of the plan is being bound
        self._seed: Value | None = None
        self._streams = 0  # of random numbers so far
        self._widened: dict[int, tuple[Value, Value]] = {}  # keeps values alive with their id
        self._names = self._inner_nodes = self._copied = 0

    @abstractmethod
    def call_function(
        self, node: BoundNode, inputs: Sequence[Value | None], outputs: Sequence[str]
    ) -> list[Any]:
        """Binds a node that no op is declared for: a call of a model-local function.

        Raises:
            UnsupportedOp: there is no such function.
        """

    # ---- nodes
    def op(
        self,
        name: str,
        *inputs: Value | None,
        domain: Any = None,  # str; Any, so that callers may give attrs as **dict
        outputs: Any = 1,  # int
        **attrs: Any,
    ) -> Any:
        """Adds a node in the newest opset.

        Args:
            name: of the op.
            inputs: Values, or None where absent.
            domain: of the op.
            outputs: number of outputs.
            attrs: attributes.

        Returns:
            its output Value, or a list where outputs > 1
        """
        names = [self.fresh(name) for _ in range(outputs)]
        outs = self.node(name, domain or "", "", list(inputs), names, attrs, LATEST_OPSET)
        return outs[0] if outputs == 1 else outs

    def node(
        self,
        name: str,
        domain: str,
        label: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[str],
        attrs: dict[str, Any],
        opset: int,
    ) -> list[Any]:
        """Binds one node.

        Args:
            name, domain: of the op.
            label: the node's name.
            inputs: Values, or None where absent.
            outputs: names, "" where absent.
            attrs: attributes.
            opset: version of the op's domain.

        Returns:
            its outputs
        """
        self._count_node()
        decl = OPS.get((domain, name))
        n = BoundNode(
            name, domain, label, list(inputs), [], attrs, opset, decl, self.module, self.origin
        )
        # Errors name the node by its outputs.
        n.outputs = [Value(o, 0, ()) if o else None for o in outputs]
        if decl is None:
            return self.call_function(n, inputs, outputs)
        n.inputs = [
            self.widen(v) if v is not None and v.dtype in HALF and i not in decl.half else v
            for i, v in enumerate(inputs)
        ]
        try:
            made = self._replaced(decl, n, outputs)
            if made is not None:
                return made
            results = decl.infer_fn(n)  # type: ignore[misc]
            numbers = self._fold(decl, n, results)
        except EdgewiseError:
            raise
        except BROKEN as e:
            raise n.broken(e) from e
        n.outputs = self._outputs(n, outputs, results, numbers)
        if not numbers and any(
            v is not None and v.producer is n and v.numbers is None for v in n.outputs
        ):
            self.bound.nodes.append(n)
        return n.outputs

    def _count_node(self) -> None:
        self._inner_nodes += self.depth > 0
        if self._inner_nodes > MAX_NODES:
            raise ModelError(
                f"its functions and subgraphs expand to more than {MAX_NODES} nodes",
                self.graph.name or "graph",
                "They repeat each other without end; export it again.",
            )

    def _outputs(
        self,
        n: BoundNode,
        names: Sequence[str],
        results: Sequence[Any],
        numbers: list[list[Any]] | None,
    ) -> list[Any]:
        """Values of a node's outputs.

        Args:
            n: the node.
            names: of its outputs.
            results: what its shape rule gave: (dtype, shape), or the Value that an output is.
            numbers: the results of folding.
        """
        constant = all(v is None or v.constant for v in n.inputs)
        outs: list[Value | None] = []
        for i, (name, r) in enumerate(zip(names, [*results, *[None] * len(names)])):
            if not name:
                outs.append(None)
                continue
            if i >= len(results):
                raise ModelError(
                    f"it has an unexpected output '{name}'", n.where, "Export the model again."
                )
            if isinstance(r, Value):
                outs.append(r)
                continue
            dtype, shape = r
            _check_output(n, dtype, shape)
            v = Value(
                name,
                dtype,
                shape,
                numbers=numbers[i] if numbers else None,
                constant=constant and not any(isinstance(d, Sym) for d in shape),
            )
            if name in self.known and not self.depth:
                v.numbers = list(self.known[name])
            v.producer = n
            outs.append(v)
        return outs

    def _fold(self, decl: Op, node: BoundNode, results: Sequence[Any]) -> list[list[Any]] | None:
        """The numbers of a node's outputs, where they are few and known by now."""
        if decl.fold_fn is None or isinstance(results[0], Value):
            return None
        for dtype, shape in results:
            limit = FOLD_FLOATS if dtype in FLOATS else FOLD_INTEGERS
            if any(isinstance(d, Sym) for d in shape) or product(shape) > limit:
                return None
        if not getattr(decl, "folds_without_numbers", False) and any(
            v is not None and v.numbers is None for v in node.inputs
        ):
            return None
        try:
            return decl.fold_fn(node, results)
        except NotStatic:
            return None

    # ---- decompositions
    def _replaced(self, decl: Op, n: BoundNode, outputs: Sequence[str]) -> list[Any] | None:
        """The outputs of what stands for a node: itself on other element types, or what it is
        composed of; None where it is bound as it is.
        """
        if decl.moves and any(v is not None and v.dtype in BITS for v in n.inputs):
            return self._on_codes(n, outputs)
        for way in PROMOTIONS.get((n.domain, n.op), ()):
            chosen = [
                v is not None and (way.inputs is None or i in way.inputs)
                for i, v in enumerate(n.inputs)
            ]
            own = next((v.dtype for v, c in zip(n.inputs, chosen) if v is not None and c), None)
            other = way.types.get(own) if own is not None else None
            if own is not None and other is not None:
                returned = [way.outputs is None or i in way.outputs for i in range(len(outputs))]
                return self._on_type(n, outputs, own, other, chosen, returned)
        return decl.decompose_fn(n, self) if decl.decompose_fn else None

    def _on_codes(self, n: BoundNode, outputs: Sequence[str]) -> list[Any]:
        """A node that only moves elements of less than a byte: on a byte for each."""
        dtype, *others = {v.dtype for v in n.inputs if v is not None and v.dtype in BITS}
        if others:
            raise ModelError(
                f"its inputs have different element types ({NAME[dtype]} and {NAME[others[0]]})",
                n.where,
                "Export the model again.",
            )
        codes = [
            self.op("Codes", v, domain="edgewise") if v is not None and v.dtype == dtype else v
            for v in n.inputs
        ]
        names = [o and self.fresh(o) for o in outputs]
        made = self.node(n.op, n.domain, n.name, codes, names, n.attrs, n.opset)
        to = {"to": dtype}
        return [
            self.node("OfCodes", "edgewise", n.name, [v], [o], to, LATEST_OPSET)[0]
            if v is not None
            else None
            for v, o in zip(made, outputs)
        ]

    def _on_type(
        self,
        n: BoundNode,
        outputs: Sequence[str],
        own: int,
        other: int,
        chosen: Sequence[bool],
        returned: Sequence[bool],
    ) -> list[Any]:
        """A node whose kernel does not take its element type: on another type.

        Args:
            n: the node.
            outputs: names of its outputs.
            own, other: its element type, and the one that it is computed in.
            chosen: for each input whether it is of this type.
            returned: for each output whether it is of this type.
        """
        cast = [
            self.op("Cast", v, to=other) if v is not None and c and v.dtype == own else v
            for v, c in zip(n.inputs, chosen)
        ]
        names = [self.fresh(o) if o and r else o for o, r in zip(outputs, returned)]
        made = self.node(n.op, n.domain, n.name, cast, names, n.attrs, n.opset)
        return [
            self.node("Cast", "", n.name, [v], [o], {"to": own}, LATEST_OPSET)[0]
            if r and v is not None and v.dtype == other
            else v
            for v, o, r in zip(made, outputs, returned)
        ]

    # ---- half precision: stored as half, computed in float32
    def widen(self, v: Value) -> Value:
        """A half precision value as float32, converted once."""
        if id(v) not in self._widened:
            self._widened[id(v)] = (v, self.op("Cast", v, to=FLOAT))
        return self._widened[id(v)][1]

    def widen_input(self, value: Value) -> Value:
        """An input as float32 where it is of half precision."""
        if value.dtype not in HALF:
            return value
        if value.role in ("cache", "kept"):  # its plan may store halves, its numbers are float32
            value.dtype = FLOAT
            return value
        return self.op("Cast", value, to=FLOAT)

    def narrow(self, v: Value, dtype: int) -> Value:
        """A float32 value in half precision, where `op("Cast")` would not convert it.

        An input that was widened is itself.
        """
        cast = v.producer
        if cast is not None and cast.op == "Cast" and cast.domain == "":
            fed = cast.inputs[0]
            if (
                fed is not None
                and fed.dtype == dtype
                and fed.role == "input"
                and fed.producer is None
                and fed.tensor is None
            ):
                return fed
        out = Value(self.fresh(v.name), dtype, v.shape, constant=v.constant)
        decl = OPS[("", "Cast")]
        node = BoundNode(
            "Cast", "", "", [v], [out], {"to": dtype}, LATEST_OPSET, decl, origin=self.origin
        )
        out.producer = node
        self.bound.nodes.append(node)
        return out

    def rounded(self, v: Value, dtype: int) -> Value:
        """A float32 value with the precision of a half type."""
        if v.dtype != FLOAT:
            return v
        numbers = v.numbers
        if numbers is None or len(numbers) > FOLD_INTEGERS:
            return self.op("Cast", self.narrow(v, dtype), to=FLOAT)
        exact = 1 << (8 if dtype == BFLOAT16 else 11)  # integers up to it are
        if any(isinstance(x, Sym) and not -exact <= x.min <= x.max <= exact for x in numbers):
            raise NotStatic("a length in half precision")
        same = [x if isinstance(x, Sym) else wrap(dtype, x) for x in numbers]
        return self.constant(FLOAT, v.shape, same)

    # ---- values
    def fresh(self, base: str) -> str:
        """A name that no other value has."""
        self._names += 1
        return f"{base}~{self._names}"

    def constant(self, dtype: int, shape: Sequence[int | Sym], numbers: Iterable[Any]) -> Value:
        """A Value of known numbers. dtype: ONNX code; numbers: flat."""
        return Value(self.fresh("constant"), dtype, shape, numbers=list(numbers))

    def ints(self, values: Sequence[Any]) -> Value:
        """An int64 vector."""
        return self.constant(INT64, [len(values)], values)

    def reshape(self, v: Value, shape: Sequence[int | Sym]) -> Value:
        """v in another shape; v itself where it has this shape."""
        if list(v.shape) == list(shape):
            return v
        return self.op("Reshape", v, self.ints(shape), allowzero=1)

    def random_stream(self, always: bool = False) -> tuple[Value, int] | None:
        """A new stream of random numbers: (seed, number of the stream).

        None where Dropout is not active, unless `always` and each run has a seed.
        """
        name = "seed" if self.training else RUN_SEED if always and self.run_seed else None
        if name is None:
            return None
        if self.inside:  # each iteration needs other numbers
            raise NeedsHost
        if self._seed is None:
            self._seed = self.bound.inputs[name] = Value(name, INT64, [1], role="input")
        self._streams += 1
        return self._seed, self._streams

    def copies(self, node: BoundNode, items: int) -> None:
        """As session.driver.Host.copies."""
        self._copied += items
        check_copied(self._copied, node.where)

    def differentiate(
        self, seeds: Sequence[tuple[Value, Value | None]], sources: Sequence[Value]
    ) -> list[Value | None]:
        """Adds the gradients of the nodes bound so far; as autodiff.add_gradients."""
        return add_gradients(self.bound, seeds, sources)


def _check_output(n: BoundNode, dtype: int, shape: Sequence[Any]) -> None:
    """Raises where a node's output has an element type or a shape that no plan has."""
    if dtype == STRING:
        raise NeedsHost
    if dtype not in DTYPES and dtype not in BITS:
        raise UnsupportedOp(
            f"its output would have the element type {NAME.get(dtype, dtype)}",
            n.where,
            "Export the model with standard element types.",
        )
    if (
        len(shape) > MAX_RANK
        or not all(isinstance(d, Sym) or type(d) is int and d >= 0 for d in shape)
        or _elements(shape) >= MAX_ELEMENTS
    ):
        raise ModelError(
            f"its output would have the shape {str(shape)[:200]}",
            n.where,
            "Check the shapes that were fed; if they are right, export the model again.",
        )


def _elements(dims: Sequence[int | Sym]) -> int:
    """Elements of a shape at most, and at most 2^62.

    Sizes of 0 count as 1: no array library takes a shape like [0, 1 << 62].
    """
    n = 1
    for d in dims:
        n *= most(d) or 1
        if n > 1 << 62:
            return 1 << 62
    return n
