"""Steps of a plan: calls of kernels, and the elementwise calls that many ops share."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...errors import UnsupportedOp
from ..declare.dtypes import BITS, DOUBLE, FLOAT, NAME, UINT8, pack, size_of
from ..declare.kernel import MAX_DIMS, Kernel, Operand
from ..declare.symbolic import FIRST_COUNTER, NotStatic, Sym, most, product
from ..ir import BoundNode
from ..ops.elementwise.contracts import BINARY
from ..targets import Target
from .buffers import Buffers
from .view import Dim, View, merge_dims

_NAME = re.compile(r"\w+")


class Step:
    """A call of a kernel.

    Attributes:
        kernel: its contract.
        params: {name: number, Sym, or a list of them}.
        operands: views in the kernel's order, None where absent.
        label: the node that the step belongs to; None: copies to outputs.
    """

    __slots__ = ("kernel", "params", "operands", "label")

    def __init__(
        self,
        kernel: Kernel,
        params: dict[str, Any],
        operands: list[View | None],
        label: BoundNode | None,
    ) -> None:
        self.kernel, self.params, self.operands, self.label = kernel, params, operands, label

    @property
    def where(self) -> str:
        """The step's place in the model, for errors."""
        return self.label.where if self.label is not None else "graph outputs"

    def bound(self) -> list[tuple[Operand, View]]:
        """The operands that are there, with their declarations."""
        return [(o, v) for o, v in zip(self.kernel.operands, self.operands) if v is not None]


def _of_rows(x: View, y: View, dtype: int) -> dict[str, Any]:
    """The parameters of a kernel between float32 and rows of fewer bits.

    Args:
        x, y: [batch, heads, count, dim], one of them rows.
        dtype: of the rows.
    """
    strides = {
        f"{name}_{axis}": stride
        for name, v in (("x", x), ("y", y))
        for axis, stride in zip("bhs", v.strides)
    }
    return {**dict(zip(("batch", "heads", "count", "dim"), y.shape)), **strides, "type": dtype}


class StepWriter(Buffers):
    """Adds steps to a plan.

    Attributes:
        written: steps, each with whether it was written for constants alone (once.split_steps).
        label: the node that is being lowered.
        laid_out: {description: view} of constants that are rearranged.
        jumps: [(step, first, end)] of steps that jump: over or back to those in `written` from
            `first` to `end` - 1.
        counters: the largest value of each counter of a loop.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.written: list[tuple[Step, bool]] = []
        self.label: BoundNode | None = None
        self.laid_out: dict[Hashable, View] = {}
        self.jumps: list[tuple[Step, int, int]] = []
        self.counters: list[int] = []

    @property
    def where(self) -> str:
        """The node that is being lowered, for errors."""
        return self.label.where if self.label is not None else "graph"

    def emit(
        self,
        kernel: str,
        operands: Mapping[str, View | None],
        *,
        scratch: Any = True,  # a bool; Any, so that callers may give params as **dict
        **params: Any,
    ) -> None:
        """Adds a call of a kernel.

        Nothing is added where a parameter that the kernel's `empty` names is 0.

        Args:
            kernel: name of the kernel.
            operands: {name: View}; optional ones may be absent or None.
            scratch: whether a kernel that also works without its working memory gets it.
            params: the kernel's parameters: numbers, Syms, or lists of them.

        Raises:
            UnsupportedOp: an operand has an element type that the kernel does not take, or the
                target does not have the kernel or cannot bind so many operands.
            NotStatic: a tensor is laid out for the maximum length, and the kernel has no strides
                for it.
        """
        k = self.target.kernel(kernel, self.where)
        if any(_has_zero(params[name]) for name in k.empty):
            return
        views = [operands.get(o.name) for o in k.operands]
        # Sizes that fit are not enough: a double read as two floats is a wrong number.
        for o, v in zip(k.operands, views):
            if v is not None and not o.type.accepts(v.dtype, params):
                raise UnsupportedOp(
                    f"{kernel} does not take {NAME.get(v.dtype, v.dtype)} as its {o.name}",
                    self.where,
                    "Check the element types that were fed; if they are right, export the model"
                    " with float32.",
                )
            if v is not None and _is_closed_up(o, v, params):
                raise NotStatic(f"{kernel}, whose {o.name} has no gaps between its rows")
        if k.c.scratch:
            nbytes = self.target.scratch_bytes(k, _largest(params), bool(scratch))
            views[-1] = self.scratch(nbytes) if nbytes else None
        self.target.check_operands(k, sum(v is not None for v in views), self.where)
        self.written.append((Step(k, params, views, self.label), self.init))

    # ---- jumps
    def jump(self, kernel: str, operands: Mapping[str, View | None], **params: Any) -> Step:
        """Adds a step that jumps. The caller says how far: `span`."""
        self.emit(kernel, operands, steps=0, **params)
        return self.written[-1][0]

    def span(self, step: Step, first: int, end: int | None = None) -> None:
        """Sets which steps a jump passes: from `first` in `written` to the last one, or `end`."""
        self.jumps.append((step, first, len(self.written) if end is None else end))

    def counter(self, trips: int) -> Sym:
        """The number of the iteration of a new loop of at most `trips` iterations."""
        self.counters.append(max(trips - 1, 0))
        return Sym(FIRST_COUNTER + len(self.counters) - 1, 1, 0, 0, self.counters[-1])

    # ---- elementwise
    def nd(
        self,
        kernel: str,
        shape: Sequence[Dim],
        views: Mapping[str, View],
        strides: Mapping[str, str],
        **params: Any,
    ) -> None:
        """Adds a call of an elementwise kernel.

        Args:
            kernel: name of a kernel with a parameter `dims`.
            shape: of the iteration.
            views: {operand: View of this shape}.
            strides: {stride parameter: operand}.
            params: the kernel's other parameters.
        """
        dims, merged = merge_dims(shape, [views[name].strides for name in strides.values()])
        if len(dims) > MAX_DIMS:
            self._nd_in_parts(kernel, dims, views, dict(zip(strides, merged)), strides, params)
            return
        pad = MAX_DIMS - len(dims)
        spans: dict[str, Any] = {p: [0] * pad + s for p, s in zip(strides, merged)}
        self.emit(kernel, views, dims=[1] * pad + dims, **spans, **params)

    def _nd_in_parts(
        self,
        kernel: str,
        dims: list[Dim],
        views: Mapping[str, View],
        merged: dict[str, list[Any]],
        strides: Mapping[str, str],
        params: dict[str, Any],
    ) -> None:
        """`nd` over more dimensions than a kernel has: one call for each index of the smallest."""
        sizes = {i: d for i, d in enumerate(dims) if not isinstance(d, Sym)}
        i = min(sizes, key=sizes.__getitem__)
        rest = dims[:i] + dims[i + 1 :]
        for k in range(sizes[i]):
            parts = {
                name: View(v.buffer, v.offset, rest, [0] * len(rest), v.dtype)
                for name, v in views.items()
            }
            for stride, name in strides.items():
                v, of_it = views[name], merged[stride]
                parts[name] = View(
                    v.buffer, v.offset + k * of_it[i], rest, of_it[:i] + of_it[i + 1 :], v.dtype
                )
            self.nd(kernel, rest, parts, strides, **params)

    def copy(self, x: View, y: View) -> None:
        """Copies a view into another of the same shape and dtype, whatever their strides.

        Raises:
            UnsupportedOp: the dtypes differ, or packed elements of less than a byte are not
                contiguous.
        """
        if x.dtype != y.dtype:
            raise UnsupportedOp(
                f"{NAME.get(x.dtype, x.dtype)} cannot be stored as {NAME.get(y.dtype, y.dtype)}",
                self.where,
                "Check the element types that were fed; if they are right, export the model with"
                " float32.",
            )
        if y.dtype in BITS:
            if not (x.plain and y.plain):
                raise UnsupportedOp(
                    f"{NAME[y.dtype]} elements that are not read in the order they are stored in",
                    self.where,
                    "Store them in the order that the operator expects.",
                )
            x, y = (View(v.buffer, v.byte_offset(), [v.nbytes()], [1], UINT8) for v in (x, y))
        self.nd("copy", y.shape, {"x": x, "y": y}, {"xs": "x", "ys": "y"}, size=size_of(y.dtype))

    def store(self, x: View, y: View) -> None:
        """Copies a view into another of the same shape, converted to its dtype."""
        if y.bits:
            x = self.cast(x, FLOAT)
            whole = x.strides[-1] == 1 and min(x.strides) >= 0
            x = x if whole else self.contiguous(x)
            self.emit("store_rows", {"x": x, "y": y}, **_of_rows(x, y, y.dtype))
            return
        (self.copy if x.dtype == y.dtype else self.cast_into)(x, y)

    def fill(self, y: View, number: float | bytes) -> None:
        """Sets every element to a number, or to the bits in `bytes` of one element."""
        data = pack(y.dtype, [number]) if not isinstance(number, bytes) else number
        size = size_of(y.dtype)
        data = data + bytes(8 - len(data))
        low, high = (int.from_bytes(data[i : i + 4], "little", signed=True) for i in (0, 4))
        self.nd("fill", y.shape, {"y": y}, {"ys": "y"}, size=size, value_low=low, value_high=high)

    def range(self, y: View, start: Any, delta: Any) -> None:
        """y[i] = start + i * delta, for a flat view.

        start and delta may be Syms where y has integers.
        """
        whole = y.dtype not in (FLOAT, DOUBLE)
        self.emit(
            "range",
            {"y": y},
            type=y.dtype,
            n=product(y.shape),
            start=start if whole else 0,
            delta=delta if whole else 0,
            f_start=0.0 if whole else start,
            f_delta=0.0 if whole else delta,
        )

    def emit_binary(self, op: str, a: View, b: View, y: View, dtype: int) -> None:
        """y = op(a, b), broadcast to y's shape.

        Args:
            op: a name in ops.elementwise.contracts.BINARY.
            a, b: operands.
            y: result.
            dtype: of the operands.
        """
        self.nd(
            "binary",
            y.shape,
            {"a": a.broadcast(y.shape), "b": b.broadcast(y.shape), "y": y},
            {"as": "a", "bs": "b", "ys": "y"},
            op=BINARY[op],
            type=dtype,
        )

    # ---- element types
    def undo_power(self, v: View, power: int) -> View:
        """A copy of numbers of float32 times 2^-power, which is exact; itself for 0."""
        if not power:
            return v
        y = self.temp(FLOAT, v.shape)
        self.emit_binary("mul", v, self.scalar(FLOAT, 2.0**-power), y, FLOAT)
        return y

    def cast(self, v: View, dtype: int) -> View:
        """The view as another dtype: itself, or a converted copy."""
        if v.bits:
            t = self.temp(FLOAT, v.shape)
            self.emit("load_rows", {"x": v, "y": t}, **_of_rows(v, t, v.dtype))
            return self.cast(t, dtype)
        if v.dtype == dtype:
            return v
        t = self.temp(dtype, v.shape)
        self.cast_into(v, t)
        return t

    def cast_into(self, x: View, y: View, mode: int = 0) -> None:
        """Converts x into y, of the same shape, as ONNX's Cast.

        mode: parameter of the cast kernel: what numbers out of the range of 8-bit floats become.
        """
        from_, to = self.unpacked(x), y if y.dtype not in BITS else self.temp(UINT8, y.shape)
        self.nd(
            "cast",
            y.shape,
            {"x": from_, "y": to},
            {"xs": "x", "ys": "y"},
            x_type=x.dtype,
            y_type=y.dtype,
            mode=mode,
        )
        if to is not y:
            self.pack_into(to, y)

    def unpacked(self, v: View) -> View:
        """Elements of less than a byte in a byte each; others as they are."""
        if v.dtype not in BITS:
            return v
        t = self.temp(UINT8, v.shape)
        self.unpack_into(v, t)
        return t

    def unpack_into(self, v: View, codes: View) -> None:
        """Writes the bits of each element of less than a byte into a byte of `codes`."""
        self._pack({"x": self.contiguous(v), "y": codes}, v, unpack=1)

    def pack_into(self, codes: View, y: View) -> None:
        """The reverse of unpack_into."""
        self._pack({"x": self.contiguous(codes), "y": y}, y, unpack=0)

    def _pack(self, operands: dict[str, View], packed: View, unpack: int) -> None:
        bits = BITS[packed.dtype]
        self.emit("pack", operands, bits=bits, n=product(packed.shape), unpack=unpack)

    # ---- layouts
    def contiguous(self, v: View) -> View:
        """The tensor laid out row-major; of a constant, copied once: when weights are there, or in
        each run where a register decides what is copied.
        """
        if v.plain:
            return v
        if not self.is_constant(v.buffer):
            t = self.temp(v.dtype, v.shape)
            self.copy(v, t)
            return t
        key = v.layout
        if key not in self.laid_out:
            was, self.init = self.init, True
            t = self.laid_out[key] = self.temp(v.dtype, v.shape)
            self.copy(v, t)
            self.init = was
        return self.laid_out[key]

    def reshaped(self, v: View, shape: Sequence[Dim]) -> View:
        """A view of another shape, copied where strides cannot express it.

        Raises:
            NotStatic: a dimension that depends on a register allows no such view.
        """
        r = v.reshape(shape)
        if r is None:
            r = self.contiguous(v).reshape(shape)
            if r is None:
                raise NotStatic(f"reshape of {v.shape} to {shape}")
        return r


def _is_closed_up(operand: Operand, view: View, params: Mapping[str, Any]) -> bool:
    """Whether a kernel takes a tensor for contiguous at the current length that is laid out for the
    maximum one, with rows that are farther apart.
    """
    if not view.has_gaps:
        return False
    _, strided, dense = operand.layout.rpartition(":")
    extents = dense.split(",")[2:] if strided else [dense]  # after a stride and its first extent
    values = [params[name] for e in extents for name in _NAME.findall(e) if name in params]
    return any(isinstance(d, Sym) for x in values for d in (x if isinstance(x, list) else [x]))


def _has_zero(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(not isinstance(d, Sym) and d == 0 for d in values)


def _largest(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the largest values of their Syms."""
    return {
        name: [most(x) for x in value] if isinstance(value, list) else most(value)
        for name, value in params.items()
    }
